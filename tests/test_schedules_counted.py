"""What the commands say of schedules beside their table: those in the code only, the counts of `status`, a job's slot."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django_jobs.models import Job, Schedule, ScheduleState
from django_jobs.schedules import sync
from django_jobs.schedules.status import START
from tests.acts import Ran
from tests.app.jobs import nothing
from tests.engines.common import alone, clock, sql
from tests.releases import release
from tests.test_schedules_command import NOW, alter, by_name, make

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


# Those that only the code has.


@alone
def test_what_no_scheduler_has_stored_yet_is_named_with_what_to_start(engine: Engine) -> None:
    with release(b={"every": 60}, a={"every": 60}):
        said = f"In the code, and stored when a scheduler starts ({START}): "
        assert Ran("schedules").out.splitlines() == ["No schedule matches.", "", f"{said}a, b"]
        for arguments in (
            ("run", "a"),
            ("schedules", "a"),
            ("pause", "--schedule", "a"),
            ("resume", "--schedule", "a"),
        ):
            ran = Ran(*arguments)
            assert (ran.code, ran.out) == (2, "")
            assert ran.error == f"The schedule 'a' is in the code, and is stored when a scheduler starts: {START}."
        make(engine, "a", "30 4 * * *")
        assert Ran("schedules").out.splitlines()[2:] == ["", f"{said}b"]
        assert Ran("run", "a").code == 0
        sync.sync(engine.alias)
        assert "In the code" not in Ran("schedules").out


# Beside the jobs.


def counted() -> list[str]:
    return [line for line in Ran("status").out.splitlines() if "chedule" in line]


@alone
def test_status_counts_schedules_by_what_a_person_should_know(engine: Engine) -> None:
    assert counted() == []
    nobodys = dict.fromkeys(("enabled", "paused", "broken", "overdue"), 0)
    assert Ran("status", "--json").data["schedules"] == nobodys
    make(engine, "paused", every=60, enabled=False)
    assert counted() == ["Schedules: 0 enabled, 1 paused"]
    for name in ("ok", "wrong", "late", "new", "unseen", "lost", "wrong and paused"):
        make(engine, name, every=60, enabled=name != "unseen")
    assert counted() == ["Schedules: 6 enabled, 2 paused"]
    minute = timedelta(minutes=1)
    alter(engine, "wrong", error="no", wake_at=clock(engine) - minute)
    Schedule.objects.using(engine.alias).get(name="wrong and paused").pause()
    alter(engine, "wrong and paused", error="no")
    alter(engine, "late", wake_at=clock(engine) - minute, next_run_at=clock(engine) - minute)
    alter(engine, "ok", wake_at=clock(engine) + minute, next_run_at=clock(engine) + minute)
    sql(engine, "UPDATE django_jobs_schedule SET enabled = true WHERE name = 'unseen'")
    ScheduleState.objects.using(engine.alias).filter(schedule__name="lost").delete()
    assert counted() == ["Schedules: 6 enabled, 2 paused, 1 broken, 3 overdue; see `jobs schedules`"]
    found = Ran("status", "--json").data["schedules"]
    assert found == {"enabled": 6, "paused": 2, "broken": 1, "overdue": 3}
    states = [row["state"] for row in by_name().values()]
    assert {name: states.count(name) for name in ("paused", "broken", "overdue")} == {
        name: found[name] for name in ("paused", "broken", "overdue")
    }


@alone
def test_a_job_is_shown_with_its_schedule_and_slot(engine: Engine) -> None:
    schedule = make(engine, "nightly", every=60)
    values = {"type": nothing.name, "payload": {"args": [], "kwargs": {}}}
    of_slot = Job.objects.using(engine.alias).create(schedule="nightly", slot=NOW, **values)
    by_hand = schedule.run_now()
    other = nothing.enqueue()

    def line(job: Job) -> list[str]:
        lines = [line.split(maxsplit=1) for line in Ran("show", str(job.pk)).out.splitlines()]
        return [words[1] for words in lines if words and words[0].rstrip(":") == "schedule"]

    assert line(of_slot) == ["nightly, slot 2025-11-30T12:00:00.000+00:00"]
    assert line(by_hand) == ["nightly, run now by a person"]
    assert line(other) == []
    assert Ran("show", str(of_slot.pk), "--json").data["schedule"] == "nightly"
