"""The options of `@job` and of `using`, checked when they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_jobs.backoff import Backoff
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    name: str | None = None
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    backoff: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    fail_on: tuple[type[BaseException], ...] = ()
    timeout: float | None = None
    default_timeout: bool = True
    durable: bool = False
    atomic: bool = False
    other_databases: bool = False
    tags: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: dict[str, Any]) -> Define:
        known = [*(name for name in cls.__dataclass_fields__ if name != "default_timeout"), "takes_context"]
        reject_unknown(given, known, "@job")
        found = dict(given)
        for name, convert in _DEFINE.items():
            if found.get(name) is not None:
                found[name] = convert(found[name])
        if "timeout" in found:
            found["default_timeout"] = False
        for name in ("queue", "priority", "fail_on", "durable", "atomic", "other_databases", "tags"):
            if name in found and found[name] is None:
                raise InvalidJobType(f"@job({name}=None): leave the option out, or give it a value.")
        return cls(**found)


def _backoff(value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise InvalidJobType(f"backoff is {shown(value)}; give Backoff(base=..., factor=..., cap=...).")
    return value


def _exceptions(value: Any) -> tuple[type[BaseException], ...]:
    found = (value,) if isinstance(value, type) or not isinstance(value, Iterable) else tuple(value)
    for item in found:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise InvalidJobType(f"retry_on and fail_on take exception classes, and {shown(item)} is none.")
    return found


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidJobType(f"{name} is {shown(value)}; give True or False.")
    return value


_DEFINE: dict[str, Callable[[Any], Any]] = {
    "name": lambda value: text(value, "name"),
    "queue": queue,
    "priority": priority,
    "max_attempts": max_attempts,
    "backoff": _backoff,
    "retry_on": _exceptions,
    "fail_on": _exceptions,
    "timeout": timeout,
    **{name: partial(_flag, name=name) for name in ("durable", "atomic", "other_databases")},
    "tags": tags,
}


class _Unset:
    def __repr__(self) -> str:
        return "unset"

    def __reduce__(self) -> str:
        return "UNSET"  # as the one that there is


UNSET = _Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay: float | None = None
    expires: datetime | float | None = None
    idempotency_key: str | None = None
    unique: str | None = None
    max_attempts: int | None = None
    timeout: float | _Unset | None = UNSET
    detached: bool | None = None

    def changed(self, given: dict[str, Any]) -> Enqueue:
        reject_unknown(given, self.__dataclass_fields__, "using()")
        found = {name: None if value is None else _ENQUEUE[name](value) for name, value in given.items()}
        changed = Enqueue(**found) if self == _NOTHING_GIVEN else replace(self, **found)
        if changed.run_at is not None and changed.delay is not None:
            raise InvalidJob(
                f"using() has both run_at ({_said(changed.run_at)}) and delay ({_said(changed.delay)}); give one."
            )
        return changed

    def over(self, other: Enqueue) -> Enqueue:
        """Return these options and, where one was not given, the other's."""
        if other == _NOTHING_GIVEN:
            return self
        given = {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not None}
        given["timeout"] = other.timeout if self.timeout is UNSET else self.timeout
        if "run_at" in given or "delay" in given:
            other = replace(other, run_at=None, delay=None)
        return replace(other, **given)

    def apart(self) -> tuple[Any, ...]:
        """Return what tells these options from others that make another row of the same arguments and key."""
        # A job with a key that is freed some day keeps it elsewhere in its row as well.
        key = self.idempotency_key if self.unique in UNIQUE[1:] else self.idempotency_key is None
        return (
            key,
            self.queue,
            self.priority,
            self.run_at,
            self.delay,
            self.expires,
            self.unique,
            self.max_attempts,
            self.timeout,
        )

    def check(self) -> None:
        """Raise InvalidJob for options that make no sense together; each by itself was checked when it was given."""
        if self.unique is not None and self.idempotency_key is None:
            raise InvalidJob(
                f"using(unique={self.unique!r}) says how long an idempotency key holds, and there is none; "
                "give idempotency_key as well."
            )
        # Whether a time is over is for the database's clock to say: such a job is stored, and cancelled as expired.
        if self._is_due_too_late():
            due = f"run_at ({_said(self.run_at)})" if self.run_at else f"delay ({_said(self.delay)})"
            raise InvalidJob(
                f"using() has {due} not before expires ({_said(self.expires)}): the job could never start. "
                "Give a later expires, or none."
            )

    def _is_due_too_late(self) -> bool:
        if isinstance(self.expires, datetime):
            return self.run_at is not None and self.run_at >= self.expires
        return self.expires is not None and self.delay is not None and self.delay >= self.expires


def _said(value: datetime | float | None) -> str:
    return value.isoformat() if isinstance(value, datetime) else f"{value:g} s"


_NOTHING_GIVEN = Enqueue()


def _delay(value: float | timedelta) -> float:
    return seconds(value, "delay")


_ENQUEUE: dict[str, Any] = {
    "queue": queue,
    "priority": priority,
    "run_at": run_at,
    "delay": _delay,
    "expires": lambda value: until(value, "expires"),
    "idempotency_key": idempotency_key,
    "unique": unique,
    "max_attempts": max_attempts,
    "timeout": timeout,
    "detached": lambda value: _flag(value, "detached"),
}
