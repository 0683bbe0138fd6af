"""Bringing the schedules of the code into the table: matched by name, added or updated, never deleted."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections, transaction

from django_jobs import log
from django_jobs.models.schedule import Schedule
from django_jobs.schedules import code, definition, fields
from django_jobs.schedules import log as schedule_log
from django_jobs.schedules.code import CodeSchedule
from django_jobs.schedules.faults import said
from django_jobs.schedules.overrides import FIELDS, as_json, overridden

TRIES = 3


def sync(alias: str) -> None:
    """Add and update the schedules of the code. What cannot be used is logged, and keeps no other from being stored."""
    for found in code.schedules():
        try:
            _store(found, alias)
        except ValidationError as error:
            schedule_log.schedule_not_stored(found.name, found.place, said(error))
        except Exception as error:  # as of a row that cannot even be read
            if not connections[alias].is_usable():
                raise
            schedule_log.schedule_not_stored(found.name, found.place, str(error))


def unsaved(found: CodeSchedule) -> Schedule:
    """Return the schedule as the code says it; its values are not checked."""
    return Schedule(name=found.name, type=found.type, **found.values)


def fault(found: CodeSchedule) -> str:
    """Return what is wrong with the values that the code gives, as one text; empty when they can be used."""
    try:
        _checked(found)
    except ValidationError as error:
        return said(error)
    return ""


def _checked(found: CodeSchedule) -> Schedule:
    wanted = unsaved(found)
    # Before the fields make of a value what they take: in code a number is none as text.
    definition.normalise(wanted)
    if wrong := {**definition.faults(wanted), **fields.choices(wanted)}:
        raise ValidationError(wrong)
    wanted.clean_fields()
    return wanted


def _store(found: CodeSchedule, alias: str) -> None:
    wanted = _checked(found)
    says = as_json(wanted)
    # Read before it is held: most often nothing has changed, and somebody may hold it.
    if Schedule.objects.using(alias).filter(name=found.name).values_list("code", flat=True).first() == says:
        return
    for _ in range(TRIES):
        with transaction.atomic(using=alias):
            held = Schedule.objects.using(alias).select_for_update().filter(name=found.name).first()
            if held is not None:
                _update(held, wanted, says)
                return
        wanted.code = says
        try:
            with transaction.atomic(using=alias):
                wanted.save(using=alias)
            return
        except (IntegrityError, ValidationError):
            pass  # another scheduler was faster; what is there is updated
    log.loop_failed("Storing the schedules of the code")


def _update(held: Schedule, wanted: Schedule, says: dict[str, Any]) -> None:
    if held.code == says:
        return
    kept = overridden(held) if isinstance(held.code, dict) else FIELDS
    for name in FIELDS:
        if name not in kept:
            setattr(held, name, getattr(wanted, name))
    held.code = says
    held.save(using=held._state.db)
