"""Pausing and resuming a queue or a type."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from django.conf import settings
from django.db import transaction

from django_jobs import checked, log
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.payload import storable
from django_jobs.texts import text as _

if TYPE_CHECKING:
    from django_jobs.models import Pause

TEXT_LIMIT = 1000


class Named(Protocol):
    """A job function, for which its type's name stands."""

    @property
    def name(self) -> str: ...


def pause(
    *,
    queue: str | None = None,
    type: str | Named | None = None,  # noqa: A002 (the word for it)
    until: datetime | float | timedelta | None = None,
    why: str = "",
    by: str = "",
) -> Pause:
    """Have no job of a queue, or of a type, be started until `resume`, or until a time; what runs goes on.

    `until` is an aware datetime, or a duration from now by the database's clock; None means until resumed. Pausing what
    is paused replaces the time, the reason and the name of who did it. Takes effect for claims that begin after the
    caller's transaction has committed: what a worker has claimed by then is run. Raises InvalidJob or InvalidJobType when
    neither or both are given, or a value cannot be used.
    """
    from django.db.models.functions import Now

    from django_jobs.engines import (  # needs models, and this module is imported while INSTALLED_APPS loads
        engine,
        jobs_alias,
    )
    from django_jobs.models import Pause

    kind, name = _what(queue, type)
    end = None if until is None else checked.until(until, "until")
    if isinstance(end, datetime) and not settings.USE_TZ and engine().name == "sqlite":
        end = end.replace(tzinfo=None)  # there such a project has no aware times, and all are UTC
    row = Pause(
        kind=kind,
        name=name,
        until=Now() + timedelta(seconds=end) if isinstance(end, float) else end,
        why=_text(why, "why", TEXT_LIMIT),
        by=_text(by, "by", 255),
    )
    rows = Pause.objects.using(jobs_alias())
    fields = ["until", "why", "by", "created_at"]
    with transaction.atomic(using=rows.db):
        rows.bulk_create([row], update_conflicts=True, unique_fields=["kind", "name"], update_fields=fields)
        found: Pause | None = rows.in_force().filter(kind=kind, name=name).first()
        if found is None:
            said = _("until is %s, which is past by the database's clock; give a later time.", shown(until))
            raise InvalidJob(said)
        log.when_committed(rows.db, log.paused, kind, name, found.until, found.by, found.why)
    return found


def resume(*, queue: str | None = None, type: str | Named | None = None) -> bool:  # noqa: A002
    """Have the jobs of a paused queue or type be started again; return whether it was paused."""
    from django_jobs import notify
    from django_jobs.engines import engine, jobs_alias
    from django_jobs.models import Pause
    from django_jobs.models.clock import Clock

    kind, name = _what(queue, type)
    rows = Pause.objects.using(jobs_alias()).filter(kind=kind, name=name)
    with transaction.atomic(using=rows.db):
        deleted, _models = rows.in_force().delete()
        # One that had ended by itself, but none that somebody makes at this moment.
        rows.filter(until__lte=Clock()).delete()
        if deleted:
            log.when_committed(rows.db, log.resumed, kind, name)
            notify.ready(engine(rows.db), queue)  # the jobs of a type may be in any
    return bool(deleted)


def _what(queue: object, type_: object) -> tuple[str, str]:
    if (queue is None) == (type_ is None):
        raise InvalidJob(f"queue is {shown(queue)} and type is {shown(type_)}; give one of them.")
    if queue is not None:
        return "queue", checked.queue(queue)
    return "type", checked.text(getattr(type_, "name", type_), "type")


def _text(value: object, name: str, limit: int) -> str:
    if not isinstance(value, str):
        raise InvalidJobType(f"{name} is {shown(value)}; give text.")
    return storable(value)[:limit]
