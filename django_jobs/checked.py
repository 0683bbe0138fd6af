"""Checking one value that was given to us: each is returned as it is used, or refused by an error that names it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_jobs.conf import MOST_ATTEMPTS, queue_name
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.outcomes import seconds
from django_jobs.payload import UNSTORABLE
from django_jobs.texts import of
from django_jobs.texts import text as _

NAME_LIMIT = 255
TAGS_LIMIT = 20
UNIQUE = ("window", "unfinished", "waiting")
RESERVED_PREFIXES = ("schedule:", "job:")


def whole(value: object, name: str, low: int, high: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    kind = InvalidJob if isinstance(value, int) and not isinstance(value, bool) else InvalidJobType
    words = {"name": name, "value": shown(value), "low": low, "high": high}
    raise kind(_("%(name)s is %(value)s; give a whole number from %(low)d to %(high)d.", **words))


def priority(value: object) -> int:
    return whole(value, "priority", -100, 100)


def max_attempts(value: object) -> int:
    return whole(value, "max_attempts", 1, MOST_ATTEMPTS)


def timeout(value: object) -> float:
    found = seconds(value, "timeout")
    if found == 0:
        raise InvalidJob(f"timeout is {shown(value)}; give seconds over 0, or None for no deadline.")
    return found


def queue(value: object) -> str:
    try:
        return queue_name(value)
    except ValueError as error:
        raise InvalidJob(_("queue: %s.", of(error))) from None


def text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidJobType(_("%(name)s is %(value)s; give text.", name=name, value=shown(value)))
    if not value or len(value) > NAME_LIMIT:
        words = {"name": name, "value": shown(value), "number": len(value), "most": NAME_LIMIT}
        raise InvalidJob(_("%(name)s is %(value)s of %(number)d characters; give 1 to %(most)d.", **words))
    if UNSTORABLE.search(value):
        said = _(
            "%(name)s is %(value)s, with a character that cannot be stored; take it out.", name=name, value=shown(value)
        )
        raise InvalidJob(said)
    return value


def idempotency_key(value: object) -> str:
    key = text(value, "idempotency_key")
    for prefix in RESERVED_PREFIXES:
        if key.startswith(prefix):
            raise InvalidJob(
                f"idempotency_key is {key!r}; keys beginning with {prefix!r} are reserved, choose another."
            )
    return key


def run_at(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidJobType(f"run_at is {shown(value)}; give a datetime.")
    return moment(value, "run_at")


def moment(value: datetime, name: str) -> datetime:
    """Return a time in UTC, or raise naming the value and `name`."""
    if timezone.is_naive(value):
        if settings.USE_TZ:
            words = {"name": name, "value": shown(value)}
            raise InvalidJob(
                _("%(name)s is %(value)s without a time zone; give an aware datetime, as timezone.now() does.", **words)
            )
        value = timezone.make_aware(value)
    try:
        return value.astimezone(timezone.get_fixed_timezone(0))
    except OverflowError:
        words = {"name": name, "value": shown(value)}
        raise InvalidJob(
            _("%(name)s is %(value)s, beyond the calendar in UTC; give an earlier time.", **words)
        ) from None


def until(value: object, name: str) -> datetime | float:
    """Return an end given as a datetime in UTC, or one given as a duration in seconds from now."""
    if isinstance(value, datetime):
        return moment(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise InvalidJobType(f"{name} is {shown(value)}; give a datetime, seconds as a number, or a timedelta.")
    found = seconds(value, name)
    if found == 0:
        raise InvalidJob(f"{name} is {shown(value)}; give seconds over 0, a timedelta, or a datetime.")
    return found


def unique(value: object) -> str:
    if value not in UNIQUE:
        raise InvalidJob(f"unique is {shown(value)}; give one of {', '.join(map(repr, UNIQUE))}.")
    return str(value)


def tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidJobType(f"tags is {shown(value)}; give a list of texts.")
    found = tuple(dict.fromkeys(text(item, "a tag") for item in value))
    if len(found) > TAGS_LIMIT:
        raise InvalidJob(f"tags has {len(found)} texts; at most {TAGS_LIMIT} are allowed.")
    return found


def reject_unknown(given: dict[str, Any], known: Iterable[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidJobType(f"{where} has no option {name!r}; it has {', '.join(sorted(known))}.")


def flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidJobType(f"{name} is {shown(value)}; give True or False.")
    return value
