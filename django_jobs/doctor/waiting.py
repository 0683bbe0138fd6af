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
    limits = Thresholds.of(conf())
    wrong, soon = limits.age_critical or 0.0, limits.age_warning or 0.0
    paused = Pause.objects.using(engine.alias).names(Pause.Kind.QUEUE)
    ages = [(found.queue, found.oldest or 0.0) for found in depths(engine, 1).queues if found.queue not in paused]
    for limit, is_note, late in (
        (wrong, False, [queue for queue in ages if queue[1] > wrong]),
        (soon, True, [queue for queue in ages if soon < queue[1] <= wrong]),
    ):
        if late:
            queues = names([f"{name} ({age:.0f} s)" for name, age in late])
            yield Finding(
                "waits_long",
                f"The oldest due job waits for more than {limit:g} s on {queues}.",
                "`jobs show ID` says of each job why it waits. More processes or threads, or a higher priority for what is "
                "urgent; `jobs pause --type T` for what fills the queue.",
                is_note,
            )


def dead_letters(engine: Engine) -> Iterator[Finding]:
    limit = Thresholds.of(conf()).dead_critical or 0
    most = int(limit) + 1
    found = depths(engine, most)
    if found.dead_letters:
        is_note = found.dead_letters <= limit
        number = f"More than {limit:g}" if not is_note else str(found.dead_letters)
        yield Finding(
            "dead_letters",
            f"Jobs that are dead or failed, and wait for a person: {number}.",
            "The admin's page of dead letters has them by type and error. When the cause is gone: `jobs requeue --type T`.",
            is_note,
        )


def suspects(engine: Engine) -> Iterator[Finding]:
    found = depths(engine, report.DEPTH_LIMIT)
    if number := sum(queue.suspects for queue in found.queues):
        yield Finding(
            "suspects",
            f"Jobs that may have killed their process, and wait to be run alone: {_shown(number)}.",
            "`runworkers` runs each alone in a process of its own when one is free. The admin's list of parked jobs "
            "names them, and the log of `runworkers` what ended their processes.",
            is_note=True,
        )


def parked(engine: Engine) -> Iterator[Finding]:
    """Name what is parked for no reason that another finding has."""
    if Pause.objects.using(engine.alias).in_force().exists() or report.unknown_types(engine.alias):
        return
    found = depths(engine, report.DEPTH_LIMIT)
    if number := sum(queue.parked for queue in found.queues):
        yield Finding(
            "parked",
            f"Jobs that are parked though nothing is paused: {_shown(number)}. Workers that met them did not know their type.",
            "A live worker that knows their type takes them within a few heartbeats; `jobs show ID` says of each why it waits.",
            is_note=True,
        )


def _shown(number: int) -> str:
    return f"{number} or more" if number >= report.DEPTH_LIMIT else str(number)


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


CHECKS = (waits_long, dead_letters, suspects, parked, paused_long, may_have_happened)
