"""The writer: every outcome becomes durable once, whatever happens to the batch that it was in."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import DataError, OperationalError

from django_jobs import log
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Done, Settlement, released
from django_jobs.models import Job
from django_jobs.queue import rescue
from django_jobs.workers.ended import Ended
from tests.harness import wait_for
from tests.processes.common import on_postgresql, with_tables
from tests.processes.parts import Desk, claim, claimed, desk, raised, states
from tests.threads import session

pytestmark = with_tables
# PostgreSQL refuses a NUL, and the driver of SQLite a lone surrogate.
UNSTORABLE = "\x00\ud800"


Given = tuple[Claimed, Done | Settlement]


def done(job: Claimed) -> Given:
    return job, Done(job.run, '"result"')


def failed(job: Claimed, error: str = "it failed") -> Given:
    return job, raised(job, error)


class Failing:
    """Replaces a method of an engine: fails as often as told, before or after the real thing was done."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, engine: Engine, name: str, *errors: Exception, after: bool = False
    ):
        self.real = getattr(engine, name)
        self.errors = list(errors)
        self.after = after
        self.calls = 0
        monkeypatch.setattr(engine, name, self)

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if not self.errors:
            return self.real(*arguments)
        if self.after:
            self.real(*arguments)
        raise self.errors.pop(0)


