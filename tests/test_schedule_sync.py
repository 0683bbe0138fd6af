"""What becomes of the stored schedules when the code says others, and of what people changed in them."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_jobs import registry
from django_jobs.engines.base import Engine
from django_jobs.models import Job, Schedule, ScheduleState
from django_jobs.models.clock import for_row, from_row
from django_jobs.schedules import overrides, status, sync, tick
from django_jobs.schedules.overrides import overridden
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, beside_others, clock, on_postgresql, sql
from tests.releases import release
from tests.schedules.test_broken import UNREADABLE
from tests.threads import together

NIGHTLY: dict[str, Any] = {"expression": "30 2 * * *", "timezone": "Europe/Berlin"}


def deploy(engine: Engine, **schedules: dict[str, Any]) -> None:
    """Start a scheduler of a release whose code says these schedules."""
    with release(**schedules):
        sync.sync(engine.alias)


def stored(engine: Engine, name: str = "nightly") -> Schedule:
    found: Schedule = Schedule.objects.using(engine.alias).select_related("state").get(name=name)
    return found


def names(engine: Engine) -> list[str]:
    return list(Schedule.objects.using(engine.alias).order_by("name").values_list("name", flat=True))


def moment(engine: Engine, field: str) -> datetime:
    return from_row(getattr(stored(engine).state, field), engine.alias)


def everything(engine: Engine) -> list[dict[str, Any]]:
    return [
        *Schedule.objects.using(engine.alias).order_by("pk").values(),
        *ScheduleState.objects.using(engine.alias).order_by("pk").values(),
    ]


def edit(engine: Engine, name: str = "nightly", **values: Any) -> None:
    """Change a schedule as the admin does."""
    found = stored(engine, name)
    for field, value in values.items():
        setattr(found, field, value)
    found.save()


# Adding, updating, not deleting.


@alone
def test_a_schedule_of_the_code_is_added_with_all_that_it_says(engine: Engine) -> None:
    deploy(engine, nightly={**NIGHTLY, "args": [7], "priority": 5}, other={"every": 90, "enabled": False})
    found = stored(engine)
    assert (found.type, found.payload, found.expression, found.timezone, found.priority, found.enabled) == (
        nothing.name, {"args": [7], "kwargs": {}}, "30 2 * * *", "Europe/Berlin", 5, True,
    )  # fmt: skip
    assert found.code == overrides.as_json(found)
    assert abs(from_row(found.state.changed_at, engine.alias) - clock(engine)) < timedelta(seconds=30)
    assert found.state.wake_at is not None
    other = stored(engine, "other")
    assert (other.every, other.enabled, other.state.wake_at) == (timedelta(seconds=90), False, None)
    assert other.anchor is not None


@alone
def test_what_the_code_says_otherwise_is_updated(engine: Engine) -> None:
    deploy(engine, nightly=NIGHTLY)
    before = stored(engine)
    deploy(engine, nightly={**NIGHTLY, "of": leave_effect, "args": ["x"], "queue": "mail", "missed": "skip"})
    found = stored(engine)
    assert (found.pk, found.type, found.payload["args"], found.queue, found.missed) == (
        before.pk, leave_effect.name, ["x"], "mail", "skip",
    )  # fmt: skip
    assert (found.code or {})["queue"] == "mail"
    # Its times are the same, and so its slots go on.
    assert found.state.changed_at == before.state.changed_at


@alone
def test_an_expression_may_become_an_interval_and_back(engine: Engine) -> None:
    deploy(engine, nightly=NIGHTLY)
    deploy(engine, nightly={"every": 3600, "timezone": "Europe/Berlin"})
    assert (stored(engine).expression, stored(engine).every) == ("", timedelta(hours=1))
    deploy(engine, nightly=NIGHTLY)
    assert (stored(engine).expression, stored(engine).every) == ("30 2 * * *", None)


@alone
def test_what_the_code_no_longer_has_stays_and_is_orphaned_until_it_is_back(engine: Engine) -> None:
    deploy(engine, nightly=NIGHTLY, other={"every": 90})
    before = everything(engine)
    with release(other={"every": 90}):
        sync.sync(engine.alias)
        assert everything(engine) == before
        assert [status.is_orphaned(stored(engine, name)) for name in ("nightly", "other")] == [True, False]
        found = status.condition(stored(engine), clock(engine))
        assert found.state == "orphaned"
        assert found.reason.startswith(
            "The code that runs here no longer has it; it goes on until it is paused or deleted."
        )
    with release(nightly=NIGHTLY):
        assert not status.is_orphaned(stored(engine))
    Schedule.objects.using(engine.alias).create(name="by hand", type=nothing.name, every=60)
    with release():
        assert not status.is_orphaned(stored(engine, "by hand"))


@alone
def test_one_that_was_deleted_is_added_again_as_long_as_the_code_has_it(engine: Engine) -> None:
    deploy(engine, nightly=NIGHTLY)
    stored(engine).delete()
    deploy(engine, nightly=NIGHTLY)
    assert names(engine) == ["nightly"]


@alone
def test_the_zone_of_the_project_is_followed_where_the_code_gives_none(engine: Engine, settings: Any) -> None:
    deploy(engine, nightly={"expression": "30 2 * * *"})
    assert stored(engine).timezone == "UTC"
    settings.TIME_ZONE = "Europe/Berlin"
    try:
        deploy(engine, nightly={"expression": "30 2 * * *"})
        assert stored(engine).timezone == "Europe/Berlin"
    finally:
        settings.TIME_ZONE = "UTC"


@alone
def test_a_row_that_cannot_even_be_read_keeps_no_other_from_being_stored(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with release(a={"every": 60}):
        sync.sync(engine.alias)
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(f"UPDATE django_jobs_schedule SET {UNREADABLE[engine.name]}")
    with release(a={"every": 90}, b={"every": 60}):
        sync.sync(engine.alias)
    assert Schedule.objects.using(engine.alias).filter(name="b").exists()
    (record,) = caplog.records
    assert record.message.startswith(
        "The schedule a of tests.app.jobs.nothing (line 23) cannot be used, and is left as it was: "
    )


@alone
def test_an_unchanged_sync_writes_nothing(engine: Engine) -> None:
    key = [1.5, "ü", None, {"b": 1, "a": [True]}]
    says: dict[str, Any] = {
        "nightly": {**NIGHTLY, "of": leave_effect, "kwargs": {"key": key}, "spread": 600, "missed_grace": 0.25},
        "often": {"every": timedelta(seconds=1.5), "missed_window": timedelta(days=400)},
    }
    deploy(engine, **says)
    edit(engine, priority=3)
    before = everything(engine)
    with CaptureQueriesContext(connections[engine.alias]) as queries:
        deploy(engine, **says)
    written = [query["sql"] for query in queries if query["sql"].split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert written == []
    assert len(queries) > 0
    assert everything(engine) == before


# What people changed.


def by_save(engine: Engine, **values: Any) -> None:
    edit(engine, **values)


def by_update(engine: Engine, **values: Any) -> None:
    assert Schedule.objects.using(engine.alias).filter(name="nightly").update(**values) == 1


@alone
@pytest.mark.parametrize("change", [by_save, by_update])
def test_what_somebody_changed_stays_while_the_rest_follows_the_code(engine: Engine, change: Any) -> None:
    deploy(engine, nightly=NIGHTLY)
    change(engine, priority=9, missed_grace=timedelta(minutes=5))
    assert overridden(stored(engine)) == ["missed_grace", "priority"]
    for queue in ("mail", "letters"):
        deploy(engine, nightly={**NIGHTLY, "priority": 5, "queue": queue})
        found = stored(engine)
        assert (found.priority, found.missed_grace, found.queue) == (9, timedelta(minutes=5), queue)
        assert overridden(found) == ["missed_grace", "priority"]


@alone
def test_what_is_put_back_as_the_code_says_follows_it_again(engine: Engine) -> None:
    deploy(engine, nightly={**NIGHTLY, "priority": 5})
    edit(engine, priority=9)
    deploy(engine, nightly={**NIGHTLY, "priority": 6})
    assert (stored(engine).priority, overridden(stored(engine))) == (9, ["priority"])
    edit(engine, priority=6)
    deploy(engine, nightly={**NIGHTLY, "priority": 7})
    assert (stored(engine).priority, overridden(stored(engine))) == (7, [])


@alone
@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ({"expression": "", "every": timedelta(hours=2)}, ("", timedelta(hours=2))),
        ({"expression": "0 5 * * *"}, ("0 5 * * *", None)),
    ],
)
@pytest.mark.parametrize("later", [{"expression": "45 2 * * *"}, {"expression": "", "every": 60}])
def test_an_expression_and_an_interval_are_overridden_as_one(
    engine: Engine, override: dict[str, Any], kept: tuple[str, timedelta | None], later: dict[str, Any]
) -> None:
    deploy(engine, nightly=NIGHTLY)
    edit(engine, **override)
    deploy(engine, nightly={**NIGHTLY, **later, "queue": "mail"})
    found = stored(engine)
    assert ((found.expression, found.every), found.queue) == (kept, "mail")
    assert overridden(found) == ["every", "expression"]


@alone
def test_one_that_somebody_paused_stays_paused_whatever_the_code_says(engine: Engine) -> None:
    deploy(engine, nightly=NIGHTLY)
    stored(engine).pause()
    deploy(engine, nightly={**NIGHTLY, "expression": "0 5 * * *", "enabled": True})
    found = stored(engine)
    assert (found.enabled, found.expression, found.state.wake_at) == (False, "0 5 * * *", None)
    stored(engine).resume()
    deploy(engine, nightly={**NIGHTLY, "expression": "0 5 * * *", "enabled": False})
    assert not stored(engine).enabled  # it was as the code said it


@alone
@pytest.mark.parametrize("said", ["5", "[]", '"x"', "true"])
def test_what_the_code_said_is_stored_anew_where_a_hand_put_something_else(engine: Engine, said: str) -> None:
    deploy(engine, nightly=NIGHTLY)
    edit(engine, priority=3)
    sql(engine, "UPDATE django_jobs_schedule SET code = %s", said)
    assert overridden(stored(engine)) == []
    assert overrides.overrides(stored(engine)) == []
    deploy(engine, nightly={**NIGHTLY, "queue": "mail"})
    found = stored(engine)
    assert isinstance(found.code, dict)
    assert (found.priority, found.queue, overridden(found)) == (3, "", ["queue", "priority"])


@alone
def test_one_that_somebody_made_under_the_name_is_taken_over_with_all_that_it_has(engine: Engine) -> None:
    made = Schedule.objects.using(engine.alias).create(
        name="nightly", type=leave_effect.name, payload={"args": ["x"], "kwargs": {}}, every=7200, queue="letters"
    )
    before = stored(engine)
    deploy(engine, nightly={**NIGHTLY, "queue": "mail"})
    found = stored(engine)
    assert (found.pk, found.code) == (made.pk, {**(found.code or {}), "queue": "mail", "expression": "30 2 * * *"})
    assert overrides.as_json(found) == overrides.as_json(before)
    assert found.state.changed_at == before.state.changed_at
    kept = overridden(found)
    assert {"type", "payload", "expression", "every", "queue", "timezone"} == set(kept)
    # What was the same as in the code follows it.
    deploy(engine, nightly={**NIGHTLY, "queue": "post", "priority": 4})
    found = stored(engine)
    assert (found.queue, found.priority, found.every) == ("letters", 4, timedelta(hours=2))


# At the same time, and afterwards.


@beside_others
@on_postgresql
def test_two_syncs_at_once_make_one_row(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    meet, save = threading.Barrier(2, timeout=10), Schedule.save

    def after_both_have_looked(self: Schedule, **kwargs: Any) -> None:
        if self._state.adding:
            meet.wait()
        save(self, **kwargs)

    monkeypatch.setattr(Schedule, "save", after_both_have_looked)
    with release(nightly=NIGHTLY):
        together([lambda: sync.sync(engine.alias)] * 2)
    assert names(engine) == ["nightly"]
    assert ScheduleState.objects.using(engine.alias).count() == 1
    assert stored(engine).code == overrides.as_json(stored(engine))
    assert [line.levelno for line in caplog.records if line.levelno >= logging.WARNING] == []


@beside_others
def test_other_times_begin_now_and_nothing_of_the_past_fires(engine: Engine) -> None:
    every_minute = {"expression": "* * * * *", "missed": "all"}
    deploy(engine, nightly=every_minute)
    long_ago = for_row(clock(engine) - timedelta(days=3), engine.alias)
    states = ScheduleState.objects.using(engine.alias)
    states.update(changed_at=long_ago, last_slot=long_ago, next_run_at=long_ago, wake_at=long_ago)
    before = clock(engine)
    deploy(engine, nightly={**every_minute, "expression": "*/2 * * * *"})
    assert stored(engine).state.next_run_at is None
    assert moment(engine, "changed_at") >= before - timedelta(seconds=1)
    assert moment(engine, "wake_at") >= before - timedelta(seconds=1)
    ticked = tick.tick(engine, registry.names(), "test")
    assert ticked.taken == 1
    assert moment(engine, "next_run_at") > before
    # At most the one of the minute in which the test runs.
    assert Job.objects.using(engine.alias).filter(slot__lt=for_row(before, engine.alias)).count() == 0
    assert (stored(engine).state.missed, stored(engine).state.dropped) == (0, 0)


@beside_others
def test_other_values_than_times_leave_what_was_missed_to_be_made_up_for(engine: Engine) -> None:
    every_minute = {"expression": "* * * * *", "missed": "all", "missed_limit": 5}
    deploy(engine, nightly=every_minute)
    long_ago = for_row(clock(engine) - timedelta(days=3), engine.alias)
    states = ScheduleState.objects.using(engine.alias)
    states.update(changed_at=long_ago, last_slot=long_ago, next_run_at=long_ago, wake_at=long_ago)
    deploy(engine, nightly={**every_minute, "priority": 3})
    tick.tick(engine, registry.names(), "test")
    jobs = Job.objects.using(engine.alias).all()
    assert {job.priority for job in jobs} == {3}
    assert 5 <= len(jobs) <= 6
