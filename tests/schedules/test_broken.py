"""A schedule that cannot be used: it says so itself, and no other notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_jobs.models.schedule import Schedule
from django_jobs.schedules import definition, step, survey
from tests.engines.common import alone, beside_others, clock, on_postgresql, sql
from tests.schedules.common import (
    HOUR,
    MINUTE,
    SECOND,
    every,
    jobs,
    late,
    look,
    made,
    since,
    slots,
    state,
    states,
    tick,
    wake,
)
from tests.threads import session, together

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = [alone, pytest.mark.contract]

BROKEN = {
    "zone": ("timezone = 'Mars'", "timezone: Time zone 'Mars' is not known here"),
    "no zone": ("timezone = ''", "timezone: Time zone '' is not known here"),
    "expression": ("expression = 'x x', every = NULL", "expression: Cron expression 'x x': it has 2 fields"),
    "date that never comes": ("expression = '0 0 30 2 *', every = NULL", "day 30 never comes"),
    "payload 5": ("payload = '5'", "payload is 5; give"),
    "payload null": ("payload = 'null'", "payload is None; give"),
    "payload without args": ("""payload = '{"kwargs": {}}'""", "payload is <dict>; give"),
    "arguments": ("""payload = '{"args": [1, 2], "kwargs": {}}'""", "The arguments do not fit tests.app.jobs.nothing"),
    "queue": ("queue = 'a b'", "queue: the queue name 'a b' has a comma, a space"),
    "priority": ("priority = 1000", "priority is 1000"),
    "nonexistent": ("nonexistent = 'x'", "nonexistent is 'x'; give one of 'after_gap', 'skip'"),
    "missed": ("missed = 'x'", "missed is 'x'"),
    "overlap": ("overlap = 'x'", "overlap is 'x'"),
    "limit": ("missed_limit = 0", "missed_limit is 0"),
}


def broken_by(engine: Engine, values: str, **options: Any) -> Schedule:
    schedule = every(engine, HOUR, **options)
    tick(engine)
    since(engine, schedule, 3 * HOUR)
    break_by(engine, schedule, values)
    return schedule


def break_by(engine: Engine, schedule: Schedule, values: str) -> None:
    sql(engine, f"UPDATE django_jobs_schedule SET {values} WHERE id = {schedule.pk}")


@pytest.mark.fast
@pytest.mark.parametrize(("values", "says"), BROKEN.values(), ids=list(BROKEN))
def test_what_is_broken_by_hand_says_why_and_all_others_fire(engine: Engine, values: str, says: str) -> None:
    broken = broken_by(engine, values)
    others = [late(engine, HOUR, MINUTE) for _ in range(3)]
    assert tick(engine) == (4, 3)
    found = state(engine, broken)
    assert says in found.error
    assert (found.errors, found.last_slot, found.fired) == (1, None, 0)
    assert [job.schedule for job in jobs(engine)] == [schedule.name for schedule in others]
    assert tick(engine) == (0, 0)


@pytest.mark.parametrize("values", ["every = '0'", "every = '-5'"])
def test_an_interval_of_nothing_is_an_error_and_no_endless_loop(engine: Engine, values: str) -> None:
    broken = broken_by(engine, values if engine.name == "postgresql" else values.replace("'", ""))
    tick(engine)
    assert "; give 1s to ten years." in state(engine, broken).error


UNREADABLE = {"postgresql": "anchor = 'infinity'", "sqlite": "every = 'abc'"}


def test_a_row_that_cannot_even_be_read_keeps_no_other_from_firing(engine: Engine) -> None:
    broken = broken_by(engine, UNREADABLE[engine.name])
    others = [late(engine, HOUR, MINUTE) for _ in range(3)]
    assert tick(engine) == (4, 3)
    assert {job.schedule for job in jobs(engine)} == {schedule.name for schedule in others}
    found = states(engine).filter(pk=broken.pk).values("error", "errors").get()
    assert found["error"]
    assert found["errors"] == 1
    survey.recompute_stale(engine.alias)
    survey.adopt(engine.alias)


def test_a_broken_one_is_tried_again_after_growing_waits(engine: Engine) -> None:
    broken = broken_by(engine, "timezone = 'Mars'")
    waits = []
    for _ in range(12):
        look(engine, broken)
        found = state(engine, broken)
        waits.append((found.wake_at - found.looked_at).total_seconds())
    assert waits[:4] == [15, 30, 60, 120]
    assert waits == sorted(waits)
    assert waits[-1] == step.LONGEST_RETRY
    states(engine).update(errors=10**6)
    assert look(engine, broken) == 0
    assert state(engine, broken).errors == 10**6 + 1


@pytest.mark.parametrize(("missed", "fires"), [("skip", 0), ("latest", 1), ("all", 3)])
def test_what_came_while_its_arguments_were_broken_fires_as_missed_when_they_are_repaired(
    engine: Engine, missed: str, fires: int
) -> None:
    broken = broken_by(engine, "payload = '5'", missed=missed, missed_grace=0)
    assert tick(engine) == (1, 0)
    broken.payload = {"args": [4], "kwargs": {}}
    broken.save()
    assert tick(engine).fired == fires
    found = state(engine, broken)
    assert (found.error, found.errors, found.missed) == ("", 0, 3)


def test_what_came_while_its_times_were_broken_does_not_fire_when_they_are_repaired(engine: Engine) -> None:
    broken = broken_by(engine, "timezone = 'Mars'", missed="all")
    assert tick(engine) == (1, 0)
    broken.save()
    assert tick(engine) == (1, 0)
    found = state(engine, broken)
    assert (found.error, found.errors, found.missed) == ("", 0, 0)
    assert found.next_run_at > clock(engine)


def test_what_is_repaired_by_hand_fires_when_it_is_tried_again(engine: Engine) -> None:
    broken = broken_by(engine, "payload = '5'", missed="all")
    tick(engine)
    break_by(engine, broken, """payload = '{"args": [], "kwargs": {}}'""")
    assert look(engine, broken) == 3


def test_a_save_of_one_that_is_sound_does_not_have_it_looked_at(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    tick(engine)
    before = state(engine, schedule).wake_at
    schedule.priority = 3
    schedule.save()
    assert state(engine, schedule).wake_at == before


def test_an_error_is_stored_whatever_its_text(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = late(engine, HOUR, MINUTE)

    def fail(*_: object) -> None:
        raise RuntimeError("a\x00b\ud800" + "x" * 5000)

    monkeypatch.setattr(definition, "call", fail)
    tick(engine)
    assert state(engine, schedule).error.startswith("a")
    assert len(state(engine, schedule).error) == step.ERROR_LIMIT


# What the database does not take.


def refuse(engine: Engine, table: str, act: str, when: str) -> None:
    if engine.name == "sqlite":
        sql(engine, f"CREATE TRIGGER refuse_{act} BEFORE {act} ON {table} WHEN {when} BEGIN "
            "SELECT RAISE(ABORT, 'refused by a trigger'); END")  # fmt: skip
        return
    sql(engine, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$")  # fmt: skip
    sql(engine, f"CREATE TRIGGER refuse_{act} BEFORE {act} ON {table} FOR EACH ROW WHEN ({when}) "
        "EXECUTE FUNCTION refuse()")  # fmt: skip


@pytest.mark.fast
def test_a_job_that_the_database_refuses_is_an_error_of_its_schedule_alone(engine: Engine) -> None:
    found = [late(engine, HOUR, MINUTE, name=name) for name in ("a", "poison", "z")]
    refuse(engine, "django_jobs_job", "INSERT", "NEW.schedule = 'poison'")
    assert tick(engine) == (3, 2)
    assert {job.schedule for job in jobs(engine)} == {"a", "z"}
    broken = state(engine, found[1])
    assert "refused by a trigger" in broken.error
    assert (broken.last_slot, broken.fired, broken.missed, broken.looked_by) == (None, 0, 0, "host:1")
    assert 14 < (broken.wake_at - clock(engine)).total_seconds() <= 15
    sql(engine, "DROP TRIGGER refuse_INSERT" + (" ON django_jobs_job" if engine.name == "postgresql" else ""))
    assert look(engine, found[1]) == 1
    assert state(engine, found[1]).error == ""


def test_an_error_that_cannot_be_stored_keeps_no_other_from_firing(engine: Engine) -> None:
    found = [late(engine, HOUR, MINUTE, name=name) for name in ("a", "poison", "z")]
    refuse(engine, "django_jobs_schedulestate", "UPDATE", f"OLD.schedule_id = {found[1].pk}")
    assert tick(engine) == (2, 2)
    assert {job.schedule for job in jobs(engine)} == {"a", "z"}
    assert tick(engine).taken == 0


@on_postgresql
@beside_others
def test_a_slot_whose_key_somebody_holds_is_waited_for_and_keeps_no_other_from_firing(
    engine: Engine, settings: Any
) -> None:
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.2}
    first, held, last = (late(engine, HOUR, MINUTE) for _ in range(3))
    tick(engine)
    since(engine, held, 5 * HOUR)
    for schedule in (first, last):
        since(engine, schedule, MINUTE, last_slot=None)
    sql(engine, "DELETE FROM django_jobs_job WHERE schedule <> %s", held.name)
    with session(engine.alias) as other:
        other.begin()
        other.sql("DELETE FROM django_jobs_job")
        assert tick(engine) == (3, 2)
        other.rollback()
    found = state(engine, held)
    assert (found.error, found.errors, found.wake_at - clock(engine) < 2.0 * SECOND) == ("", 0, True)
    assert {job.schedule for job in jobs(engine)} == {first.name, held.name, last.name}


@on_postgresql
@beside_others
def test_a_connection_that_breaks_is_no_error_of_a_schedule(engine: Engine) -> None:
    schedule = late(engine, HOUR, MINUTE)
    refuse(engine, "django_jobs_job", "INSERT", "true")
    try:
        sql(engine, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$")  # fmt: skip

        def attempt() -> None:
            with pytest.raises(Exception, match=r"terminat|closed"):
                tick(engine)

        together([attempt])
        assert (state(engine, schedule).error, slots(engine)) == ("", [])
    finally:
        sql(engine, "DROP FUNCTION refuse CASCADE")


def test_a_schedule_without_a_next_slot_ends_quietly(engine: Engine) -> None:
    schedule = made(engine, expression="0 0 1 1 *")
    tick(engine)
    states(engine).filter(pk=schedule.pk).update(last_slot=clock(engine).replace(year=9999))
    wake(engine)
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert (found.error, found.wake_at) == ("", None)
