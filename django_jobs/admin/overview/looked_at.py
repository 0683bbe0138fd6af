"""What was looked at when nothing has to be: for whoever asks whether something is about to break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs.admin import figures
from django_jobs.admin.overview.asked import Asked
from django_jobs.conf import conf
from django_jobs.models import Pause
from django_jobs.monitoring.check import Thresholds


def looked_at(asked: Asked) -> list[str]:
    """Return what was found in order, of a page without concerns that has read workers and what waits."""
    found = asked.found
    every = [*_workers(found["workers"]), *_waiting(asked)]
    if found.get("rates"):
        done, failed = found["rates"].last_minute
        words = {"failed": figures.number(failed), "ended": figures.number(done + failed)}
        every.append(_("Lost runs: none was begun anew in the last hour."))
        text = ngettext(
            "Failures: %(failed)s of the one job that ended in a minute.",
            "Failures: %(failed)s of the %(ended)s jobs that ended in a minute.",
            done + failed,
        )
        every.append(text % words)
    every.append(_("Dead letters: none."))
    if "schedules" in found:
        every.append(_("Schedules: %s, and none is overdue or cannot fire.") % found["schedules"]["total"])
    if found.get("health"):
        every.append(_("The queue's own tables: few dead rows, and no old snapshot that keeps them."))
    return every


def _workers(found: Any) -> Iterator[str]:
    number = figures.number(found.live)
    if found.total > len(found.rows):  # whom the others serve is not known
        yield _("Workers: %s live, and none is silent.") % number
    else:
        yield _("Workers: %s live, and none is silent; one serves each queue where jobs are due.") % number


def _waiting(asked: Asked) -> Iterator[str]:
    paused = {pause.name for pause in asked.found.get("pauses", ()) if pause.kind == Pause.Kind.QUEUE}
    ages = [queue.oldest for queue in asked.found["depths"].queues if queue.oldest and queue.queue not in paused]
    limit = figures.seconds(Thresholds.of(conf()).age_warning)
    if ages:
        words = {"age": figures.seconds(max(ages)), "limit": limit}
        yield _("Waiting: the oldest due job waits for %(age)s; more than %(limit)s would be named here.") % words
    else:
        yield _("Waiting: no job is due; one that waited for more than %s would be named here.") % limit
    if asked.found.get("pauses"):  # any of them may be why a job is parked
        yield _("Suspects, which may have killed their process: none.")
    else:
        yield _("Suspects, which may have killed their process, and jobs of a type that no worker knows: none.")
