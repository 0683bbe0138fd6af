"""Whether somebody runs the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

from django_jobs import report
from django_jobs.conf import conf
from django_jobs.doctor.findings import Finding, names
from django_jobs.engines.base import Engine
from django_jobs.engines.depths import depths
from django_jobs.models import Worker
from django_jobs.models.worker import unserved

# From here on a worker knows whether it can be woken.
LISTENS_AFTER = 60.0


def no_workers(engine: Engine) -> Iterator[Finding]:
    if not any(row["live"] for row in report.workers(engine.alias)):
        yield Finding("no_workers", "No worker runs, so no job is started.", "Start `manage.py runworkers`.")


def silent_workers(engine: Engine) -> Iterator[Finding]:
    silent = [row for row in report.workers(engine.alias) if not row["live"]]
    if silent:
        who = names([f"{_name(row)}, for {row['heartbeat_seconds']:.0f} s" for row in silent])
        yield Finding(
            "silent_workers",
            f"Of {len(silent)} worker processes no heartbeat comes ({who}); what they ran goes to others when its lease is over.",
            "See whether their host runs and reaches the database, and start `manage.py runworkers` there again. A row goes "
            "when another supervisor has taken back what it held.",
        )


def unserved_queues(engine: Engine) -> Iterator[Finding]:
    live = list(Worker.objects.using(engine.alias).live())
    if not live:  # which is said
        return
    alone = unserved([found.queue for found in depths(engine, 1).queues if found.due], live)
    if alone:
        yield Finding(
            "unserved_queues",
            f"Jobs are due that no live worker takes, on {names(alone)}.",
            f"Start a worker for them (`manage.py runworkers --queues {quote(alone[0])}`), or add them to QUEUES.",
        )


def quiet_workers(engine: Engine) -> Iterator[Finding]:
    quiet = [row for row in report.workers(engine.alias) if row["live"] and row["asked"] == Worker.Asked.QUIET]
    if quiet:
        yield Finding(
            "quiet_workers",
            f"{len(quiet)} worker processes were asked to claim nothing more: {names([_name(row) for row in quiet])}.",
            "Have them work again on the page Workers of the admin, or stop them.",
        )


def unknown_types(engine: Engine) -> Iterator[Finding]:
    live = any(row["live"] for row in report.workers(engine.alias))
    rows = report.unknown_types(engine.alias) if live else []
    for row in rows:
        more = " or more" if row["jobs"] >= report.DEPTH_LIMIT else ""
        yield Finding(
            "unknown_type",
            f"No live worker knows the type {row['type']}: {row['jobs']}{more} jobs are parked on {row['queue']}, the oldest due "
            f"for {row['waiting_seconds']:.0f} s.",
            "Deploy workers that have it. If it was renamed, register the old name for the new function, "
            f'@job(name="{row["type"]}"); if it is gone, `jobs cancel --type {quote(row["type"])}`.',
        )


def not_woken(engine: Engine) -> Iterator[Finding]:
    if not engine.notifies or not conf().listen:
        return
    deaf = [row for row in report.workers(engine.alias) if row["live"] and not row["listens"]]
    who = names([_name(row) for row in deaf])
    if deaf and all(row["age_seconds"] > LISTENS_AFTER for row in deaf):
        yield Finding(
            "not_woken",
            f"{len(deaf)} live worker processes are not woken by NOTIFY and poll: {who}.",
            'Behind a transaction pooler, give DJANGO_JOBS["LISTEN_DSN"] a connection string that goes past it; else see their '
            'log for why LISTEN failed. With "LISTEN": False nobody expects it.',
        )


def _name(row: dict[str, Any]) -> str:
    return f"{row['host']}:{row['pid']}"


CHECKS = (no_workers, silent_workers, quiet_workers, unserved_queues, unknown_types, not_woken)
