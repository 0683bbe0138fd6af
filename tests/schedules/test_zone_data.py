"""Hosts whose data of a time zone differ: no occurrence is lost and none fires twice, whichever of them ticks."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.models import Schedule, ScheduleState
from django_jobs.schedules import step, survey
from django_jobs.zones import data_of, zone
from tests.app.jobs import nothing
from tests.engines.common import alone, clock
from tests.schedules.common import DAY, HOUR, MINUTE, SECOND, look, made, since, slots, state, tick
from tests.schedules.zone_files import ZONE, Hosts, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.engines.base import Engine

START = datetime(2026, 11, 28, 20, tzinfo=UTC)
WEST, EAST = "EST5", "AST4"  # 02:30 is 07:30 in UTC, and 06:30


class Life:
    """A schedule on which hosts look in turn, at times that the test says."""

    def __init__(self, hosts: Hosts, expression: str, start: datetime = START, **values: Any) -> None:
        self.hosts = hosts
        self.schedule = Schedule(
            pk=1, name="z", type=nothing.name, expression=expression, timezone=ZONE, **{"missed": "all", **values}
        )
        none = {"last_slot": None, "next_run_at": None, "pending_slot": None, "last_job": None}
        text = {"timing": "", "zone_data": "", "last_reading": "", "error": ""}
        numbers = dict.fromkeys(("last_fold", "errors", "fired", "missed", "skipped", "dropped"), 0)
        self.state: Any = ScheduleState(pk=1, changed_at=start, **none, **text, **numbers)
        self.fired: list[datetime] = []

    def tick(self, host: str, at: datetime) -> list[datetime]:
        """Look as this host; return the slots that fired."""
        self.hosts.be(host)
        self.state.clock = at
        found = step.look(self.schedule, self.state, busy=False)
        assert not found.error
        assert self.state.last_slot is None or found.fields.get("last_slot", at) > self.state.last_slot
        for name, value in found.fields.items():
            setattr(self.state, name, value)
        fired = [job.terms.slot for job in found.jobs if job.terms.slot is not None]
        self.fired += fired
        return fired


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, west=WEST, east=EAST) as found:
        yield found


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


@pytest.mark.fast
def test_the_files_are_zones_of_which_the_hosts_have_different_data(two: Hosts) -> None:
    found = {}
    for host in ("west", "east"):
        two.be(host)
        found[host] = (START.astimezone(zone(ZONE)).utcoffset(), data_of(ZONE))
    assert [offset for offset, _data in found.values()] == [-5 * HOUR, -4 * HOUR]
    assert found["west"][1] != found["east"][1]


@pytest.mark.fast
def test_an_occurrence_that_has_fired_is_passed_over_by_a_host_that_has_it_later(two: Hosts) -> None:
    life = Life(two, "30 2 * * *")
    assert life.tick("east", at(29, 6, 30)) == [at(29, 6, 30)]
    assert life.tick("west", at(29, 7, 30)) == []
    assert life.state.next_run_at == at(30, 7, 30)
    assert life.state.missed == 0
    assert life.tick("east", at(30, 7, 30)) == [at(30, 6, 30)]


def test_an_occurrence_that_came_earlier_by_this_hosts_data_fires_once_by_the_missed_policy(two: Hosts) -> None:
    for missed, fires in (("skip", []), ("latest", [at(29, 6, 30)]), ("all", [at(29, 6, 30)])):
        life = Life(two, "30 2 * * *", missed=missed)
        assert life.tick("east", at(29, 9)) == fires
        assert life.tick("west", at(29, 10)) == []
        assert (life.state.missed, life.state.dropped) == (1, 1 - len(fires))


@pytest.mark.parametrize("missed", ["skip", "latest", "all"])
def test_an_occurrence_that_another_host_had_planned_for_now_fires_by_every_policy(two: Hosts, missed: str) -> None:
    life = Life(two, "30 2 * * *", missed=missed)
    assert life.tick("west", at(28, 21)) == []
    assert life.state.next_run_at == at(29, 7, 30)
    assert life.tick("east", at(29, 7, 30)) == [at(29, 6, 30)]
    assert life.state.missed == 0
    assert life.tick("west", at(29, 7, 31)) == []


def test_an_occurrence_is_missed_when_it_is_late_by_both_hosts_data(two: Hosts) -> None:
    life = Life(two, "30 2 * * *", missed="skip")
    life.tick("west", at(28, 21))
    assert life.tick("east", at(29, 7, 32)) == []
    assert (life.state.missed, life.state.dropped) == (1, 1)
    assert life.tick("west", at(29, 7, 33)) == []


def test_what_follows_real_time_is_not_passed_over(tmp_path: Path) -> None:
    with hosts(tmp_path, whole="EST5", half="EHT4:30") as found:
        life = Life(found, "0 * * * *")
        assert life.tick("half", START + HOUR) == [START + 30 * MINUTE]
        assert life.tick("whole", START + HOUR) == [START + HOUR]
        assert life.tick("half", START + 90 * MINUTE) == [START + 90 * MINUTE]
        assert life.state.last_reading == ""


def test_the_second_pass_of_a_local_time_is_no_occurrence_that_was_had(tmp_path: Path) -> None:
    start = datetime(2026, 10, 24, 20, tzinfo=UTC)
    with hosts(tmp_path, new=CHANGES, old="CET-1CEST,M3.5.0,M10.5.0/4") as found:
        life = Life(found, "*/20 2 * * *", start, ambiguous="both")
        for minute in range(0, 12 * 60, 5):
            life.tick("new", start + minute * MINUTE)
        assert len(life.fired) == 6
        assert life.fired[3] - life.fired[0] == HOUR
        for minute in range(0, 12 * 60, 5):
            life.tick("old", start + 12 * HOUR + minute * MINUTE)
        assert len(life.fired) == 6


CHANGES = "CET-1CEST,M3.5.0,M10.5.0/3"


def test_local_times_before_the_last_one_do_not_come_again_when_both_passes_are_wanted(two: Hosts) -> None:
    life = Life(two, "*/10 1-3 * * *", ambiguous="both")
    for minute in range(0, 24 * 60, 10):
        life.tick("east", START + minute * MINUTE)
    assert len(life.fired) == 18
    life = Life(two, "*/10 1-3 * * *", ambiguous="both")
    for minute in range(0, 24 * 60, 10):
        life.tick("east" if START + minute * MINUTE <= at(29, 7, 50) else "west", START + minute * MINUTE)
    assert len(life.fired) == 18


# Whichever host ticks, in whatever order.

PAIRS = [(WEST, EAST), ("CET-1", CHANGES), (CHANGES, "CET-1CEST,M3.5.0,M10.5.0/4"), ("EET-2", "CET-1"), ("A11", "B-13")]
CAMPAIGNS = [START, datetime(2026, 3, 27, 20, tzinfo=UTC), datetime(2026, 10, 23, 20, tzinfo=UTC)]
some_ticks = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 1500)), min_size=2, max_size=25)


@contextmanager
def pair(rules: tuple[str, str]) -> Iterator[Hosts]:
    with TemporaryDirectory() as directory, hosts(Path(directory), a=rules[0], b=rules[1]) as found:
        yield found


cheap = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@cheap
@given(st.sampled_from(PAIRS[:4]), st.sampled_from(CAMPAIGNS), some_ticks)
def test_a_daily_occurrence_fires_on_each_day_once_whichever_host_looks_when(
    rules: tuple[str, str], start: datetime, ticks: list[tuple[str, int]]
) -> None:
    with pair(rules) as found:
        life = Life(found, "30 14 * * *", start)
        now = start
        for host, minutes in ticks:
            now += minutes * MINUTE
            life.tick(host, now)
        end = now.replace(hour=3, minute=0) + DAY  # all hosts have had the days up to this one
        for host in ("a", "b", "a"):
            life.tick(host, end)
        days = Counter(slot.date() for slot in life.fired)
        expected = {(start + (1 + number) * DAY).date() for number in range((end.date() - start.date()).days - 1)}
        assert days == dict.fromkeys(expected, 1)
        assert life.state.dropped == 0


@cheap
@given(
    st.sampled_from(PAIRS), st.sampled_from(CAMPAIGNS), st.sampled_from(["*/20 1-4 * * *", "0 0-23 * * *"]), some_ticks
)
def test_no_local_time_fires_twice_whichever_host_looks_when(
    rules: tuple[str, str], start: datetime, expression: str, ticks: list[tuple[str, int]]
) -> None:
    with pair(rules) as found:
        life = Life(found, expression, start)
        now, had = start, []
        for host, minutes in ticks:
            now += minutes * MINUTE
            fired = life.tick(host, now)
            had += [slot.astimezone(zone(ZONE)).replace(tzinfo=None) for slot in fired]
        assert life.fired == sorted(set(life.fired))
        assert had == sorted(had)
        # What fell into a gap is shown as the time after it, which may be due itself.
        assert "," in "".join(rules) or had == sorted(set(had))


# In the database.


@pytest.mark.contract
@alone
def test_a_tick_keeps_the_local_time_and_the_data_of_what_it_did(engine: Engine, two: Hosts) -> None:
    two.be("east")
    now = clock(engine)
    local = (now - 2 * MINUTE).astimezone(zone(ZONE)).replace(second=0, microsecond=0)
    schedule = made(engine, expression=f"{local.minute} {local.hour} * * *", timezone=ZONE, missed="all")
    since(engine, schedule, HOUR)
    assert tick(engine).fired == 1
    found = state(engine, schedule)
    assert found.last_reading == local.replace(tzinfo=None).isoformat()
    assert found.zone_data == data_of(ZONE)
    assert found.next_run_at - found.last_slot == DAY

    two.be("west")
    survey.recompute_stale(engine.alias)
    assert tick(engine) == (1, 0)
    found = state(engine, schedule)
    assert found.zone_data == data_of(ZONE)
    assert found.next_run_at - found.last_slot == DAY + HOUR
    since(engine, schedule, 2 * HOUR, last_slot=found.last_slot - HOUR)
    assert look(engine, schedule) == 0
    assert len(slots(engine)) == 1
    survey.recompute_stale(engine.alias)
    assert tick(engine) == (0, 0)


@pytest.mark.contract
@alone
def test_only_what_was_computed_from_other_data_is_looked_at_by_a_scheduler_that_starts(
    engine: Engine, two: Hosts
) -> None:
    two.be("east")
    zoned = made(engine, expression="30 2 * * *", timezone=ZONE)
    made(engine, expression="30 2 * * *", timezone="Europe/Berlin")
    made(engine, every=DAY, timezone=ZONE)
    made(engine, expression="30 2 * * *", timezone=ZONE).pause()
    assert tick(engine).taken == 3
    survey.recompute_stale(engine.alias)
    assert tick(engine).taken == 0
    two.be("west")
    survey.recompute_stale(engine.alias)
    assert tick(engine).taken == 1
    found = state(engine, zoned)
    assert clock(engine) - found.looked_at < 10 * SECOND


@pytest.mark.contract
@alone
def test_a_host_without_the_zone_breaks_the_schedule_and_one_that_has_it_repairs_it(
    engine: Engine, tmp_path: Path
) -> None:
    with hosts(tmp_path, has=EAST) as found:
        (tmp_path / "lacks").mkdir()
        found.be("has")
        schedule = made(engine, expression="* * * * *", timezone=ZONE, missed="all")
        since(engine, schedule, 10 * MINUTE)
        assert tick(engine).fired in (10, 11)
        found.be("lacks")
        survey.recompute_stale(engine.alias)
        assert tick(engine) == (1, 0)
        assert f"Time zone '{ZONE}' is not known here" in state(engine, schedule).error
        found.be("has")
        assert look(engine, schedule) == 0
        assert state(engine, schedule).error == ""
        assert state(engine, schedule).missed in (9, 10, 8)
        assert timedelta(0) < state(engine, schedule).next_run_at - clock(engine) <= MINUTE
