"""What jobs a person looks for, as a value: a page shows them, an act upon all of them goes through them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, F, Func, JSONField, OrderBy, Q, QuerySet, Value
from django.db.models.fields.json import KeyTransform

from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, shown
from django_jobs.models import Job
from django_jobs.models.clock import Clock, for_row
from django_jobs.queue.error_text import FoldedLine, HasText
from django_jobs.texts import text as _

ID_LIMIT = 2**63
WAITING = ("due", "later", "retries", "parked")
ENDED = ("done", "dead-letters", "dead", "failed", "cancelled")
STATES = (*WAITING, "running", *ENDED)
# Which time of a job in a state `since` and `until` are about: what the list of that state shows.
MOMENTS = {
    **dict.fromkeys(WAITING, "run_at"),
    "running": "last_started_at",
    **dict.fromkeys(ENDED, "finished_at"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Jobs by what they are. All that is given has to hold; what is left out may be anything.

    `state`: one of STATES. `since` and `until`: aware times, of which the second is not within; of the time that MOMENTS
    names, and of `created_at` without a state. `worker`: the incarnation that runs it. `parked`: why it is set aside. `key`:
    its idempotency key or the beginning of that; digits are its id as well. `error`: a part of the last error, in any case.
    `line`: the whole last line of that error, as `FoldedLine` has it. `argument`: the way to a value in the arguments, as
    `args.0` or `kwargs.order.id`, and the value there as a person writes it: `42` finds the number and the text.
    """

    state: str = ""
    queue: str = ""
    type: str = ""
    priority: int | None = None
    tag: str = ""
    worker: str = ""
    schedule: str = ""
    parked: str = ""
    key: str = ""
    error: str = ""
    line: str = ""
    argument: tuple[str, str] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.state and self.state not in STATES:
            raise InvalidJob(
                _("The state is %(value)s; give one of %(known)s.", value=shown(self.state), known=", ".join(STATES))
            )
        if self.parked and self.parked not in Job.Parked.values:
            words = {"value": shown(self.parked), "known": ", ".join(Job.Parked.values)}
            raise InvalidJob(_("The reason is %(value)s; give one of %(known)s.", **words))
        if self.argument is not None:
            steps(self.argument[0])

    @property
    def moment(self) -> str:
        """The column that `since` and `until` are about."""
        return MOMENTS.get(self.state, "created_at")

    def rows(self, table: QuerySet[Any] | None = None) -> QuerySet[Any]:
        """Return the jobs, in no order; of all jobs of the jobs' database if no others are given."""
        return self.by_content(self.by_columns(self.by_state(table)))

    def by_state(self, table: QuerySet[Any] | None = None) -> QuerySet[Any]:
        """Narrow to the state, and to what an index finds in it: a worker, a key, a reason to be parked, a span of time."""
        rows = _in_state(table if table is not None else Job.objects.using(jobs_alias()), self.state)
        if self.worker:
            rows = rows.running().filter(locked_by__startswith=f"{self.worker}:")  # type: ignore[attr-defined]
        if self.parked:
            rows = rows.filter(parked=self.parked)
        if self.key:
            rows = rows.filter(Q(idempotency_key__startswith=self.key) | Q(pk__in=numbered(self.key)))
        return self.in_span(rows)

    def in_span(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow to the span of time."""
        if self.since is not None:
            rows = rows.filter(**{f"{self.moment}__gte": for_row(self.since, rows.db)})
        if self.until is not None:
            rows = rows.filter(**{f"{self.moment}__lt": for_row(self.until, rows.db)})
        return rows

    def by_columns(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow by what is cheap to read of a row."""
        alike = {name: getattr(self, name) for name in ("queue", "type", "schedule") if getattr(self, name)}
        if self.priority is not None:
            alike["priority"] = self.priority
        return rows.filter(**alike)

    def by_content(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow by what no index holds and may be large, last."""
        if self.tag:
            rows = rows.filter(_HasTag("meta", Value(self.tag)))
        if self.error:
            rows = rows.filter(HasText("last_error", Value(self.error)))
        if self.line:
            rows = rows.alias(line=FoldedLine("last_error")).filter(line=self.line)
        if self.argument is not None:
            rows = rows.alias(sought=_at(self.argument[0])).filter(_reads_as(self.argument[1]))
        return rows

    @property
    def reads_errors(self) -> bool:
        """Whether something is asked for that is found only by reading errors, which are long."""
        return bool(self.error or self.line)

    def as_json(self) -> dict[str, Any]:
        """Return what is given, as JSON can hold it."""
        given = {name: value for name, value in asdict(self).items() if value not in ("", None)}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Sought:
        """Return what `as_json` was made of; raise InvalidJob if it was not."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise InvalidJob(f"Jobs are sought by {shown(unknown[0])}; known are {', '.join(sorted(known))}.")
        values = dict(given)
        for name in ("since", "until"):
            if name in values:
                values[name] = datetime.fromisoformat(values[name])
        if "argument" in values:
            values["argument"] = tuple(values["argument"])
        return cls(**values)


def steps(path: str) -> list[str]:
    """Return the steps of the way to an argument; raise InvalidJob if it is none."""
    found = path.split(".")
    if found[0] not in ("args", "kwargs") or len(found) < 2 or not all(found):
        raise InvalidJob(
            _(
                "The way to an argument is %s; give args.0 for the first one by its place, kwargs.order_id for one by its "
                "name, and further names and places behind a dot for what is in it.",
                shown(path),
            )
        )
    return found


def numbered(text: str) -> list[int]:
    """Return the id that a text is, if it can be one."""
    return [int(text)] if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < ID_LIMIT else []


def keyed(rows: QuerySet[Any], beginning: str) -> QuerySet[Any]:
    """Return the jobs whose idempotency key begins so, in the order of its index: of any other order, or none, PostgreSQL may
    expect that a few are found soon by reading the table."""
    return rows.filter(idempotency_key__startswith=beginning).order_by(_ByBytes(F("idempotency_key")))


def _in_state(rows: Any, state: str) -> QuerySet[Any]:
    """Narrow to a state so that the partial index which holds its rows serves."""
    match state:
        case "":
            found = rows
        case "due":
            found = rows.due()
        case "later":
            found = rows.ready().filter(parked__isnull=True, run_at__gt=Clock())
        case "retries":
            found = rows.retries().filter(parked__isnull=True)
        case "parked":
            found = rows.parked()
        case "running":
            found = rows.running()
        case "dead-letters":
            found = rows.filter(status__in=Job.DEAD_LETTERS)
        case _:
            found = rows.filter(status=state)
    narrowed: QuerySet[Any] = found
    return narrowed


class _ByBytes(OrderBy):
    """In the order of an index for beginnings, which is that of no collation but "C"."""

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        # Django wants to find a direction in it.
        return self.as_sql(compiler, connection, template="%(expression)s USING ~<~ /* ASC */")


class _HasTag(Func):
    output_field = BooleanField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="jsonb_exists(%(expressions)s)", arg_joiner=" -> 'tags', ")

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "EXISTS (SELECT 1 FROM json_each(%(expressions)s))"
        return self.as_sql(compiler, connection, template=template, arg_joiner=", '$.tags') WHERE value = (")


def _at(path: str) -> Any:
    """Return what is in the arguments at the end of a way."""
    found: Any = "payload"
    for step in steps(path):
        found = KeyTransform(step, found)
    return found


def _reads_as(text: str) -> Q:
    """Match a text, and the value that it is as JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return Q(sought=text)
    return Q(sought=text) | (
        Q(sought__isnull=False, sought=Value(None, JSONField())) if value is None else Q(sought=value)
    )
