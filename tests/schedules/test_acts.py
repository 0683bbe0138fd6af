"""What people do to a schedule: who did it and why is kept, and what cannot be done is refused."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, models, transaction

from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.models import Job
from django_jobs.models.clock import database_now
from django_jobs.models.schedule import Schedule
from django_jobs.schedules import operate, status
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others, clock, sql
from tests.schedules.common import HOUR, SECOND, made, state, states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.engines.base import Engine

pytestmark = [pytest.mark.contract, pytest.mark.fast]


def again(schedule: Schedule, alias: str = "") -> Schedule:
    rows = Schedule.objects.using(alias or schedule._state.db).select_related("state")
    found: Schedule = rows.get(pk=schedule.pk)
    return found


def reason(schedule: Schedule) -> str:
    found = again(schedule)
    return status.condition(found, database_now(str(found._state.db))).reason


def all_jobs(engine: Engine) -> Any:
    return Job.objects.using(engine.alias)


# Who paused it, and why.


@alone
def test_a_pause_keeps_who_why_and_when_until_it_is_resumed(engine: Engine) -> None:
    schedule = made(engine)
    before = clock(engine)
    assert schedule.pause(by="ada", why="holidays")
    found = state(engine, schedule)
    assert (found.paused_by, found.paused_why) == ("ada", "holidays")
    assert before - SECOND < found.paused_at <= clock(engine)
    states(engine).update(paused_at=found.paused_at - 2 * HOUR)
    assert reason(schedule) == "Paused by ada 2 h ago: holidays. It makes no jobs until it is resumed."
    assert not schedule.pause(by="eve", why="again")
    assert state(engine, schedule).paused_by == "ada"
    assert schedule.resume(by="eve")
    found = state(engine, schedule)
    assert (found.paused_by, found.paused_why, found.paused_at) == ("", "", None)
    assert reason(schedule) == ""


@alone
def test_a_pause_by_nobody_or_by_save_says_when(engine: Engine) -> None:
    schedule, saved = made(engine), made(engine)
    schedule.pause()
    saved.enabled = False
    saved.save()
    for found in (schedule, saved):
        assert (state(engine, found).paused_by, state(engine, found).paused_why) == ("", "")
        states(engine).update(paused_at=clock(engine) - 2 * HOUR)
        assert reason(found) == "Paused 2 h ago. It makes no jobs until it is resumed."


@alone
def test_whoever_paused_it_is_stored_whatever_the_text(engine: Engine) -> None:
    schedule = made(engine)
    assert schedule.pause(by="b" * 300, why="\x00\ud800" + "w" * 2000)
    found = state(engine, schedule)
    assert found.paused_by == "b" * 255
    assert found.paused_why == "\N{REPLACEMENT CHARACTER}" * 2 + "w" * 998


# Run now.


@alone
@pytest.mark.parametrize("broken", ["timezone = 'Mars'", "type = 'no.such'", "payload = '[5]'", "missed_limit = 0"])
def test_a_broken_one_is_not_run_and_says_what_is_wrong(engine: Engine, broken: str) -> None:
    schedule = made(engine, name="a")
    sql(engine, f"UPDATE django_jobs_schedule SET {broken}")
    said = rf"^The schedule 'a' is broken, so nothing was made: {broken.split()[0]}"
    with pytest.raises(InvalidJob, match=said):
        again(schedule).run_now()
    assert not all_jobs(engine).exists()


@alone
def test_one_that_is_not_stored_is_not_run(engine: Engine) -> None:
    stored = made(engine, name="a")
    for unsaved in (Schedule(name="a", type=nothing.name, every=HOUR), Schedule(pk=stored.pk, name="a")):
        with pytest.raises(InvalidJob, match=r"^The schedule 'a' is not stored, so nothing was made; save it first\.$"):
            unsaved.run_now()
    assert not all_jobs(engine).exists()


@beside_others
def test_in_a_transaction_on_another_database_alone_it_is_not_run(engine: Engine) -> None:
    (other,) = {"default", "lite"} - {engine.alias}
    schedule = made(engine)
    with transaction.atomic(using=other):
        with pytest.raises(InvalidJob, match=rf"^A transaction is open on the database '{other}' and none"):
            schedule.run_now()
        assert not all_jobs(engine).exists()
        with transaction.atomic(using=engine.alias):
            schedule.run_now()
    assert all_jobs(engine).get().schedule == schedule.name


@beside_others
def test_inside_an_event_loop_it_is_refused_with_what_to_use(engine: Engine) -> None:
    schedule = made(engine)

    async def main() -> None:
        schedule.run_now()

    said = "run_now() was called inside a running event loop; use `await sync_to_async(schedule.run_now)()`."
    with pytest.raises(InvalidJobType, match=f"^{re.escape(said)}$"):
        asyncio.run(main())
    assert not all_jobs(engine).exists()

    def run() -> None:
        with closing(connections[engine.alias]):  # that of the loop's thread
            schedule.run_now()

    asyncio.run(sync_to_async(run)())
    assert all_jobs(engine).get().schedule == schedule.name


# Instances of a replica.


@pytest.fixture
def replica(engine: Engine) -> Iterator[str]:
    """Return a database that is read from, and has what the writer had a while ago."""
    (alias,) = {"default", "lite"} - {engine.alias}
    made(engine, name="a", code={"priority": 5})
    rows = list(Schedule.objects.using(engine.alias))
    models.QuerySet(Schedule, using=alias).bulk_create(rows)
    yield alias
    assert list(Schedule.objects.using(alias).values("enabled", "priority")) == [{"enabled": True, "priority": None}]
    assert not Job.objects.using(alias).exists()


@alone
def test_one_that_was_read_from_a_replica_is_acted_upon_where_it_is_written(engine: Engine, replica: str) -> None:
    def read() -> Schedule:
        found: Schedule = Schedule.objects.using(replica).get()
        return found

    stored = Schedule.objects.using(engine.alias).get()
    assert read()._state.db == replica
    assert read().pause(by="ada")
    assert (again(stored).enabled, again(stored).state.paused_by) == (False, "ada")
    assert read().resume()
    assert again(stored).enabled
    job = read().run_now()
    assert all_jobs(engine).get().pk == job.pk
    assert operate.take_back(read(), why="", by="") == ["priority"]
    assert again(stored).priority == 5
