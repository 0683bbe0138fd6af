"""What waits, for a worker or for a person."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from django_jobs import report
from django_jobs.conf import conf
from django_jobs.doctor.findings import Finding, names
from django_jobs.engines.base import Engine
from django_jobs.engines.depths import depths
from django_jobs.models import Pause
from django_jobs.monitoring.check import Thresholds

DAY = 86_400.0
LONG_PAUSE = DAY


def waits_long(engine: Engine) -> Iterator[Finding]:
    limit = Thresholds.of(conf()).age_critical or 0.0
    paused = Pause.objects.using(engine.alias).names(Pause.Kind.QUEUE)
    late = [found for found in depths(engine, 1).queues if (found.oldest or 0.0) > limit and found.queue not in paused]
    if late:
        said = [f"{found.queue} ({found.oldest:.0f} s)" for found in late]
        yield Finding(
            "waits_long",
            f"The oldest due job waits for more than {limit:g} s on {names(said)}.",
            "`jobs show ID` says of each job why it waits. More processes or threads, or a higher priority for what is urgent; "
            "`jobs pause --type T` for what fills the queue.",
        )


def dead_letters(engine: Engine) -> Iterator[Finding]:
    limit = Thresholds.of(conf()).dead_critical or 0
    most = int(limit) + 1
    found = depths(engine, most)
    if found.dead_letters > limit:
        yield Finding(
            "dead_letters",
            f"More than {limit:g} jobs are dead or failed and wait for a person.",
            "The admin's page of dead letters has them by type and error. When the cause is gone: `jobs requeue --type T`.",
        )


def paused_long(engine: Engine) -> Iterator[Finding]:
    for row in report.pauses():
        if row["since_seconds"] > LONG_PAUSE and row["until"] is None:
            by = f" by {row['by']}" if row["by"] else ""
            why = f" ({row['why'].rstrip('.')})" if row["why"] else ""
            yield Finding(
                "paused_long",
                f"The {row['kind']} {row['name']} is paused{by} for {row['since_seconds'] / DAY:.1f} days, without an end{why}.",
                f"If nobody needs that any more: `jobs resume --{row['kind']} {quote(row['name'])}`.",
            )


def may_have_happened(engine: Engine) -> Iterator[Finding]:
    found = report.may_have_happened(engine.alias)
    if found["effects"]:
        yield Finding(
            "may_have_happened",
            f"{found['effects']} effects outside the database were asked for and never answered, the oldest "
            f"{found['oldest_seconds']:.0f} s ago: they may have happened.",
            "Ask the other system, and settle them on the page Effects of the admin.",
        )


CHECKS = (waits_long, dead_letters, paused_long, may_have_happened)
