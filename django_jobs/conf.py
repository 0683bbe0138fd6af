"""The one place that reads the setting DJANGO_JOBS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from django_jobs.backoff import Backoff
from django_jobs.exceptions import ConfigurationError, InvalidJob, shown
from django_jobs.outcomes import LONGEST_DELAY

MIB = 1024 * 1024
LARGEST_WHOLE = 2**31 - 1
MOST_ATTEMPTS = 1_000_000
# Of processes, and of threads in each: fewer than a worker process has seats for what it runs.
MOST_WORKERS = 1000
# What no Python process stays under: a smaller number was meant as something else than bytes.
LEAST_MEMORY = 16 * MIB
LARGEST_MEMORY = 2**60


class BadSetting(ConfigurationError):
    """One value in DJANGO_JOBS cannot be used."""


def _duration(value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= LONGEST_DELAY:
        raise ValueError("give seconds from 0.001 to ten years, or a timedelta")
    return float(value)


def _duration_or_none(value: Any) -> float:
    """Return seconds, of which 0 means not at all."""
    if (value == 0 and not isinstance(value, bool)) or value == timedelta(0):
        return 0.0
    try:
        return _duration(value)
    except ValueError as error:
        raise ValueError(f"{error}; 0 for not at all") from None


def _whole(value: Any, most: int = LARGEST_WHOLE) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"give a whole number from 1 to {most:,}")
    return value


def worker_count(value: Any) -> int:
    """Return a usable number of processes or threads, or raise ValueError saying what would be one."""
    return _whole(value, MOST_WORKERS)


def _attempts(value: Any) -> int:
    return _whole(value, MOST_ATTEMPTS)


def _losses(value: Any) -> int:
    # One would end what was only beside a killer.
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= LARGEST_WHOLE:
        raise ValueError(f"give a whole number from 2 to {LARGEST_WHOLE:,}")
    return value


def _whole_or_none(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _memory(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not LEAST_MEMORY <= value <= LARGEST_MEMORY:
        raise ValueError(f"give whole bytes from {LEAST_MEMORY:,} (16 MiB) to {LARGEST_MEMORY:,}, or None for no limit")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.01 <= value <= 1:
        raise ValueError("give a share from 0.01 to 1, as 0.25 for every fourth job")
    return float(value)


def _queues(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError("give a list of queue names, or None for all")
    return tuple(queue_name(item) for item in value)


def _backoff(value: Any) -> Backoff:
    if isinstance(value, Backoff):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 3:
        raise ValueError("give a Backoff, or its three numbers: base, factor, cap")
    return Backoff(base=value[0], factor=value[1], cap=value[2])


def queue_name(value: Any) -> str:
    """Return a usable queue name, or raise ValueError saying what is wrong with it."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"the queue name {shown(value)} is not a non-empty text")
    if len(value) > 100:
        raise ValueError(f"the queue name {value[:20]!r}... has {len(value)} characters; at most 100 are allowed")
    if any(character in ", " or not character.isprintable() for character in value):
        raise ValueError(f"the queue name {value!r} has a comma, a space or a control character; leave it out")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("give True or False")
    return value


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(x, str) and x for x in value):
        raise ValueError("give a list of parts of names, as ['password', 'token'], or an empty one")
    return tuple(word.lower() for word in value)


def _alias(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value in settings.DATABASES):
        return value
    raise ValueError(f"give an alias of DATABASES ({', '.join(map(repr, sorted(settings.DATABASES)))}), or None")


def _limit_or_none(value: Any) -> float | None:
    return None if value is None else _duration(value)


