"""What the address of a list asks for, as a value, and the address of what a value asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import durations, redact, registry
from django_jobs.admin.addresses import address
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, shown
from django_jobs.models import Job
from django_jobs.models.clock import database_now
from django_jobs.queue.sought import ENDED, STATES, Sought, keyed, numbered, steps

# Every name that an address may have, beside `at` for a place in the list.
NAMES = (
    *("state", "queue", "type", "priority", "tag", "worker", "schedule", "parked", "key", "error", "line", "argument"),
    *("since", "until", "span", "q"),
)
STATE_LABELS = {
    "due": gettext_lazy("due"),
    "later": gettext_lazy("scheduled for later"),
    "retries": gettext_lazy("retries"),
    "parked": gettext_lazy("parked (paused, type unknown, suspect)"),
    "running": gettext_lazy("running"),
    "done": gettext_lazy("done"),
    "dead-letters": gettext_lazy("dead letters (dead or failed)"),
    "dead": gettext_lazy("dead"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
}
SPANS = {
    "hour": gettext_lazy("last hour"),
    "today": gettext_lazy("today"),
    "day": gettext_lazy("last 24 h"),
    "week": gettext_lazy("last 7 days"),
}
_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_TEXTS = ("queue", "type", "tag", "worker", "schedule", "key", "error", "line")
_WAY = re.compile(r"(?:args|kwargs)(?:[.\[][^=\s]*)?=")
# In an address, a `+` that was not escaped is read as a space.
_LOST_PLUS = re.compile(r":\d\d(?:\.\d+)? \d\d:?\d\d$")
LONGEST = 1000
LONGEST_AGO = 10 * 365 * 86400
PRIORITY_LIMIT = 100
MOST_PLACES = 100


def sought_of(query: Mapping[str, str], *, archived: bool = False, now: datetime | None = None) -> Sought:
    """Return which jobs an address asks for; `archived`: of those in the archive. `now`: by the database's clock, if known.

    A search (`q`) is told by its form: `tag:` and `key:`, the way to an argument, a number as an id or a key. Any other is a
    key if a job has one that begins so, else a part of an error. Raises InvalidJob, in the words of the page, where a value
    is none of its kind.
    """
    given = {name: text.strip() for name in NAMES if (text := query.get(name) or "").strip()}
    for name, text in given.items():
        _check_text(name, text)
    found: dict[str, Any] = {name: given[name] for name in _TEXTS if name in given}
    found |= _searched(given.get("q", ""), archived)
    found |= {"state": _state(given, archived)}
    if "parked" in given:
        found["parked"] = _one_of("parked", given["parked"], Job.Parked.values)
    if "priority" in given:
        found["priority"] = _priority(given["priority"])
    if "argument" in given:
        found["argument"] = _argument(given["argument"])
    if "argument" in found:
        _check_place(found["argument"][0], found.get("type", ""))
    return Sought(**(found | _times(given, now)))


def query_of(sought: Sought) -> dict[str, str]:
    """Return the address, as names and values, from which `sought_of` makes the same again."""
    given = {name: value for name, value in asdict(sought).items() if value not in ("", None)}
    return {name: _text(value) for name, value in given.items()}


def list_address(sought: Sought) -> str:
    """Return the list of the jobs that are asked for."""
    return address("django_jobs_job_changelist", query=query_of(sought))


def bulk_address(act: str, sought: Sought) -> str:
    """Return the page on which an act upon all jobs that are asked for is counted and confirmed."""
    return address("django_jobs_bulkact_add", query={"act": act, **query_of(sought)})


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "=".join(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _check_text(name: str, text: str) -> None:
    if "\x00" in text:
        raise InvalidJob(_("%(name)s has a NUL character, which no job has; leave it out.") % {"name": name})
    if len(text) > LONGEST:
        words = {"name": name, "number": len(text), "most": LONGEST}
        raise InvalidJob(_("%(name)s has %(number)d characters; give at most %(most)d.") % words)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidJob(_("%(name)s has a character that no text can hold; leave it out.") % {"name": name}) from None


def _state(given: Mapping[str, str], archived: bool) -> str:
    state = given.get("state", "")
    if state:
        _one_of("state", state, ENDED if archived else STATES)
    for name, needed in (("worker", "running"), ("parked", "parked")):
        if name not in given:
            continue
        if archived or state not in ("", needed):
            words = {"name": name, "value": shown(given[name]), "state": needed}
            raise InvalidJob(
                _("%(name)s is %(value)s: only jobs that are %(state)s have one. Leave it or the state out.") % words
            )
        state = needed
    return state


def _one_of(name: str, value: str, allowed: Any) -> str:
    if value not in allowed:
        words = {"name": name, "value": shown(value), "allowed": ", ".join(allowed)}
        raise InvalidJob(_("%(name)s is %(value)s; give one of %(allowed)s.") % words)
    return value


def _priority(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,3}", text) or abs(int(text)) > PRIORITY_LIMIT:
        words = {"value": shown(text), "most": PRIORITY_LIMIT}
        raise InvalidJob(_("priority is %(value)s; give a whole number from -%(most)d to %(most)d.") % words)
    return int(text)


def _argument(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    try:
        steps(path.strip())
    except InvalidJob:
        equals = ""
    if not equals:
        raise InvalidJob(
            _(
                "argument is %(value)s; give args.0=5 for the first one by its place, or kwargs.order_id=42 for one by its name."
            )
            % {"value": shown(text)}
        )
    if any(redact.hides(step) for step in steps(path.strip())):
        raise InvalidJob(
            _("argument is %(value)s; what the setting REDACT hides is not looked for.") % {"value": shown(path)}
        )
    return path.strip(), value.strip()


def _check_place(path: str, job_type: str) -> None:
    """Refuse an argument by its place where that is one which REDACT hides: of the type or, without one, of any."""
    root, place, *_others = steps(path)
    types = [job_type] if job_type else registry.names()
    if root == "args" and any(redact.hides(name) for known in types for name in _names_at(known, place)):
        words = {"value": shown(path)}
        if job_type:
            raise InvalidJob(_("argument is %(value)s; what the setting REDACT hides is not looked for.") % words)
        raise InvalidJob(
            _("argument is %(value)s, which the setting REDACT hides in jobs of some types; choose a type as well.")
            % words
        )


def _names_at(job_type: str, place: str) -> list[str]:
    """Return the name of the parameter at a place, or of all if it is not a plain number: from the end, say."""
    if place.isascii() and place.isdigit():
        return redact.names(job_type, min(int(place), MOST_PLACES) + 1)[-1:]
    return redact.names(job_type, MOST_PLACES)


def _searched(term: str, archived: bool) -> dict[str, Any]:
    if not term:
        return {}
    if term.startswith("tag:") and term[4:].strip():
        return {"tag": term[4:].strip()}
    if term.startswith("key:") and term[4:].strip():
        return {"key": term[4:].strip()}
    if _WAY.match(term):
        return {"argument": _argument(term)}
    return {"key" if numbered(term) or (not archived and _is_key(term)) else "error": term}


def _is_key(term: str) -> bool:
    """Tell whether a job has a key that begins so. Of archived ones there is no index."""
    return bool(keyed(Job.objects.using(jobs_alias()), term).values_list("pk", flat=True)[:1])


def _times(given: Mapping[str, str], now: datetime | None) -> dict[str, datetime]:
    if not given.keys() & {"since", "until", "span"}:
        return {}
    now = now or database_now(jobs_alias())
    found = {name: _moment(name, given[name], now) for name in ("since", "until") if name in given}
    if "span" in given:
        span = _one_of("span", given["span"], tuple(SPANS))
        found.setdefault("since", midnight(now) if span == "today" else now - _LENGTHS[span])
    return found


def _moment(name: str, text: str, now: datetime) -> datetime:
    """Return the time that a text says, or that is so long ago."""
    if (seconds := durations.seconds(text)) is not None and text[-1].isalpha():
        return now - timedelta(seconds=min(seconds, LONGEST_AGO))
    try:
        found = datetime.fromisoformat(text.replace(" ", "+") if _LOST_PLUS.search(text) else text)
    except ValueError:
        found = datetime.min
    if not 1 < found.year < 9999:  # the others overflow in some time zone
        words = {"name": name, "value": shown(text)}
        raise InvalidJob(
            _("%(name)s is %(value)s; give a time as 2030-12-31T18:00, or how long ago it is, as 30m, 12h or 7d.")
            % words
        )
    return (found if timezone.is_aware(found) else timezone.make_aware(found)).astimezone(UTC)


def midnight(now: datetime) -> datetime:
    """Return when the day began, in the time zone of the page; where its first hour comes twice, with the first."""
    zone = timezone.get_current_timezone() if settings.USE_TZ else timezone.get_default_timezone()
    return now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)
