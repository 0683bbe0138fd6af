"""The database as such: can it be written, is it migrated, who is between it and us, and does its clock go as ours."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage
from django.core.checks.registry import registry
from django.db.migrations.executor import MigrationExecutor

from django_jobs import checks
from django_jobs.conf import conf
from django_jobs.doctor.findings import Finding, names
from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.monitoring.check import skew
from django_jobs.report import TRIAL_SECONDS
from django_jobs.router import migrate

SKEW = 2.0
FULL = 0.8

_SESSIONS = """
SELECT 'server', sum(numbackends),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
  FROM pg_stat_database
UNION ALL
SELECT 'database ' || current_database(), pg_stat_get_db_numbackends(oid), datconnlimit
  FROM pg_database WHERE datname = current_database()
UNION ALL
SELECT 'user ' || rolname, (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user), rolconnlimit
  FROM pg_roles WHERE rolname = current_user
"""


def not_writable(engine: Engine) -> Iterator[Finding]:
    why = engine.why_not_writable(TRIAL_SECONDS)
    if why is not None:
        yield Finding(
            "not_writable",
            f"The jobs' database cannot be written, so no job runs until it can: {why}",
            "Make room, or see who made it read-only; nothing else is to be done, all goes on by itself.",
        )


def unapplied(engine: Engine) -> Iterator[Finding]:
    executor = MigrationExecutor(engine.connection)
    leaves = executor.loader.graph.leaf_nodes("django_jobs")
    missing = [migration.name for migration, _backwards in executor.migration_plan(leaves)]
    if missing:
        yield Finding(
            "unapplied",
            f"Migrations of django_jobs are not applied: {names(missing)}.",
            f"Run `{migrate(engine.alias)}`.",
        )


def system_checks(engine: Engine) -> Iterator[Finding]:
    found: list[CheckMessage] = list(registry.run_checks(tags=["django_jobs"]))
    found += checks.check_server(None, databases=[engine.alias])
    for message in found:
        yield Finding(str(message.id), str(message.msg), str(message.hint or "See docs/checks.md."))


def pooler(engine: Engine) -> Iterator[Finding]:
    if not _is_pooled(engine):
        return
    settings = conf()
    if settings.listen and settings.listen_dsn is None:
        yield Finding(
            "pooler_without_listen_dsn",
            "The jobs' database is reached through a transaction pooler, so that no worker can be woken when a job is enqueued: "
            f"they poll, every {settings.poll_interval:g} s.",
            'Give DJANGO_JOBS["LISTEN_DSN"] a connection string that goes past the pooler, or say "LISTEN": False.',
        )
    isolation, idle = rows(
        engine,
        "SELECT current_setting('default_transaction_isolation'), current_setting('idle_in_transaction_session_timeout')",
    )[0]
    if isolation != "read committed":
        yield Finding(
            "pooler_isolation",
            f"Through the pooler transactions are {isolation}, and nothing can be set on its sessions: claims fail where another "
            "worker was faster.",
            "ALTER ROLE ... SET default_transaction_isolation = 'read committed' for the role of the workers.",
        )
    if idle == "0":
        yield Finding(
            "pooler_idle",
            "Through the pooler no session is ended that sits in a transaction, and nothing can be set on it.",
            "ALTER ROLE ... SET idle_in_transaction_session_timeout = '60s' for the role of the workers; see docs/operating.md.",
        )


def connections(engine: Engine) -> Iterator[Finding]:
    if engine.name != "postgresql":
        return
    for what, number, limit in rows(engine, _SESSIONS):
        if limit >= 0 and number > FULL * limit:
            yield Finding(
                "connections",
                f"The {what} has {number} of {limit} connections; what comes beyond is refused.",
                "Fewer processes or threads, a shorter CONN_MAX_AGE of the site, a pooler, or a higher limit.",
            )


def clock(engine: Engine) -> Iterator[Finding]:
    apart = skew(engine.alias)
    if abs(apart) > SKEW:
        yield Finding(
            "clock_skew",
            f"The clock of this host is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} the database's. Jobs are due "
            "by the database's; times that your code computes are by this one.",
            "See whether both hosts keep their time (chrony, NTP).",
        )


def _is_pooled(engine: Engine) -> bool:
    if engine.name != "postgresql":
        return False
    from django_jobs.engines.postgresql_session import is_pooled  # the driver is there only with this vendor

    return is_pooled(engine.connection)


CHECKS = (not_writable, system_checks, pooler, connections, clock)
