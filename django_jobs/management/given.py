"""What was given on the command line, as values; what cannot be used ends the command with one line and exit code 2."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.checks.registry import registry
from django.core.management.base import BaseCommand, CommandError, SystemCheckError
from django.utils import timezone

from django_jobs import checked, durations, log, report_schedules
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, shown
from django_jobs.models.clock import database_now
from django_jobs.models.schedule import Schedule
from django_jobs.outcomes import LONGEST_DELAY
from django_jobs.queue.choose import Choice
from django_jobs.queue.sought import STATES, Sought, steps
from django_jobs.schedules.status import START
from django_jobs.zones import BadZone, zone

BIGGEST_ID = 2**63 - 1
PRIORITY_LIMIT = 100
# As a shell has it of who is ended by Ctrl-C.
INTERRUPTED = 130
# Between two looks of somebody who watches, in seconds.
FASTEST, SLOWEST = 0.2, 3600.0


def refuse(said: str) -> NoReturn:
    raise CommandError(said, returncode=2)


def agreed(question: str, say: Callable[[str], object]) -> bool:
    """Ask somebody at a terminal; who ends the input, or the command, has it end with exit code 1, or 130."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt) as error:
        say("")  # they are still in the line of the question
        raise CommandError("Nothing was done.", returncode=1 if isinstance(error, EOFError) else INTERRUPTED) from None


class Checked(BaseCommand):
    """A command that ends with exit code 2 when the settings cannot be used."""

    def check(self, *args: Any, **kwargs: Any) -> None:
        try:
            with _without_those_of_commands():
                super().check(*args, **kwargs)
        except SystemCheckError as error:
            refuse(str(error))


@contextmanager
def _without_those_of_commands() -> Iterator[None]:
    """Leave out the checks of `migrate` and `makemigrations`: they import these, more than a MiB that worker processes keep."""
    left_out = {check for check in registry.get_checks() if set(check.tags) == {"commands"}}
    registry.registered_checks -= left_out
    try:
        yield
    finally:
        registry.registered_checks |= left_out


def show_log(verbosity: int) -> None:
    """Show our log lines on stderr unless the project says where they go."""
    if log.logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log.logger.addHandler(handler)
    log.logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))


class Once(argparse.Action):
    """An option that is refused when it is given twice: of the two only the last would count."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice ({getattr(namespace, self.dest)}, {values}); give it once.")
        setattr(namespace, self.dest, values)


def whole(value: str, what: str, high: int) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:20]) <= high):
        refuse(f"{value[:80]!r} is not {what}: give a whole number from 1 to {high}.")
    return int(value)


def job_id(value: str) -> int:
    return whole(value, "the id of a job", BIGGEST_ID)


def limit(value: str | None) -> int | None:
    return None if value is None else whole(value, "a limit", BIGGEST_ID)


def duration(value: str | None, name: str) -> float | None:
    if value is None:
        return None
    seconds = durations.seconds(value) or 0.0
    if not 0 < seconds <= LONGEST_DELAY:
        refuse(f"{name} is {value[:80]!r}; give {durations.WORDS} (ten years at most).")
    return seconds


def number(value: str, name: str, high: int) -> int:
    if not (value.isascii() and value.isdecimal() and int(value[:20]) <= high):
        refuse(f"{name} is {value[:80]!r}; give a whole number from 0 to {high:,}.")
    return int(value)


def queues(value: str | None) -> list[str] | None:
    return None if value is None else [str(queue(name)) for name in value.split(",")]


def pace(value: str) -> float:
    seconds = durations.seconds(value) or 0.0
    if not FASTEST <= seconds <= SLOWEST:
        refuse(f"--watch is {value[:80]!r}; give {durations.WORDS}, from {FASTEST:g} s to an hour.")
    return seconds


def until(options_: dict[str, Any]) -> datetime | timedelta | None:
    """Return the end that --until or --for gives; a time without a zone is in the project's time zone."""
    text, seconds = options_["until"], duration(options_["for"], "--for")
    if text is None:
        return None if seconds is None else timedelta(seconds=seconds)
    if seconds is not None:
        refuse(f"--until is {text!r} and --for is {options_['for']!r}; give one of them.")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        refuse(f"--until is {text[:80]!r}; give a time as 2030-12-31T18:00 or 2030-12-31T18:00+01:00.")
    return timezone.make_aware(found) if settings.USE_TZ and timezone.is_naive(found) else found