def test_one_outcome_that_cannot_be_stored_fails_alone(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    jobs = claimed(engine, 40)

    def given(found: Desk) -> None:
        found.put(*[done(job) for job in jobs[:20]])
        found.put(*[failed(job, UNSTORABLE if job is jobs[27] else "it failed") for job in jobs[20:]])

    with desk(engine, given=given) as found:
        wait_for(lambda: len(found.freed) == 40)
    assert sorted(found.freed) == list(range(40))
    assert found.region.seats() == []
    expected = [("done", 0, 0, 1)] * 20 + [("ready", 1, 0, 1)] * 20
    expected[27] = ("failed", 0, 0, 1)
    assert states(engine, jobs) == expected
    row = Job.objects.using(engine.alias).get(pk=jobs[27].id)
    assert row.last_error == "The outcome of this run could not be stored."
    assert [record.message.split(";")[0] for record in caplog.records if "cannot be stored" in record.message] == [
        f"The outcome of job {jobs[27].id} cannot be stored"
    ]


def test_a_result_that_cannot_be_stored_fails_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = claimed(engine, 5)
    real = engine.complete

    def complete(items: list[Done]) -> dict[int, str]:
        if any(item.run.id == jobs[3].id for item in items):
            raise DataError("invalid input")
        return real(items)

    monkeypatch.setattr(engine, "complete", complete)
    with desk(engine, given=lambda found: found.put(*map(done, jobs))) as found:
        wait_for(lambda: len(found.freed) == 5)
    assert [status for status, *_ in states(engine, jobs)] == ["done", "done", "done", "failed", "done"]


def test_errors_of_the_database_are_retried_until_all_is_stored(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = claimed(engine, 6)
    errors = [OperationalError("deadlock detected") for _ in range(5)]
    failing = Failing(monkeypatch, engine, "complete", *errors)
    with desk(engine, given=lambda found: found.put(*map(done, jobs))) as found:
        wait_for(lambda: len(found.freed) == 6)
    assert states(engine, jobs) == [("done", 0, 0, 1)] * 6
    assert failing.calls > 5


def test_an_outage_is_waited_out_with_nothing_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "django_jobs")
    jobs = claimed(engine, 6)
    Failing(monkeypatch, engine, "complete", *[OperationalError("server closed the connection") for _ in range(3)])
    answers = [False, False, False]
    monkeypatch.setattr(engine, "probe", lambda timeout: not answers or answers.pop())
    with desk(engine, given=lambda found: found.put(*map(done, jobs))) as found:
        wait_for(lambda: len(found.freed) == 6)
    assert states(engine, jobs) == [("done", 0, 0, 1)] * 6
    said = [record.message for record in caplog.records if "jobs' database" in record.message]
    assert ["cannot be reached" in said[0], "is back after" in said[1], len(said)] == [True, True, 2]


def test_a_batch_whose_answer_was_lost_is_sent_again_and_is_no_lost_lease(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = claimed(engine, 6)
    Failing(monkeypatch, engine, "complete", OperationalError("connection reset"), after=True)
    Failing(monkeypatch, engine, "settle", OperationalError("connection reset"), after=True)
    given = [*map(done, jobs[:3]), *map(failed, jobs[3:])]
    with desk(engine, given=lambda found: found.put(*given)) as found:
        wait_for(lambda: len(found.freed) == 6)
    assert states(engine, jobs) == [("done", 0, 0, 1)] * 3 + [("ready", 1, 0, 1)] * 3
    assert not [record for record in caplog.records if "Lost lease" in record.message]
    counters = found.region.counters()
    assert (counters["done"], counters["retried"], counters["lost_leases"]) == (3, 3, 0)


def test_what_became_of_a_job_is_read_when_the_answer_was_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = claimed(engine, 4)
    rows = {row.pk: row for row in Job.objects.using(engine.alias).all()}
    for job in (jobs[0], jobs[2]):
        rows[job.id].cancel()
    Failing(monkeypatch, engine, "complete", OperationalError("connection reset"), after=True)
    Failing(monkeypatch, engine, "settle", OperationalError("connection reset"), after=True)
    lost = raised(jobs[3], counts="loss", witnessed=False)
    Job.objects.using(engine.alias).filter(pk=jobs[3].id).update(losses=9)
    given: list[Given] = [done(jobs[0]), done(jobs[1]), failed(jobs[2]), (jobs[3], lost)]
    with desk(engine, given=lambda found: found.put(*given)) as found:
        wait_for(lambda: len(found.freed) == 4)
    expected = ["cancelled", "done", "cancelled", "dead"]
    assert [status for status, *_ in states(engine, jobs)] == expected
    counters = found.region.counters()
    assert [counters[name] for name in ("done", "cancelled", "dead", "retried")] == [1, 2, 1, 0]
    said = [record.message for record in caplog.records if record.message.startswith(f"Job {jobs[3].id} ")]
    assert "is dead" in said[0]


def test_no_seat_is_freed_twice_when_only_a_part_of_a_batch_could_be_stored(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = claimed(engine, 4)
    # The successes are stored, and then the failures are not at first.
    Failing(monkeypatch, engine, "settle", OperationalError("deadlock detected"), OperationalError("deadlock detected"))
    given = [*map(done, jobs[:2]), *map(failed, jobs[2:])]
    with desk(engine, given=lambda found: found.put(*given)) as found:
        wait_for(lambda: len(found.freed) >= 4)
    assert sorted(found.freed) == [0, 1, 2, 3]


def test_outcomes_of_runs_that_lost_their_lease_are_refused_and_counted(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = claimed(engine, 3)
    rows = Job.objects.using(engine.alias)
    rows.filter(pk__in=[job.id for job in jobs]).update(status="ready", locked_by=None, locked_until=None)
    again = claim(engine, 2, "other:1")
    assert [job.id for job in again] == [job.id for job in jobs[:2]]
    given: list[Given] = [done(jobs[0]), failed(jobs[1]), (jobs[2], released(jobs[2].run))]
    with desk(engine, given=lambda found: found.put(*given)) as found:
        wait_for(lambda: len(found.freed) == 3)
    assert states(engine, jobs) == [("running", 0, 0, 2), ("running", 0, 0, 2), ("ready", 0, 0, 1)]
    assert found.region.counters()["lost_leases"] == 2
    refused = [record.message for record in caplog.records if "its outcome is refused" in record.message]
    assert [message.split(" ended")[0] for message in refused] == [
        f"Lost lease: run 1 of job {job.id}" for job in jobs[:2]
    ]


@on_postgresql
def test_an_outcome_whose_row_somebody_holds_lets_the_others_pass(engine: Engine) -> None:
    jobs = claimed(engine, 10)
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", jobs[4].id)
        with desk(engine, 0.3, lambda found: found.put(*map(done, jobs))) as found:
            wait_for(lambda: len(found.freed) == 9, 5.0)
            found.put(*map(done, claimed(engine, 3)))
            wait_for(lambda: len(found.freed) == 12, 1.0, "later ones are not held up")
            assert states(engine, [jobs[4]]) == [("running", 0, 0, 1)]
            other.rollback()
            wait_for(lambda: len(found.freed) == 13, 5.0)
    assert states(engine, jobs) == [("done", 0, 0, 1)] * 10


def test_what_is_put_aside_does_not_keep_the_writer_away_when_the_database_is_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Desk(engine).writer
    monkeypatch.setattr(rescue, "locked", lambda engine, ids: set(ids))  # the row is held all the time
    writer._aside.put([Ended(0, job, outcome, 0.1) for job, outcome in map(done, claimed(engine, 1))])
    writer._away_since = time.monotonic()
    assert writer._no_longer_aside() == []
    assert not writer.away


@on_postgresql
def test_a_part_that_was_put_aside_whole_leaves_the_next_all_its_tries(engine: Engine) -> None:
    jobs = claimed(engine, 2)
    writer = Desk(engine).writer
    part = [Ended(number, job, outcome, 0.1) for number, (job, outcome) in enumerate(map(done, jobs))]
    with session(engine.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job FOR UPDATE")
        writer._parts, writer._tries = [part], 3
        writer._put_locked_aside(part)
    assert (writer._parts, writer._aside._items, writer._tries) == ([], part, 0)


def test_the_last_progress_is_stored_before_the_end(engine: Engine) -> None:
    jobs = claimed(engine, 2)
    with desk(engine) as found:
        found.writer.report(jobs[0].run, '{"done": 1}')
        wait_for(lambda: Job.objects.using(engine.alias).get(pk=jobs[0].id).progress == {"done": 1})
        for number in (2, 3):
            for job in jobs:
                found.writer.report(job.run, f'{{"done": {number}}}')
        found.put(*map(done, jobs))
        wait_for(lambda: len(found.freed) == 2)
    rows = Job.objects.using(engine.alias).filter(pk__in=[job.id for job in jobs])
    assert {(row.status, row.progress["done"]) for row in rows} == {("done", 3)}


def test_progress_that_is_refused_while_the_database_answers_is_said_and_stored_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (job,) = claimed(engine, 1)
    monkeypatch.setattr(log, "_failures_said", {})
    Failing(monkeypatch, engine, "store_progress", *[OperationalError("somebody holds it")] * 2)
    with desk(engine) as found:
        found.writer.report(job.run, '{"done": 1}')
        wait_for(lambda: Job.objects.using(engine.alias).get(pk=job.id).progress == {"done": 1})
    assert [record.message for record in caplog.records] == ["Storing progress failed; it goes on"]


def test_progress_that_cannot_be_stored_keeps_no_outcome_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = claimed(engine, 2)
    failing = Failing(monkeypatch, engine, "store_progress", *[DataError("no")] * 99)
    with desk(engine) as found:
        found.writer.report(jobs[0].run, "{}")
        found.put(*map(done, jobs))
        wait_for(lambda: len(found.freed) == 2, 5.0)
    assert failing.calls
    assert states(engine, jobs) == [("done", 0, 0, 1)] * 2


def test_a_writer_told_to_finish_stores_all_that_it_was_given(engine: Engine) -> None:
    jobs = claimed(engine, 50)
    with desk(engine, given=lambda found: found.put(*map(done, jobs))) as found:
        thread = found.writer._thread
    assert sorted(found.freed) == list(range(50))
    assert not thread.is_alive()
    assert thread not in threading.enumerate()