def _url(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith(("https://", "http://")) or not value.isprintable():
        raise ValueError("give an address that begins with https:// or http://, or None")
    return value


def _deployment(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= 100 or not value.isprintable() or value != value.strip():
        raise ValueError("give a name, as 'production', of 100 characters at most, or None")
    return value


def _path_or_none(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or "." not in value or not all(part.isidentifier() for part in value.split(".")):
        raise ValueError("give the dotted path of a function, as 'shop.tenants.around', or None")
    return value


def _dsn(value: Any) -> str | None:
    if value is None:
        return None
    try:
        if isinstance(value, str) and value.strip() and _parsed(value):
            return value
    except ValueError:
        pass
    raise ValueError("give a connection string, as in postgresql://user@host:5432/name, or None for the jobs' database")


def _parsed(dsn: str) -> dict[str, Any]:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return {"dsn": dsn}  # nothing will ever connect with it
    try:
        return conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError) as error:
        raise ValueError from error


def _setting(default: Any, convert: Callable[[Any], Any], secret: bool = False) -> Any:
    return field(default=default, metadata={"convert": convert, "secret": secret}, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """The settings of django_jobs; every field is a key of DJANGO_JOBS in lower case. Durations are seconds."""

    queues: tuple[str, ...] | None = _setting(None, _queues)
    processes: int = _setting(1, worker_count)
    threads: int = _setting(4, worker_count)
    lease: float = _setting(30.0, _duration)
    heartbeat: float = _setting(10.0, _duration)
    poll_interval: float = _setting(1.0, _duration)
    listen: bool = _setting(True, _flag)
    listen_dsn: str | None = _setting(None, _dsn, secret=True)
    shutdown_grace: float = _setting(25.0, _duration)
    drain: float = _setting(60.0, _duration)
    max_jobs_per_process: int | None = _setting(None, _whole_or_none)
    max_process_memory: int | None = _setting(None, _memory)
    oldest_share: float = _setting(0.25, _share)
    solo_processes: int = _setting(1, worker_count)
    solo_memory: int | None = _setting(None, _memory)
    atomic_idle: float = _setting(60.0, _duration)
    missed_grace: float = _setting(60.0, _duration)
    enqueue_timeout: float = _setting(5.0, _duration)
    deployment: str | None = _setting(None, _deployment)
    around: str | None = _setting(None, _path_or_none)
    backoff: Backoff = field(default_factory=Backoff, metadata={"convert": _backoff})
    max_attempts: int = _setting(8, _attempts)
    default_timeout: float = _setting(900.0, _duration)
    max_uncounted: int = _setting(10, _losses)
    keep_done: float = _setting(86_400.0, _duration)
    archive_for: float = _setting(604_800.0, _duration_or_none)
    dead_retention: float = _setting(2_592_000.0, _duration)
    idempotency_window: float = _setting(86_400.0, _duration)
    effect_window: float = _setting(2_592_000.0, _duration)
    stats_for: float = _setting(2_592_000.0, _duration)
    dead_letter_alert: int | None = _setting(None, _whole_or_none)
    queue_age_alert: float | None = _setting(None, _limit_or_none)
    alert_webhook: str | None = _setting(None, _url, secret=True)
    redact: tuple[str, ...] = _setting(("password", "token", "secret"), _words)
    database: str | None = _setting(None, _alias)
    max_payload_bytes: int = _setting(MIB, _whole)
    max_result_bytes: int = _setting(MIB, _whole)


def problems(given: object) -> list[str]:
    """Return what is wrong with a value of DJANGO_JOBS, one sentence a fault; empty when it can be used."""
    return _read(given)[1]


@lru_cache(maxsize=1)
def conf() -> Conf:
    """Return the settings in force; raise BadSetting when DJANGO_JOBS cannot be used."""
    found, faults = _read(getattr(settings, "DJANGO_JOBS", {}))
    if faults:
        raise BadSetting(" ".join(faults))
    return found


def _read(given: object) -> tuple[Conf, list[str]]:
    if not isinstance(given, Mapping):
        return Conf(), [f"DJANGO_JOBS is {shown(given)}; it must be a dict of settings."]
    known = {item.name.upper(): item for item in fields(Conf)}
    values: dict[str, Any] = {}
    faults: list[str] = []
    for key, value in given.items():
        if key not in known:
            faults.append(f"DJANGO_JOBS has an unknown key {shown(key)}; known are {', '.join(sorted(known))}.")
            continue
        try:
            values[known[key].name] = known[key].metadata["convert"](value)
        except (ValueError, InvalidJob) as error:
            said = "cannot be used" if known[key].metadata.get("secret") else f"is {shown(value)}"
            faults.append(f"DJANGO_JOBS[{key!r}] {said}; {str(error).rstrip('.')}.")
    found = Conf(**values)
    return found, faults or _impossible_pairs(found)


def _impossible_pairs(found: Conf) -> list[str]:
    faults = []
    if found.heartbeat * 3 > found.lease * 1.0001:
        faults.append(
            f"DJANGO_JOBS has HEARTBEAT {found.heartbeat:g} s and LEASE {found.lease:g} s; "
            "HEARTBEAT may be at most a third of LEASE, so that a lease survives two lost heartbeats."
        )
    if found.idempotency_window < found.keep_done:
        faults.append(
            f"DJANGO_JOBS has IDEMPOTENCY_WINDOW {found.idempotency_window:g} s and KEEP_DONE {found.keep_done:g} s; "
            "IDEMPOTENCY_WINDOW must be at least KEEP_DONE: a key holds as long as its job is kept."
        )
    for name, kept in (("KEEP_DONE", found.keep_done), ("DEAD_RETENTION", found.dead_retention)):
        if kept < found.lease:
            faults.append(
                f"DJANGO_JOBS has {name} {kept:g} s and LEASE {found.lease:g} s; {name} must be at least LEASE: a worker whose "
                "last statement was not answered asks the row for as long."
            )
    return faults


@receiver(setting_changed)
def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "DJANGO_JOBS":
        conf.cache_clear()
