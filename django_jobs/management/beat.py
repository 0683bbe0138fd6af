"""`jobs import-beat`: the rows of django-celery-beat as schedules, and those that run once as jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from django_jobs import registry
from django_jobs.decorators import JobFunction
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import JobsError, shown
from django_jobs.management.given import refuse
from django_jobs.models import ArchivedJob, Job, Schedule
from django_jobs.models.clock import database_now
from django_jobs.schedules.faults import said

APP = "django_celery_beat"
# What a schedule here has of a row there, to be compared when one of this name exists.
FIELDS = ("type", "payload", "expression", "every", "timezone", "queue", "priority", "enabled")
# What Celery does for itself, and nobody has to do here.
OWN_TASKS = "celery."
# What its fields raise of a value that they have no object for.
_UNREADABLE = (ValidationError, ValueError)


class CannotCarry(Exception):
    """A row that stays what it is there; says why, and what to do."""


class NotNeeded(Exception):
    """A row for which there is nothing to do here; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What became of a row: "schedule" or "job" when one was made, "there", "not needed" or "refused"."""

    name: str
    became: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """How task names are translated, and which way priorities count."""

    types: dict[str, str]
    lower_first: bool
    now: datetime

    def type_of(self, task: str) -> registry.JobType:
        name = self.types.get(task, task)
        for old, new in self.types.items():
            if task not in self.types and old.endswith("*") and task.startswith(old[:-1]):
                name = new.removesuffix("*") + task[len(old) - 1 :]
        found = registry.find(name)
        if found is None:
            if task.startswith(OWN_TASKS):
                raise NotNeeded(f"{task} is Celery's own")
            raise CannotCarry(f"no job type is named {shown(name)}; write it, or give --map {task}=TYPE")
        return found

    def priority(self, row: Any) -> int | None:
        if row.priority is None:
            return None
        return -row.priority if self.lower_first else int(row.priority)


def mapping(given: Iterable[str]) -> dict[str, str]:
    """Return what --map says: the name of a task there, and that of the job type here."""
    found: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not (old and equals and new) or old.endswith("*") != new.endswith("*"):
            refuse(f"--map is {text[:80]!r}; give the task's and the job type's name as shop.tasks.send=shop.jobs.send, "
                   "or the beginnings of many as shop.tasks.*=shop.jobs.*.")  # fmt: skip
        if found.setdefault(old, new) != new:
            refuse(f"--map says of {old[:80]!r} that it is {found[old][:80]!r} and {new[:80]!r}; give it once.")
    return found


def bring(types: dict[str, str], *, lower_first: bool, dry_run: bool) -> list[Brought]:
    """Make schedules and jobs of all rows, once however often it is called; with `dry_run` take them back at the end."""
    try:
        rows = apps.get_model(APP, "PeriodicTask")._default_manager.order_by("pk")
    except LookupError:
        refuse(f"{APP} is not in INSTALLED_APPS, so its rows cannot be read; take it out after they are imported.")
    alias = jobs_alias()
    importing = Importing(types=types, lower_first=lower_first, now=database_now(alias))
    found, unreadable = _read(rows.select_related("interval", "crontab", "solar", "clocked"))
    with transaction.atomic(using=alias):
        came = [*unreadable, *(_bring(row, importing, alias) for row in found)]
        if dry_run:
            transaction.set_rollback(True, using=alias)
    return came


def _read(rows: Any) -> tuple[list[Any], list[Brought]]:
    """Return the rows, and of those that cannot be made objects, as by a time zone that is known no more, what to say."""
    try:
        return list(rows), []
    except _UNREADABLE:
        found: list[Any] = []
        unreadable = []
        for pk, name in list(rows.values_list("pk", "name")):
            try:
                found.append(rows.get(pk=pk))
            except _UNREADABLE as error:
                why = " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
                unreadable.append(Brought(name=name, became="refused", text=f"it cannot be read: {why}"))
        return found, unreadable


def _bring(row: Any, importing: Importing, alias: str) -> Brought:
    try:
        with transaction.atomic(using=alias):
            if row.one_off or row.clocked is not None:
                return _job(row, importing, alias)
            return _schedule(row, importing, alias)
    except NotNeeded as why:
        return Brought(name=row.name, became="not needed", text=str(why))
    except CannotCarry as why:
        return Brought(name=row.name, became="refused", text=str(why))
    except ValidationError as error:
        return Brought(name=row.name, became="refused", text=said(error))
    except JobsError as error:
        return Brought(name=row.name, became="refused", text=str(error))


def _schedule(row: Any, importing: Importing, alias: str) -> Brought:
    wanted = _wanted(row, importing)
    if row.expires is not None:
        raise CannotCarry(f"it ends at {row.expires}, and a schedule here does not end; make it, and pause it then")
    held = Schedule.objects.using(alias).filter(name=row.name).first()
    if held is None:
        wanted.save(using=alias)
        return Brought(name=row.name, became="schedule", text="; ".join([_times(wanted), *_left(row, schedule=True)]))
    differing = [name for name in FIELDS if getattr(held, name) != getattr(wanted, name)]
    if differing:
        raise CannotCarry(f"there is a schedule of this name with another {', '.join(differing)}; it stays as it is")
    return Brought(name=row.name, became="there", text=_times(held))


def _job(row: Any, importing: Importing, alias: str) -> Brought:
    key = f"beat:{row.name}"
    for model in (Job, ArchivedJob):
        if (
            job_id := model._default_manager.using(alias)
            .filter(idempotency_key=key)
            .values_list("pk", flat=True)
            .first()
        ):
            return Brought(name=row.name, became="there", text=f"job {job_id}")
    if not row.enabled or row.total_run_count:
        raise NotNeeded("it has run, or is not enabled, and would run once")
    at = row.clocked.clocked_time if row.clocked else _next(_wanted(row, importing), importing.now)
    if _aware(at) <= importing.now:
        raise CannotCarry(f"its time, {at}, is over, and it was not run; enqueue it if it still should")
    job_type = importing.type_of(row.task)
    given = {"run_at": at, "idempotency_key": key, "expires": row.expires, "queue": row.queue or job_type.queue}
    if row.expire_seconds and not row.expires:
        given["expires"] = _expiry(at, row.expire_seconds)
    if (priority := importing.priority(row)) is not None:
        given["priority"] = priority
    payload = _payload(row)
    made = JobFunction(job_type).using(**given).enqueue(*payload["args"], **payload["kwargs"])
    return Brought(name=row.name, became="job", text="; ".join([f"{made.pk}, due {at}", *_left(row, schedule=False)]))


def _wanted(row: Any, importing: Importing) -> Schedule:
    """Return a row as a schedule that is not saved."""
    found = Schedule(
        name=row.name,
        type=importing.type_of(row.task).name,
        payload=_payload(row),
        queue=row.queue or "",
        priority=importing.priority(row),
        enabled=row.enabled,
    )
    if row.expires is not None and _aware(row.expires) <= importing.now:
        raise NotNeeded(f"it ended at {row.expires}")
    if row.start_time is not None and _aware(row.start_time) > importing.now:
        raise CannotCarry(f"it begins at {row.start_time}, and a schedule here begins at once; import it then")
    if row.solar is not None:
        raise CannotCarry(f"it follows the sun ({row.solar}), which schedules here do not; have a daily job ask for it")
    if row.interval is not None:
        found.every = _every(row.interval)
    elif row.crontab is not None:
        found.expression = _expression(row.crontab)
        found.timezone = str(row.crontab.timezone)
    else:
        raise CannotCarry("it has neither an interval nor a crontab")
    return found


def _every(interval: Any) -> timedelta:
    try:
        return timedelta(**{interval.period: interval.every})
    except (OverflowError, TypeError):  # too long, or of no unit
        raise CannotCarry(
            f"its interval is {interval.every} {shown(interval.period)}, and a schedule here has one of a second to ten years"
        ) from None


def _expiry(at: datetime, seconds: int) -> datetime:
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:
        raise CannotCarry(f"it would expire {seconds} s after {at}, which is no time; give it fewer") from None


def _expression(crontab: Any) -> str:
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    parts = ["*" if (text := str(getattr(crontab, name)).replace(" ", "")) == "*/1" else text for name in names]
    if parts[2] != "*" and parts[4] != "*":
        raise CannotCarry(
            f"{' '.join(parts)!r} restricts both day fields: Celery wants both to match, and here either does; "
            "leave one to the job's own code"
        )
    return " ".join(parts)


def _payload(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in (("args", list), ("kwargs", dict)):
        text = getattr(row, name)
        try:
            found[name] = json.loads(text or json.dumps(kind()))
        except (ValueError, RecursionError) as error:  # no JSON, or nested too deep
            raise CannotCarry(f"its {name}, {shown(text)}, cannot be read as JSON: {error}") from None
        if not isinstance(found[name], kind):
            raise CannotCarry(f"its {name}, {shown(text)}, should be a {kind.__name__}")
    return found


def _next(schedule: Schedule, now: datetime) -> datetime:
    schedule.clean()
    schedule.anchor = now
    slots = schedule.next_slots(now, 1)
    return slots[0] if settings.USE_TZ else timezone.make_naive(slots[0])


def _times(schedule: Schedule) -> str:
    state = "" if schedule.enabled else ", paused"
    return f"every {schedule.every}{state}" if schedule.every else f"{schedule.expression} {schedule.timezone}{state}"


def _left(row: Any, *, schedule: bool) -> Iterator[str]:
    """Return what of an imported row has no counterpart here."""
    if schedule and row.expire_seconds:
        yield f"its jobs do not expire (expire_seconds={row.expire_seconds})"
    for name in ("exchange", "routing_key", "headers"):
        if (value := getattr(row, name)) and value != "{}":
            yield f"its {name} stays behind ({shown(value)})"


def _aware(at: datetime) -> datetime:
    return timezone.make_aware(at) if timezone.is_naive(at) else at
