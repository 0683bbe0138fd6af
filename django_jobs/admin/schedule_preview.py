"""What a schedule is going to do, as its page shows it: of the stored values, or of a form that is being edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.dateformat import format as formatted
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_jobs import durations, zones
from django_jobs.admin import shown, zoned
from django_jobs.admin.schedule_form import ScheduleForm, label
from django_jobs.engines import jobs_alias
from django_jobs.models.clock import database_now
from django_jobs.models.schedule import TIMING, Schedule
from django_jobs.schedules import firing, status
from django_jobs.slots import Slot, Touched

FIRES = 8
_DAY = "D Y-m-d H:i"
TEMPLATE = "admin/django_jobs/schedule/preview.html"


def preview(form: ScheduleForm) -> dict[str, Any]:
    """Return the context of the preview: what a form says, else what is stored. Nothing is written."""
    schedule, errors = form.instance, form.errors if form.is_bound else {}
    if all(name in form.fields and not form[name].value() for name in ("expression", "every")):
        return {"empty": True}
    wrong = {name: [str(text) for text in errors[name]] for name in TIMING if name in errors}
    if wrong:
        return {"errors": _labelled(wrong)}
    now = database_now(jobs_alias())
    try:
        found = status.preview(schedule, now, FIRES)
    except ValidationError as error:
        return {"errors": _labelled(error.message_dict)}
    zone = zones.zone(schedule.timezone)
    fires = [_fire(slot, zone, now) for slot in found.slots]
    return {
        "fires": fires,
        "apart": any(fire["yours"] for fire in fires),
        "zone": schedule.timezone,
        "changes": [_change(change, touched) for change, touched in found.changes],
        "notes": list(_notes(schedule, errors)),
    }


def _labelled(errors: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    found = [(capfirst(label(name)), " ".join(texts)) for name, texts in errors.items()]
    # Some texts begin with what it is about.
    return [("" if text.startswith(name) else name, text) for name, text in found]


def _fire(slot: Slot, zone: tzinfo, now: datetime) -> dict[str, Any]:
    return {
        "at": zoned.reading(slot.at, zone),
        "yours": zoned.yours(slot.at, zone),
        "far": shown.age(slot.at, now),
        "mark": _mark(slot, zone),
    }


def _mark(slot: Slot, zone: tzinfo) -> str:
    local = slot.at.astimezone(zone)
    if slot.moved and slot.reading is not None:
        return _("moved: the clock jumps over %s") % f"{slot.reading:%H:%M}"
    if local.fold:
        return _("the second of two times %s") % f"{local:%H:%M}"
    if local.utcoffset() != local.replace(fold=1).utcoffset():
        return _("the first of two times %s") % f"{local:%H:%M}"
    return ""


def _change(change: zones.Change, touched: Touched) -> dict[str, Any]:
    at = change.at.astimezone(UTC).replace(tzinfo=None)
    before, after = at + change.before, at + change.after
    return {
        "at": f"{formatted(before, _DAY)} → {formatted(after, _DAY if after.date() != before.date() else 'H:i')}",
        "direction": _direction(change),
        "effect": touched.effect,
        "word": _word(touched.effect),
        "readings": _readings(touched, after),
    }


def _direction(change: zones.Change) -> str:
    by = durations.spelled(abs(change.after - change.before)).translated()
    return (_("forward by %s") if change.is_gap else _("back by %s")) % by


def _word(effect: str) -> str:
    return {
        "moved": _("moved"),
        "skipped": _("skipped"),
        "doubled": _("doubled"),
        "first only": _("first only"),
        "second only": _("second only"),
    }.get(effect, _("unaffected"))


def _readings(touched: Touched, after: datetime) -> str:
    if not touched.count:
        return ""
    times = ", ".join(f"{reading:%H:%M}" for reading in touched.examples)
    if touched.count > len(touched.examples):
        times = _("%(times)s … (%(count)d in all)") % {"times": times, "count": touched.count}
    says = {
        "moved": _("%(times)s: run at %(after)s"),
        "skipped": _("%(times)s: not run"),
        "doubled": _("%(times)s: run both times"),
        "first only": _("%(times)s: run the first time"),
        "second only": _("%(times)s: run the second time"),
    }
    return says[touched.effect] % {"times": times, "after": f"{after:%H:%M}"}


def _notes(schedule: Schedule, errors: Mapping[str, Any]) -> Iterator[str]:
    if not schedule.enabled:
        yield _("It is paused: these are its times once it is resumed.")
    if "spread" not in errors and schedule.spread and (offset := firing.offset(schedule)):
        # To the second: what is less is of no use to a person.
        whole = timedelta(seconds=round(offset.total_seconds())) or offset
        yield _("Its jobs are due %s after these times, by the spread.") % durations.spelled(whole).translated()
