"""`jobs schedules`, `jobs run`, and pausing a schedule by command."""

from __future__ import annotations

import getpass
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

import django_jobs
from django_jobs import report_schedules
from django_jobs.management import text_schedules
from django_jobs.management.commands import jobs
from django_jobs.models import Job, Schedule, ScheduleState
from django_jobs.schedules import code, survey
from django_jobs.schedules.firing import offset
from django_jobs.schedules.status import START
from tests.acts import Ran
from tests.app.jobs import nothing
from tests.engines.common import alone, beside_others, clock, sql

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

# A winter's day, so that the next two changes of the clock in Berlin are known; long past, so that nothing is overdue.
NOW = datetime(2025, 11, 30, 12, tzinfo=UTC)

# "0.2 s", which is another when it is asked again.
AGE = re.compile(r" \d+(\.\d)? (s|min)\b")


@pytest.fixture(autouse=True)
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")


@pytest.fixture
def in_winter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the report be of that day; the rows need no other time."""
    monkeypatch.setattr(report_schedules, "database_now", lambda alias: NOW)


def make(engine: Engine, name: str, expression: str = "", **values: Any) -> Schedule:
    given = {"type": nothing.name, "timezone": "Europe/Berlin", **values}
    found = Schedule(name=name, expression=expression, **given)
    found.save(using=engine.alias)
    return found


def alter(engine: Engine, name: str, **values: Any) -> None:
    assert ScheduleState.objects.using(engine.alias).filter(schedule__name=name).update(**values) == 1


def by_name(*arguments: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in Ran("schedules", *arguments, "--json").data}


# The table.


@alone
def test_each_schedule_is_a_row_with_its_next_slots_in_its_own_zone(engine: Engine, in_winter: None) -> None:
    make(engine, "nightly", "30 2 * * *")
    make(engine, "quick", every=timedelta(minutes=90), timezone="UTC", anchor=NOW)
    assert Ran("schedules", "--next", "2").out.splitlines()[:5] == [
        "schedule  when        zone           next                       last slot  state",
        "nightly   30 2 * * *  Europe/Berlin  2025-12-01T02:30:00+01:00  -          ok",
        "                                     2025-12-02T02:30:00+01:00",
        "quick     every 90m   UTC            2025-11-30T13:30:00+00:00  -          ok",
        "                                     2025-11-30T15:00:00+00:00",
    ]


@alone
def test_with_a_zone_all_times_are_of_that_zone(engine: Engine, in_winter: None) -> None:
    make(engine, "nightly", "30 2 * * *")
    alter(engine, "nightly", last_slot=datetime(2025, 11, 30, 1, 30, tzinfo=UTC))
    ran = Ran("schedules", "--tz", "Asia/Tokyo")
    assert ran.out.splitlines()[:2] == [
        "schedule  when        zone           next (Asia/Tokyo)          last slot                  state",
        "nightly   30 2 * * *  Europe/Berlin  2025-12-01T10:30:00+09:00  2025-11-30T10:30:00+09:00  ok",
    ]
    assert by_name()["nightly"]["last_slot"] == "2025-11-30T02:30:00+01:00"


@alone
def test_the_slots_shown_are_those_of_the_schedule(engine: Engine) -> None:
    schedule = make(engine, "often", "*/7 3-5 * * *")
    before = clock(engine)
    (row,) = Ran("schedules", "often", "--next", "100", "--json").data
    shown = [datetime.fromisoformat(text) for text in row["next"]]
    assert shown in (schedule.next_slots(before, 100), schedule.next_slots(clock(engine), 100))


@alone
def test_each_state_is_shown_with_its_reason_and_can_be_asked_for(engine: Engine) -> None:
    for name in ("fine", "late", "still", "wrong", "gone"):
        make(engine, name, "30 2 * * *")
    now = clock(engine)
    alter(engine, "late", next_run_at=now - timedelta(minutes=5))
    Schedule.objects.using(engine.alias).get(name="still").pause(by="ada", why="holidays")
    sql(engine, "UPDATE django_jobs_schedule SET timezone = 'Mars' WHERE name = 'wrong'")
    Schedule.objects.using(engine.alias).filter(name="gone").update(code={})
    rows = by_name()
    assert {name: row["state"] for name, row in rows.items()} == {
        "fine": "ok", "late": "overdue", "still": "paused", "wrong": "broken", "gone": "orphaned",
    }  # fmt: skip
    for name, row in rows.items():
        assert list(by_name("--state", row["state"])) == [name]
        lines = Ran("schedules", name).out.splitlines()
        assert len(row["next"]) == (name not in ("still", "wrong"))
        said = [AGE.sub("", line) for line in lines if line.startswith(f"    {row['state']}: ")]
        assert said == ([AGE.sub("", f"    {row['state']}: {row['reason']}")] if name != "fine" else [])
    assert AGE.sub("", rows["still"]["reason"]) == "Paused by ada ago: holidays. It makes no jobs until it is resumed."
    assert "Time zone 'Mars' is not known here" in rows["wrong"]["reason"]
    assert "start `manage.py runworkers`" in rows["late"]["reason"]
    assert Ran("schedules", "--state", "ok", "late").out == "No schedule matches.\n"


@alone
def test_one_whose_jobs_a_pause_holds_is_held_and_can_be_asked_for(engine: Engine) -> None:
    for name, queue in (("fine", "other"), ("here", "mail"), ("late", "mail")):
        make(engine, name, "30 2 * * *", queue=queue)
    alter(engine, "late", next_run_at=clock(engine) - timedelta(minutes=5))
    django_jobs.pause(queue="mail", until=datetime(2126, 1, 2, 3, 4, tzinfo=UTC))
    held_by = "the queue 'mail' is paused until 2126-01-02T03:04:00+00:00"
    assert {name: (row["state"], row["held_by"], len(row["next"])) for name, row in by_name().items()} == {
        "fine": ("ok", "", 1), "here": ("held", held_by, 1), "late": ("overdue", held_by, 1),
    }  # fmt: skip
    assert list(by_name("--state", "held")) == ["here"]
    said = Ran("schedules").out.splitlines()
    assert f"    held: Its jobs are made, and wait: {held_by}." in said
    assert f"    its jobs are held: {held_by}" in said
    ran = Ran("run", "here")
    assert (
        ran.out
        == f"Job {Job.objects.using(engine.alias).get().pk} of the schedule 'here' is made. It waits: {held_by}.\n"
    )


BROKEN = [
    "timezone = ''",
    "timezone = '../x'",
    "expression = '61 * * * *'",
    "expression = '0 0 30 2 *'",
    "payload = '[5]'",
    "payload = '{}'",
    "type = 'no.such'",
    "missed = 'never'",
    "spread = {}",
    "missed_limit = -1",
]


@alone
@pytest.mark.parametrize("broken", BROKEN)
def test_what_was_broken_by_hand_is_a_row_with_the_reason_and_the_others_are_shown(engine: Engine, broken: str) -> None:
    make(engine, "a", "30 2 * * *")
    make(engine, "b", "30 2 * * *")
    negative = "-1 * interval '5 s'" if engine.name == "postgresql" else "-5000000"
    # The values stand in the statement: a type of a column's own would refuse some of them.
    sql(engine, f"UPDATE django_jobs_schedule SET {broken.replace('{}', negative) if 'spread' in broken else broken} "
        "WHERE name = 'a'")  # fmt: skip
    rows = by_name()
    assert (rows["a"]["state"], bool(rows["a"]["reason"]), rows["b"]["state"]) == ("broken", True, "ok")
    ran = Ran("schedules")
    assert (ran.code, ran.err) == (0, "")
    assert f"    broken: {rows['a']['reason']}" in ran.out.splitlines()


@alone
def test_an_orphan_that_is_broken_as_well_is_a_row(engine: Engine) -> None:
    make(engine, "a", "30 2 * * *")
    sql(engine, "UPDATE django_jobs_schedule SET timezone = 'Mars', code = '{}' WHERE name = 'a'")
    row = by_name()["a"]
    assert (row["state"], row["next"], row["clock_changes"]) == ("orphaned", [], [])
    assert row["reason"].startswith(
        "The code that runs here no longer has it; nothing is made, because timezone: Time zone"
    )


@alone
def test_an_error_of_the_scheduler_is_the_reason_on_one_line(engine: Engine) -> None:
    make(engine, "a", "30 2 * * *")
    alter(engine, "a", error="it failed\n  twice")
    assert Ran("schedules").out.splitlines()[2] == "    broken: it failed twice"


@alone
def test_a_schedule_that_no_scheduler_has_seen_is_a_row(engine: Engine) -> None:
    make(engine, "a", "30 2 * * *")
    ScheduleState.objects.using(engine.alias).all().delete()
    row = by_name()["a"]
    assert (row["state"], row["fired"], row["last_slot"]) == ("overdue", 0, None)


@alone
def test_counts_are_shown_when_something_did_not_run(engine: Engine) -> None:
    make(engine, "all", every=60)
    make(engine, "some", every=60)
    alter(engine, "all", fired=9)
    alter(engine, "some", fired=9, missed=3, dropped=2)
    assert [line for line in Ran("schedules").out.splitlines() if "fired" in line] == [
        "    9 fired, 3 missed, 2 dropped"
    ]
    assert by_name()["all"]["fired"] == 9


@alone
def test_what_is_kept_otherwise_than_the_code_says_is_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = code.CodeSchedule(name="a", type=nothing.name, values={}, place="here")
    monkeypatch.setattr(code, "_schedules", {"a": found})
    schedule = make(engine, "a", "30 2 * * *")
    Schedule.objects.using(engine.alias).filter(pk=schedule.pk).update(code={"priority": 5, "queue": ""})
    assert by_name()["a"]["overridden"] == ["priority"]
    assert "    kept otherwise than the code says: priority" in Ran("schedules").out.splitlines()


@alone
def test_jobs_that_are_due_after_their_slots_are_said_to_be(engine: Engine) -> None:
    spread = make(engine, "a", every=3600, spread=600)
    make(engine, "b", every=3600)
    later = offset(spread).total_seconds()
    assert 0 < later < 600
    assert [line for line in Ran("schedules").out.splitlines() if "spread" in line] == [
        f"    its jobs are due {later:g} s after their slots (spread)"
    ]
    rows = by_name()
    assert [(row["spread"], row["due_after"]) for row in rows.values()] == [(600.0, later), (None, 0.0)]


@alone
def test_one_that_was_enabled_past_django_is_overdue_until_a_scheduler_sees_it(engine: Engine) -> None:
    make(engine, "a", "30 2 * * *", enabled=False)
    sql(engine, "UPDATE django_jobs_schedule SET enabled = true")
    row = by_name()["a"]
    assert (row["state"], row["reason"]) == (
        "overdue", f"It was enabled past Django, and no scheduler has seen it since; {START}.",
    )  # fmt: skip
    survey.adopt(engine.alias)
    assert by_name()["a"]["state"] == "ok"


@alone
def test_an_orphan_that_the_scheduler_could_not_run_says_so(engine: Engine) -> None:
    make(engine, "a", "30 2 * * *", code={})
    goes_on = "The code that runs here no longer has it; it goes on until it is paused or deleted."
    assert by_name()["a"]["reason"] == goes_on
    alter(engine, "a", error="the disk is full")
    row = by_name()["a"]
    assert (row["state"], row["reason"]) == (
        "orphaned", "The code that runs here no longer has it; nothing is made, because the disk is full",
    )  # fmt: skip


@alone
def test_what_stands_for_the_code_that_is_none_keeps_no_schedule_from_being_shown(engine: Engine) -> None:
    for name, said in (("a", "5"), ("b", "[]"), ("c", '"x"'), ("d", "{}")):
        make(engine, name, "30 2 * * *")
        sql(engine, "UPDATE django_jobs_schedule SET code = %s WHERE name = %s", said, name)
    assert {(row["state"], tuple(row["overridden"])) for row in by_name().values()} == {("orphaned", ())}


# Clock changes.


@alone
@pytest.mark.parametrize(
    ("expression", "policies", "effects"),
    [
        ("30 2 * * *", {}, ["moved to 03:00: 02:30", "first only: 02:30"]),
        ("30 2 * * *", {"nonexistent": "skip", "ambiguous": "both"}, ["skipped: 02:30", "doubled: 02:30"]),
        ("30 2 * * *", {"ambiguous": "second"}, ["moved to 03:00: 02:30", "second only: 02:30"]),
        ("*/10 2 * * *", {"nonexistent": "skip"}, [
            "skipped: 02:00, 02:10, 02:20, 02:30, 02:40 and 1 more",
            "first only: 02:00, 02:10, 02:20, 02:30, 02:40 and 1 more",
        ]),
        ("30 4 * * *", {}, []),
        ("30 * * * *", {}, []),
    ],
)  # fmt: skip
def test_the_next_two_changes_of_the_clock_say_what_they_do_to_it(
    engine: Engine, in_winter: None, expression: str, policies: dict[str, str], effects: list[str]
) -> None:
    make(engine, "a", expression, **policies)
    heads = [
        "Clock change in Europe/Berlin: forward by 1:00, 2026-03-29 02:00 -> 2026-03-29 03:00",
        "Clock change in Europe/Berlin: back by 1:00, 2026-10-25 03:00 -> 2026-10-25 02:00",
    ]
    said = [line for head, effect in zip(heads, effects, strict=False) for line in (head, f"    a: {effect}")]
    assert Ran("schedules").out.splitlines()[2:] == (["", *said] if said else [])


@alone
def test_a_change_that_touches_nothing_is_shown_when_a_slot_shown_comes_after_it(
    engine: Engine, in_winter: None
) -> None:
    make(engine, "a", "0 12 1 * *")
    assert by_name("--next", "4")["a"]["clock_changes"] == []
    (change,) = by_name("--next", "5")["a"]["clock_changes"]
    assert (change["at"], change["effect"], change["readings"]) == ("2026-03-29T01:00:00+00:00", "unaffected", [])
    assert Ran("schedules", "--next", "5").out.splitlines()[7:] == [
        "Clock change in Europe/Berlin: forward by 1:00, 2026-03-29 02:00 -> 2026-03-29 03:00",
        "    none of these has a slot then",
    ]


@alone
def test_below_a_change_as_many_are_named_as_can_be_read(
    engine: Engine, in_winter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_schedules, "MOST_NAMED", 2)
    for name in "abc":
        make(engine, name, "30 2 * * *")
    lines = Ran("schedules").out.splitlines()
    assert lines[6:9] == [
        "    a: moved to 03:00: 02:30",
        "    b: moved to 03:00: 02:30",
        "    and 1 more; name those that you want to see",
    ]


# Many.


@alone
def test_however_many_there_are_the_number_of_queries_is_the_same(engine: Engine) -> None:
    counts = []
    for number in range(1, 22, 10):
        make(engine, f"s{number}", "30 2 * * *")
        Schedule.objects.using(engine.alias).bulk_create(
            Schedule(name=f"s{number}.{part}", type=nothing.name, expression="30 2 * * *") for part in range(9)
        )
        with CaptureQueriesContext(connections[engine.alias]) as queries:
            Ran("schedules", "--next", "3")
        counts.append(len(queries))
    assert counts[0] == counts[1] == counts[2] <= 4


@alone
def test_more_than_can_be_shown_are_cut_with_a_word_on_what_to_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LONGEST_LIST", 6)
    for name in "abcd":
        make(engine, name, "30 4 * * *")
    says = "There are more: these are the first 3. Name those that you want, or give --state."
    assert Ran("schedules", "--next", "2").out.splitlines()[7:] == [says]
    assert list(by_name("--next", "2")) == ["a", "b", "c"]
    assert says not in Ran("schedules", "a", "b", "c", "--next", "2").out


@alone
def test_without_a_schedule_it_says_so(engine: Engine) -> None:
    assert Ran("schedules").out == "No schedule matches.\n"
    assert json.loads(Ran("schedules", "--json").out) == []


# What cannot be used.


@alone
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("schedules --next 0", "'0' is not a number of slots (--next): give a whole number from 1 to 100."),
        ("schedules --next many", "'many' is not a number of slots (--next): give a whole number from 1 to 100."),
        ("schedules --next 101", "'101' is not a number of slots (--next): give a whole number from 1 to 100."),
        ("schedules --tz Mars", "--tz: Time zone 'Mars' is not known here; give a name of the IANA database"),
        ("schedules --tz=", "--tz: Time zone '' is not known here; give a name of the IANA database"),
        ("schedules --state good", "--state is 'good'; give one of ok, overdue, held, paused, broken, orphaned."),
        ("schedules a none", "There is no schedule 'none'; `jobs schedules` lists those that there are."),
        ("schedules \udcff", "the name of a schedule"),
        ("run none", "There is no schedule 'none'; `jobs schedules` lists those that there are."),
        ("pause --schedule none", "There is no schedule 'none'; `jobs schedules` lists those that there are."),
        ("resume --schedule none", "There is no schedule 'none'; `jobs schedules` lists those that there are."),
        ("pause --schedule a --queue b", "Give one of --queue, --type and --schedule."),
        ("pause --schedule a --for 5", "--for is '5'; a schedule is paused until it is resumed: leave it out."),
        ("pause --schedule a --until 2030-01-01", "--until is '2030-01-01'; a schedule is paused until it is resumed"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line_and_changes_nothing(
    engine: Engine, arguments: str, says: str
) -> None:
    make(engine, "a", "30 2 * * *")
    ran = Ran(*arguments.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.error.startswith(says)
    assert "\n" not in ran.error
    assert Schedule.objects.using(engine.alias).get().enabled
    assert Job.objects.using(engine.alias).count() == 0


# Acts.


@beside_others
def test_pause_and_resume_by_command_are_logged_with_who_and_why(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = make(engine, "a", "30 2 * * *")
    caplog.set_level(logging.INFO, "django_jobs")
    paused = "The schedule 'a' is paused until it is resumed. Jobs that it made stay.\n"
    assert Ran("pause", "--schedule", "a", "--why", "holidays").out == paused
    schedule.refresh_from_db()
    assert (schedule.enabled, schedule.state.wake_at) == (False, None)
    assert Ran("pause", "--schedule", "a").out == "The schedule 'a' was paused already.\n"
    assert Ran("resume", "--schedule", "a", "--json").data == {"kind": "schedule", "name": "a", "resumed": True}
    assert Ran("resume", "--schedule", "a").out == "The schedule 'a' was not paused.\n"
    schedule = Schedule.objects.using(engine.alias).get()
    assert schedule.enabled
    assert schedule.state.wake_at is not None
    assert caplog.messages == ["Schedule a is paused by ada: holidays", "Schedule a is resumed by ada"]


@beside_others
def test_run_makes_a_job_and_says_which_and_the_next_slot_stays(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    make(engine, "a", "30 2 * * *", payload={"args": [7], "kwargs": {}}, queue="mail", enabled=False)
    before = ScheduleState.objects.using(engine.alias).values().get()
    caplog.set_level(logging.INFO, "django_jobs")
    ran = Ran("run", "a", "--why", "the first was wrong")
    job = Job.objects.using(engine.alias).get()
    assert ran.out == f"Job {job.pk} of the schedule 'a' is made.\n"
    assert (job.schedule, job.slot, job.idempotency_key, job.args, job.queue) == ("a", None, None, [7], "mail")
    assert ScheduleState.objects.using(engine.alias).values().get() == before
    assert caplog.messages == [f"Schedule a is run now, as job {job.pk}, by ada: the first was wrong"]
    again = Ran("run", "a", "--json").data
    assert again == {"id": Job.objects.using(engine.alias).latest("id").pk, "schedule": "a", "held_by": ""}


@alone
@pytest.mark.parametrize("broken", ["timezone = 'Mars'", "type = 'no.such'", "payload = '[5]'", "expression = 'x'"])
def test_a_broken_schedule_is_not_run(engine: Engine, broken: str) -> None:
    make(engine, "a", "30 2 * * *")
    sql(engine, f"UPDATE django_jobs_schedule SET {broken} WHERE name = 'a'")
    ran = Ran("run", "a")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error.startswith(f"The schedule 'a' is broken, so nothing was made: {broken.split()[0]}")
    assert Job.objects.using(engine.alias).count() == 0


@alone
def test_one_whose_row_cannot_be_read_is_a_row_and_is_paused_but_not_run(engine: Engine) -> None:
    make(engine, "a", "30 2 * * *")
    wrong = {"postgresql": "anchor = 'infinity'", "sqlite": "missed_grace = 'abc'"}[engine.name]
    sql(engine, f"UPDATE django_jobs_schedule SET {wrong} WHERE name = 'a'")
    row = by_name()["a"]
    assert (row["state"], row["reason"].startswith("Its row cannot be read: ")) == ("broken", True)
    ran = Ran("run", "a")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error.startswith("The schedule 'a' is broken, so nothing was made: Its row cannot be read: ")
    assert Ran("pause", "--schedule", "a").code == 0
    assert Schedule.objects.using(engine.alias).filter(name="a", enabled=False).exists()
