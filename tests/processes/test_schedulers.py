"""Several schedulers, treated badly: every slot has one job, whoever makes it and whatever becomes of the rows."""

from __future__ import annotations

import os
import signal
import socket
import time
import zoneinfo
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from django.db.models.functions import Now

from django_jobs.engines import engine as engine_of
from django_jobs.models import Job, Schedule, ScheduleState
from tests.app.jobs import nothing
from tests.clocks import wrong_clock
from tests.engines.common import clock
from tests.harness import RunScheduler, Tree, wait_for
from tests.processes.common import needs_faketime, on_postgresql, with_tables
from tests.schedules.zone_files import ZONE, hosts

pytestmark = pytest.mark.process
NAMES = [f"tick {number}" for number in range(10)]


@pytest.fixture
def witness(tree: Tree) -> Iterator[None]:
    """Have every job that is stored counted in a plain table, which no key keeps from having two of a slot."""
    with connections[tree.alias].cursor() as cursor:
        cursor.execute(
            "CREATE TABLE witness (name text, slot timestamptz, at timestamptz DEFAULT clock_timestamp());"
            "CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO witness (name, slot) VALUES (NEW.schedule, NEW.slot); RETURN NULL; END $$;"
            "CREATE TRIGGER witness AFTER INSERT ON django_jobs_job FOR EACH ROW EXECUTE FUNCTION witness()"
        )
    yield
    with connections[tree.alias].cursor() as cursor:
        cursor.execute("DROP TRIGGER witness ON django_jobs_job; DROP FUNCTION witness; DROP TABLE witness")


def made(tree: Tree) -> list[tuple[str, datetime, datetime]]:
    with connections[tree.alias].cursor() as cursor:
        cursor.execute("SELECT name, slot, at FROM witness ORDER BY slot, name")
        return list(cursor.fetchall())


def make(tree: Tree) -> None:
    schedules = [
        Schedule(name=name, type=nothing.name, every=timedelta(seconds=1), payload={"args": [1], "kwargs": {}})
        for name in NAMES
    ]
    Schedule.objects.using(tree.alias).bulk_create(schedules)


def wait_for_seconds(tree: Tree, number: int) -> None:
    """Wait until so many more slots have had their jobs, and delete those."""
    wanted = len({slot for _name, slot, _at in made(tree)}) + number

    def reached() -> bool:
        Job.objects.using(tree.alias).all().delete()
        return len({slot for _name, slot, _at in made(tree)}) >= wanted

    wait_for(reached, timeout=20.0 + number, what=f"{number} more slots")


def assert_each_slot_once(tree: Tree) -> None:
    rows = made(tree)
    number = Counter((name, slot) for name, slot, _at in rows)
    assert set(number.values()) == {1}
    slots = sorted({slot for _name, slot in number})
    span = [slots[0] + timedelta(seconds=place) for place in range(len(slots))]
    assert slots == span
    for name in NAMES:
        # They were stored in one transaction, but their first slots may be a second apart.
        own = [slot for slot in span if number[name, slot]]
        assert own in (span, span[1:], span[:-1], span[1:-1])


@with_tables
@on_postgresql
def test_a_slot_has_one_job_though_schedulers_are_killed_and_frozen_and_jobs_deleted(tree: Tree, witness: None) -> None:
    make(tree)
    schedulers = [tree.start_scheduler() for _ in range(3)]
    for scheduler in schedulers:
        scheduler.wait_until_ready()
    wait_for_seconds(tree, 3)
    os.kill(schedulers[0].pid, signal.SIGKILL)
    schedulers[0].process.wait()
    wait_for_seconds(tree, 4)
    os.kill(schedulers[1].pid, signal.SIGSTOP)
    wait_for_seconds(tree, 5)
    os.kill(schedulers[1].pid, signal.SIGCONT)
    wait_for_seconds(tree, 4)
    assert [scheduler.stop() for scheduler in schedulers[1:]] == [0, 0]
    assert_each_slot_once(tree)


def skewed(tree: Tree, skew: str) -> RunScheduler:
    return tree.start_scheduler(env=wrong_clock(skew))


@with_tables
@on_postgresql
@needs_faketime
@pytest.mark.parametrize("skew", ["+2h", "-2h"])
def test_the_clock_of_the_schedulers_host_has_no_say(tree: Tree, witness: None, skew: str) -> None:
    make(tree)
    scheduler = skewed(tree, skew)
    scheduler.wait_until_ready()
    wait_for_seconds(tree, 4)
    said = scheduler.log.splitlines()[0]
    assert scheduler.stop() == 0
    assert_each_slot_once(tree)
    late = sorted((at - slot).total_seconds() for _name, slot, at in made(tree))
    assert late[0] >= 0
    assert late[len(late) // 2] < 60.0
    # That it was off at all: the first line of its log has its own time.
    hours = (datetime.fromisoformat(said.split(",")[0]) - datetime.fromtimestamp(time.time())).total_seconds() / 3600
    assert abs(hours - float(skew[:-1])) < 0.2


@with_tables
@on_postgresql
def test_two_hosts_with_different_zone_data_lose_no_slot_and_double_none(
    tree: Tree, witness: None, tmp_path: Path
) -> None:
    others = zoneinfo.TZPATH
    with hosts(tmp_path, old="EST5", new="EST4") as here:
        here.be("old")
        now = clock(engine_of(tree.alias))
        there = now.astimezone(ZoneInfo(ZONE)) - timedelta(minutes=30)  # and by the new data ninety minutes ago
        call = {"type": nothing.name, "payload": {"args": [1], "kwargs": {}}, "timezone": ZONE, "missed": "all"}
        each = Schedule.objects.create(name="each minute", expression="* 0-23 * * *", missed_limit=1000, **call)
        Schedule.objects.create(name="once a day", expression=f"{there.minute} {there.hour} * * *", **call)
    states = ScheduleState.objects.using(tree.alias)
    states.update(changed_at=now - timedelta(hours=2), wake_at=now)

    def start(host: str) -> RunScheduler:
        """Start a scheduler on a host, and have it look at all."""
        found = tree.start_scheduler(env={"PYTHONTZPATH": os.pathsep.join([str(tmp_path / host), *others])})

        def has_looked() -> bool:
            states.update(wake_at=Now())
            return set(states.values_list("looked_by", flat=True)) == {f"{socket.gethostname()}:{found.pid}"}

        wait_for(has_looked, what=f"{host} looks")
        return found

    both = [start("new"), start("old")]
    for _ in range(3):
        before = states.get(pk=each.pk).looked_at
        states.update(wake_at=Now())
        wait_for(lambda: states.get(pk=each.pk).looked_at > before)  # noqa: B023
    assert [host.stop() for host in both] == [0, 0]
    assert not states.exclude(error="").exists()
    slots = [slot for name, slot, _at in made(tree) if name == "each minute"]
    assert slots == [slots[0] + number * timedelta(minutes=1) for number in range(len(slots))]
    assert slots[0] - timedelta(minutes=1) <= now - timedelta(hours=2) < slots[0]
    assert slots[-1] >= now - timedelta(minutes=1)
    assert len([name for name, _slot, _at in made(tree) if name == "once a day"]) == 1
