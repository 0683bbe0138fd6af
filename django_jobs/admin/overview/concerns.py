"""What somebody should look at, by what the page has read anyway: no question is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs.admin import figures
from django_jobs.admin.addresses import address, jobs_address
from django_jobs.admin.overview.asked import Asked
from django_jobs.conf import conf
from django_jobs.measures.rates import Rates
from django_jobs.models import Pause
from django_jobs.models.worker import unserved
from django_jobs.monitoring.check import Thresholds

QUEUES_NAMED = 5


class Concern(NamedTuple):
    """A sentence, and where one sees more of it; empty for nowhere."""

    text: str
    url: str = ""


class Concerns(NamedTuple):
    """What is wrong or soon will be, the worst first; and what else was looked at, in which nothing is."""

    found: list[Concern]
    well: list[str]


def concerns(asked: Asked) -> Concerns:
    found = asked.found
    every: list[tuple[str, Iterator[Concern]]] = []
    if "workers" in found:
        every.append((_("workers"), _of_workers(asked)))
    if found.get("rates"):
        every.append((_("lost runs"), _of_losses(asked)))
    if "depths" in found:
        every.append((_("what waits"), _of_what_waits(asked)))
        every.append((_("dead letters"), _of_dead_letters(asked)))
    if found.get("rates"):
        every.append((_("failures"), _of_failures(asked)))
    if "schedules" in found:
        every.append((_("schedules"), _of_schedules(asked)))
    if found.get("health"):
        every.append((_("the state of the tables"), _of_tables(asked)))
    told = [(label, list(some)) for label, some in every]
    return Concerns([each for _label, some in told for each in some], [label for label, some in told if not some])


def _of_workers(asked: Asked) -> Iterator[Concern]:
    found = asked.found["workers"]
    url = address("django_jobs_worker_changelist")
    if not found.live:
        yield Concern(_("No worker is live: nothing runs until runworkers is started."), url)
    elif found.working == 0:
        yield Concern(_("All live workers were asked to claim nothing more: no job is started."), url)
    elif "depths" in asked.found and (names := _unserved(asked)):
        text = _("No live worker that claims jobs serves: %s, where jobs are due.")
        yield Concern(text % ", ".join(names[:QUEUES_NAMED]), url)
    if silent := found.total - found.live:
        text = ngettext(
            "One worker is silent: its process was killed, its host is gone, or it is cut off from the database.",
            "%(number)s workers are silent: their processes were killed, their hosts are gone, or cut off from the database.",
            silent,
        )
        yield Concern(text % {"number": figures.number(silent)}, url)


def _unserved(asked: Asked) -> list[str]:
    """Return the queues in which jobs are due and no worker claims; unknown where not all workers were read."""
    found = asked.found["workers"]
    if found.total > len(found.rows):
        return []
    paused = _paused(asked, Pause.Kind.QUEUE)
    due = [queue.queue for queue in asked.found["depths"].queues if queue.due and queue.queue not in paused]
    return unserved(due, [worker for worker in found.rows if worker.live])


def _paused(asked: Asked, kind: str) -> set[str]:
    return {pause.name for pause in asked.found.get("pauses", ()) if pause.kind == kind}


def _of_what_waits(asked: Asked) -> Iterator[Concern]:
    depths = asked.found["depths"]
    limits = Thresholds.of(conf())
    paused = _paused(asked, Pause.Kind.QUEUE)
    for queue in depths.queues:
        late = queue.oldest is not None and limits.age_warning is not None and queue.oldest > limits.age_warning
        if late and queue.queue not in paused:
            text = _("In the queue %(queue)s a job is due for %(age)s.")
            values = {"queue": queue.queue, "age": figures.seconds(queue.oldest)}
            yield Concern(text % values, jobs_address("due", queue=queue.queue))
    if suspects := sum(queue.suspects for queue in depths.queues):
        text = _("Suspects, which may have killed their process, wait to be run alone: %s.")
        yield Concern(text % figures.number(suspects), jobs_address("parked"))
    parked = sum(queue.parked for queue in depths.queues)
    if parked and not asked.found.get("pauses"):
        text = _("Parked although nothing is paused, since no worker that met them knows their type: %s.")
        yield Concern(text % figures.number(parked), jobs_address("parked"))


def _of_dead_letters(asked: Asked) -> Iterator[Concern]:
    depths = asked.found["depths"]
    if depths.dead_letters:
        text = _("Dead letters, which run again only when a person says so: %s.")
        shown = figures.capped(depths.dead_letters, max(depths.dead, depths.failed) >= depths.most)
        yield Concern(text % shown, address("django_jobs_job_dead_letters"))


def _of_losses(asked: Asked) -> Iterator[Concern]:
    if lost := asked.found["rates"].repeats_in_hour:
        text = ngettext(
            "In the last hour one run ended that had begun anew: the one before was lost, as when its worker process dies.",
            "In the last hour %(number)s runs ended that had begun anew: those before were lost, as when a worker process dies.",
            lost,
        )
        yield Concern(text % {"number": figures.number(lost)}, "#mishaps")


def _of_failures(asked: Asked) -> Iterator[Concern]:
    rates: Rates = asked.found["rates"]
    if rates.many_failed:
        done, failed = rates.last_minute
        words = {"failed": figures.number(failed), "ended": figures.number(done + failed)}
        yield Concern(_("Many jobs fail: %(failed)s of the %(ended)s that ended in a minute.") % words, "#types")


def _of_schedules(asked: Asked) -> Iterator[Concern]:
    wrong: dict[Any, list[str]] = {}
    for line in asked.found["schedules"]["lines"]:
        wrong.setdefault(line["condition"], []).append(line["plain_name"])
    url = address("django_jobs_schedule_changelist")
    words = {
        "broken": _("Schedules that cannot fire: %s."),
        "overdue": _("Schedules that should have fired and have not: %s."),
        "orphaned": _("Schedules whose code is gone: %s."),
    }
    for state, text in words.items():
        if state in wrong:
            yield Concern(text % ", ".join(wrong[state]), url)


def _of_tables(asked: Asked) -> Iterator[Concern]:
    for label, value, is_bad in asked.found["health"]["facts"]:
        if is_bad:
            yield Concern(f"{str(label).capitalize()}: {value}.", "#health")