def state(value: str | None, allowed: Sequence[str], name: str = "--status") -> str | None:
    if value is not None and value not in allowed:
        refuse(f"{name} is {value[:80]!r}; give one of {', '.join(allowed)}.")
    return value


def time_zone(value: str | None) -> ZoneInfo | None:
    if value is None:
        return None
    try:
        return zone(value)
    except BadZone as error:
        refuse(f"--tz: {error}")


def schedule(name: str) -> Schedule:
    """Return the schedule of this name."""
    (known,) = schedules([name])
    return known


def schedules(names: Sequence[str]) -> list[Schedule]:
    """Return the schedules of these names."""
    asked = [_checked(lambda text: checked.text(text, "the name of a schedule"), name) for name in names]
    found = report_schedules.named(asked)
    for name in asked:
        if name not in found and name in report_schedules.only_in_code():
            refuse(f"The schedule {shown(name)} is in the code, and is stored when a scheduler starts: {START}.")
        if name not in found:
            refuse(f"There is no schedule {shown(name)}; `jobs schedules` lists those that there are.")
    return list(found.values())


def queue(value: str | None) -> str | None:
    return None if value is None else _checked(checked.queue, value)


def type_name(value: str | None) -> str | None:
    return None if value is None else _checked(lambda text: checked.text(text, "--type"), value)


def sought(given: dict[str, Any]) -> Sought:
    """Return what the options of `jobs list` narrow to; of the status, what a span of time is about."""
    found: dict[str, Any] = {
        name: _text(given[name], f"--{name}") for name in ("tag", "error", "schedule") if given[name] is not None
    }
    found |= {name: _moment(given[name], f"--{name}") for name in ("since", "until") if given[name] is not None}
    argument = None if given["argument"] is None else _argument(given["argument"])
    return Sought(
        state=given["status"] if given["status"] in STATES else "",
        queue=queue(given["queue"]) or "",
        type=type_name(given["type"]) or "",
        priority=_priority(given["priority"]),
        argument=argument,
        **found,
    )


def _text(value: str, name: str) -> str:
    return _checked(lambda text: checked.text(text, name), value)


def _priority(value: str | None) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,3}", value) or abs(int(value)) > PRIORITY_LIMIT:
        refuse(f"--priority is {value[:80]!r}; give a whole number from -{PRIORITY_LIMIT} to {PRIORITY_LIMIT}.")
    return int(value)


def _argument(value: str) -> tuple[str, str]:
    path, equals, wanted = _text(value, "--argument").partition("=")
    if not equals:
        refuse(
            f"--argument is {value[:80]!r}; give args.0=5 for one by its place, or kwargs.order_id=42 for one by its name."
        )
    try:
        steps(path)
    except InvalidJob as error:
        refuse(f"--argument: {error}")
    return path, wanted


def _moment(value: str, name: str) -> datetime:
    """Return a time, or that which is so long ago by the database's clock; one without a zone is in the project's time zone."""
    if (seconds := durations.seconds(value)) is not None:
        return database_now(jobs_alias()) - timedelta(seconds=min(seconds, LONGEST_DELAY))
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = datetime.min
    if not 1 < found.year < 9999:  # the others overflow in some time zone
        refuse(f"{name} is {value[:80]!r}; give a time as 2030-12-31T18:00, or how long ago it is, as 30m, 12h or 7d.")
    return found if timezone.is_aware(found) else timezone.make_aware(found, timezone.get_default_timezone())


def _checked(check: Any, value: str) -> str:
    try:
        return str(check(value))
    except InvalidJob as error:
        refuse(str(error))


def choice(given: dict[str, Any], allowed: Sequence[str], default: Sequence[str]) -> Choice:
    """Return which jobs are meant: by ids, or by what they are; never all there are because nothing was said."""
    status = state(given["status"], allowed)
    ids = tuple(job_id(value) for value in given["ids"])
    older_than = duration(given.get("older_than"), "--older-than")
    narrowing = [given["queue"], given["type"], older_than]
    if ids and any(value is not None for value in [*narrowing, given["limit"]]):
        refuse(
            f"Give ids ({' '.join(given['ids'])[:80]}), or options that choose by queue, type, age or number, not both."
        )
    if not ids and status is None and all(value is None for value in narrowing):
        refuse("Say which jobs: their ids, or at least one of --status, --queue, --type.")
    return Choice(
        states=tuple(default) if status is None else (status,),
        ids=ids or None,
        queue=queue(given["queue"]),
        type=type_name(given["type"]),
        older_than=older_than,
        limit=limit(given["limit"]),
    )
