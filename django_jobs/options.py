"""The options of `@job` and of `using`, checked when they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django_jobs.backoff import Backoff
from django_jobs.checked import (
    UNIQUE,
    flag,
    idempotency_key,
    max_attempts,
    priority,
    queue,
    reject_unknown,
    run_at,
    tags,
    text,
    timeout,
    unique,
    until,
)
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.outcomes import seconds


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


_DEFINE: dict[str, Callable[[Any], Any]] = {
    "name": lambda value: text(value, "name"),
    "queue": queue,
    "priority": priority,
    "max_attempts": max_attempts,
    "backoff": _backoff,
    "retry_on": _exceptions,
    "fail_on": _exceptions,
    "timeout": timeout,
    **{name: partial(flag, name=name) for name in ("durable", "atomic", "other_databases")},
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
    "detached": lambda value: flag(value, "detached"),
}
