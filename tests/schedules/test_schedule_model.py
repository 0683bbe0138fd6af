"""What a schedule takes and refuses, and the slots that it tells of itself."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction

from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.models import Schedule, ScheduleState
from tests.app.jobs import leave_effect, nothing
from tests.cron.test_vectors import INVALID, VECTORS
from tests.engines.common import alone, beside_others, clock, on_postgresql, sql
from tests.schedules.common import DAY, HOUR, MINUTE, SECOND, made, state, states
from tests.threads import session, together, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

contract = pytest.mark.contract
fast = pytest.mark.fast
NAN, INFINITY = float("nan"), float("inf")


def each(field: str, *values: Any) -> list[tuple[dict[str, Any], str]]:
    return [({field: value}, field) for value in values]


BAD_ARGS: list[Any] = [[1, 2], {}, [NAN], ["\x00"], [{1}], ["x" * 1_100_000]]
BAD_KWARGS: list[Any] = [[], {"x": 1}, {"number": "\ud800"}, {1: 1}]
# What a schedule is given, and the field that the error is on.
BAD: list[tuple[dict[str, Any], str]] = [
    *each("timezone", "", "../x", "/etc/passwd", "America", "Mars", "a\x00b", None, 5, "x" * 300),
    *each("missed_limit", 0, -1, 10_001, None, "x", True, 2.5, NAN),
    *each("every", 0, 0.999, -5, 0 * SECOND, 3651 * DAY, 10**12, NAN, INFINITY, True, "x", [1], 1j, timedelta.max),
    *each("spread", -1, -SECOND, NAN, True, "x", {}, 10**12, MINUTE, 90),
    *each("missed_grace", -1, INFINITY, False, "x"),
    *each("missed_window", 0, 0.5, -1, NAN, True),
    ({"every": None, "expression": "*/5 * * * *", "spread": 300}, "spread"),
    ({"every": None, "expression": "0 2,3 * * *", "spread": 3600}, "spread"),
    ({"every": None}, "expression"),
    ({"every": MINUTE, "expression": "* * * * *"}, "every"),
    *(({"every": None, "expression": text}, "expression") for text in ("x x", "* * * *\x00", "0 0 30 2 *", 5, None)),
    *each("payload", 5, None, "x", [], {}, {"args": [], "kwargs": {}, "x": 1}),
    *each("payload", *({"args": args, "kwargs": {}} for args in BAD_ARGS)),
    *each("payload", *({"args": [], "kwargs": kwargs} for kwargs in BAD_KWARGS)),
    ({"type": leave_effect.name}, "payload"),
    *each("type", "", "no.such", "a\x00", None, 5, "x" * 300),
    *each("name", "", "n" * 201, "a\x00b", "\ud800", None),
    *each("queue", "a b", "a,b", "a\n", "q" * 101),
    *each("priority", 1000, -101, 101, "x", True, 1.5, NAN, 10**12),
    *(case for name in ("nonexistent", "ambiguous", "missed", "overlap") for case in each(name, "x", "", None, 5)),
    *each("enabled", None, "maybe"),
]


def given(**values: Any) -> Schedule:
    return Schedule(**{"name": "s", "type": nothing.name, "every": MINUTE, **values})


def refused(call: Any) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as error:
        call()
    assert all(len(text) < 500 and "Traceback" not in text for text in chain(*error.value.message_dict.values()))
    return error.value.message_dict


@contract
@alone
@pytest.mark.parametrize(
    ("values", "field"), BAD, ids=lambda value: str(value)[:40].encode("ascii", "replace").decode()
)
def test_a_bad_value_is_refused_on_its_field_and_nothing_is_written(
    engine: Engine, values: dict[str, Any], field: str
) -> None:
    assert list(refused(given(**values).full_clean)) == [field]
    assert list(refused(given(**values).save)) == [field]
    many = [given(name="good"), given(**values)]
    rows = Schedule.objects.using(engine.alias)
    named = refused(lambda: rows.bulk_create(many))
    assert list(named) == [field]
    assert named[field][0].startswith("The schedule ")
    stored = made(engine)
    for name, value in values.items():
        setattr(stored, name, value)
    assert list(refused(stored.save)) == [field]
    assert list(rows.all()) == [stored]
    assert states(engine).count() == 1


def test_every_bad_value_is_said_at_once() -> None:
    wrong = given(every=NAN, spread=True, missed_grace=5, timezone="Mars", queue="a b", priority=1000, missed_limit=0)
    found = refused(wrong.clean_fields)
    assert set(found) == {"every", "spread"}
    wrong = given(timezone="Mars", queue="a b", priority=1000, missed_limit=0, missed="x", spread=-1)
    with pytest.raises(ValidationError) as error:
        wrong.full_clean(validate_unique=False, validate_constraints=False)
    assert set(error.value.message_dict) == {"timezone", "queue", "priority", "missed_limit", "missed", "spread"}


@contract
@alone
@pytest.mark.parametrize("case", [pytest.param(case, id=case["why"]) for case in INVALID])
def test_an_expression_that_cannot_be_used_is_refused_soon_and_on_its_field(
    engine: Engine, case: dict[str, Any]
) -> None:
    took = []
    for act in ("full_clean", "full_clean", "full_clean", "save"):
        started = time.perf_counter()
        found = refused(getattr(given(every=None, expression=case["expr"]), act))
        took.append(time.perf_counter() - started)
        assert list(found) == ["expression"]
    assert min(took) < 0.05
    assert not Schedule.objects.using(engine.alias).exists()


@contract
@alone
@fast
@pytest.mark.parametrize("value", [90, 90.0, timedelta(seconds=90), "90", "00:01:30"])
def test_durations_are_timedelta_or_seconds(engine: Engine, value: Any) -> None:
    found = made(engine, every=2 * HOUR, spread=value, missed_grace=value, missed_window=value)
    found.refresh_from_db()
    assert (found.spread, found.missed_grace, found.missed_window) == (90 * SECOND,) * 3
    stored = made(engine, every=value)
    assert stored.every == 90 * SECOND


@alone
def test_values_at_the_limits_are_taken(engine: Engine) -> None:
    made(engine, name="n" * 200, every=1, missed_limit=10_000, priority=-100, queue="q" * 100, missed_grace=0)
    made(engine, every=3650 * DAY, missed_limit=1, priority=100, missed_window=1, spread=0)
    made(engine, every=MINUTE, spread=59.999)
    made(engine, expression="@daily", spread=DAY - SECOND, timezone="America/Argentina/Buenos_Aires")
    assert states(engine).count() == 4


@contract
@alone
@fast
def test_two_of_one_name_are_refused_by_name(engine: Engine) -> None:
    made(engine, name="twice")
    assert list(refused(lambda: made(engine, name="twice"))) == ["name"]
    with pytest.raises(IntegrityError), transaction.atomic(using=engine.alias):
        Schedule.objects.using(engine.alias).bulk_create([given(name="twice")])
    assert Schedule.objects.using(engine.alias).count() == states(engine).count() == 1


@beside_others
def test_of_those_who_store_one_name_at_once_one_does(engine: Engine) -> None:
    def store() -> int:
        try:
            given(name="once").save()
        except (ValidationError, IntegrityError):
            return 0
        return 1

    assert sum(together([store] * 4)) == 1
    assert states(engine).count() == 1


# The state beside it.


@contract
@alone
def test_whoever_makes_a_schedule_makes_its_state_which_begins_now(engine: Engine) -> None:
    before = clock(engine)
    rows = Schedule.objects.using(engine.alias)
    found = [made(engine), rows.create(name="c", type=nothing.name, every=60)]
    found += rows.bulk_create([given(name="b1"), given(name="b2", enabled=False)])
    for schedule in found:
        now = state(engine, schedule)
        assert before - SECOND < now.changed_at <= clock(engine)
        assert (now.wake_at is not None) == schedule.enabled
        assert (now.last_slot, now.error, now.fired) == (None, "", 0)
        assert schedule.anchor is not None
        assert schedule.anchor.microsecond == 0
        assert before - SECOND <= schedule.anchor <= clock(engine)
    assert ScheduleState.objects.using(engine.alias).count() == 4


@contract
@alone
def test_an_update_of_the_times_of_many_begins_anew_those_that_have_others_now(engine: Engine) -> None:
    found = [made(engine, every=minutes * MINUTE) for minutes in (1, 2, 2, 3)]
    states(engine).update(wake_at=None, timing="t", next_run_at=clock(engine), error="e", errors=3)
    rows = Schedule.objects.using(engine.alias)
    assert rows.filter(every__lte=2 * MINUTE).update(every=2 * MINUTE) == 3
    anew = [schedule for schedule in found if state(engine, schedule).wake_at is not None]
    assert anew == found[:1]
    now = state(engine, anew[0])
    assert (now.timing, now.next_run_at, now.error, now.errors) == ("", None, "", 0)
    assert (
        rows.exclude(state__error="x").update(timezone="Asia/Tokyo") == 4
    )  # through a join of which one side may lack
    rows.update(every=F_DOUBLE)
    assert all(state(engine, schedule).wake_at is not None for schedule in found)


F_DOUBLE = models.F("every") * 2


@alone
def test_an_update_of_a_thousand_is_done_in_parts(engine: Engine) -> None:
    rows = Schedule.objects.using(engine.alias)
    rows.bulk_create([given(name=f"m{number}") for number in range(1100)])
    for table in ("django_jobs_schedule", "django_jobs_schedulestate"):
        sql(engine, f"ANALYZE {table}")  # else the planner takes them for empty, as most tests leave them
    states(engine).update(wake_at=None)
    assert rows.update(enabled=False) == 1100
    assert states(engine).filter(wake_at=None).count() == 1100
    assert rows.update(enabled=True) == 1100
    assert states(engine).exclude(wake_at=None).count() == 1100


@beside_others
@on_postgresql
def test_an_update_changes_the_schedules_that_it_holds_and_no_other(engine: Engine) -> None:
    held, joins = made(engine, queue="mail"), made(engine)
    rows = Schedule.objects.using(engine.alias)
    with session(engine.alias) as first, session(engine.alias) as second:
        first.begin()
        first.sql("SELECT 1 FROM django_jobs_schedule WHERE id = %s FOR UPDATE", held.pk)
        changed = second.start(lambda: rows.filter(queue="mail").update(enabled=False))
        wait_for_blocked()
        assert rows.filter(pk=joins.pk).update(queue="mail") == 1
        first.commit()
        assert changed.result(30) == 1
    assert list(rows.filter(enabled=True)) == [joins]
    assert (state(engine, held).wake_at, state(engine, joins).wake_at is None) == (None, False)


@contract
@alone
def test_those_that_an_upsert_gave_other_times_begin_anew(engine: Engine) -> None:
    made(engine, name="old", every=HOUR)
    now = clock(engine)
    values = {"timing": "t", "next_run_at": now, "error": "e", "errors": 3, "wake_at": now + HOUR}
    states(engine).update(changed_at=now - DAY, **values)
    rows = Schedule.objects.using(engine.alias)
    given_again = [given(name="old", every=2 * HOUR), given(name="new")]
    rows.bulk_create(given_again, update_conflicts=True, unique_fields=["name"], update_fields=["every"])
    assert dict(rows.values_list("name", "every")) == {"old": 2 * HOUR, "new": MINUTE}
    old, new = (state(engine, rows.get(name=name)) for name in ("old", "new"))
    assert (old.timing, old.next_run_at, old.error, old.errors) == ("", None, "", 0)
    for found in (old, new):
        assert now - SECOND < found.changed_at <= clock(engine)
        assert now - SECOND < found.wake_at <= clock(engine)


@contract
@alone
def test_the_type_may_be_the_job_itself(engine: Engine) -> None:
    rows = Schedule.objects.using(engine.alias)
    made(engine, name="saved", type=nothing)
    rows.bulk_create([given(name="many", type=nothing)])
    assert list(rows.values_list("type", flat=True)) == [nothing.name] * 2


# Its slots.


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in VECTORS[::3]])
def test_a_schedule_that_is_not_stored_tells_the_slots_of_a_case(case: dict[str, Any]) -> None:
    expected = [datetime.fromisoformat(at) for at in case["expected_utc"]]
    schedule = Schedule(expression=case["expr"], timezone=case["tz"], **case["policy"])
    found = schedule.next_slots(datetime.fromisoformat(case["start_utc"]), len(expected))
    assert found == expected
    assert all(at.utcoffset() == timedelta(0) for at in found)


AFTER = datetime(2026, 11, 30, 12, 0, 0, 500_000, tzinfo=UTC)


@fast
def test_the_next_slots_are_strictly_after_and_do_not_depend_on_whether_it_is_enabled() -> None:
    schedule = Schedule(expression="* * * * *", enabled=False, type="no.such")
    first = AFTER.replace(minute=1, second=0, microsecond=0)
    assert schedule.next_slots(AFTER, 2) == [first, first + MINUTE]
    assert schedule.next_slots(first, 1) == [first + MINUTE]
    assert schedule.next_slots(first - timedelta.resolution, 1) == [first]
    assert schedule.next_slots(AFTER, 0) == []
    assert len(schedule.next_slots(AFTER, 10_000)) == 10_000
    assert schedule.next_slots(datetime.max.replace(tzinfo=UTC), 5) == []


@fast
def test_an_interval_that_is_not_stored_counts_from_the_whole_second_of_the_moment() -> None:
    start = AFTER.replace(microsecond=0)
    assert Schedule(every=90).next_slots(AFTER, 2) == [start + 90 * SECOND, start + 180 * SECOND]
    assert Schedule(every=90, anchor=start - 80 * SECOND).next_slots(AFTER, 1) == [start + 10 * SECOND]


@fast
@pytest.mark.parametrize(
    ("after", "count", "kind"),
    [
        (datetime(2026, 1, 1), 1, InvalidJob),
        ("now", 1, InvalidJobType),
        (None, 1, InvalidJobType),
        (AFTER.date(), 1, InvalidJobType),
        (AFTER, -1, InvalidJob),
        (AFTER, 10_001, InvalidJob),
        (AFTER, True, InvalidJobType),
        (AFTER, 1.5, InvalidJobType),
        (AFTER, "1", InvalidJobType),
        (AFTER, None, InvalidJobType),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(after: Any, count: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"after is|count is"):
        Schedule(expression="* * * * *").next_slots(after, count)


@fast
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"expression": "x x"}, "expression"),
        ({"expression": ""}, "expression"),
        ({"expression": "* * * * *", "timezone": "Mars"}, "timezone"),
        ({"expression": "* * * * *", "ambiguous": "x"}, "ambiguous"),
        ({"every": 0}, "every"),
        ({"every": "x"}, "every"),
        ({"every": NAN}, "every"),
    ],
)
def test_a_schedule_without_usable_times_has_no_slots_to_tell(values: dict[str, Any], field: str) -> None:
    assert list(refused(lambda: Schedule(**values).next_slots(AFTER, 1))) == [field]
