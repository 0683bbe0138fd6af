"""How a run can end: the table of docs/states.md, row by row, on every engine and for plain and async handlers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, connections
from django.db.models.functions import Now

from django_jobs.models import Job
from django_jobs.queue import operate, rescue
from django_jobs.workers import ended
from django_jobs.workers.executor import Assigned
from django_jobs.workers.fallen import Fallen
from django_jobs.workers.runner import Runner
from django_jobs.workers.seats import State
from tests.app import end_jobs
from tests.app.end_jobs import aend_as, end_as
from tests.processes.common import with_tables
from tests.processes.parts import Tables, claim, claim_suspect

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = with_tables
FORMS: dict[str, Any] = {"plain": end_as, "async": aend_as}
# What each job has behind it before the run that is looked at, and how often it may fail.
ATTEMPTS, LOSSES, ALLOWED = 1, 2, 3


@dataclass(frozen=True)
class Row:
    """What a run's end leaves: the delay is None where the due time stays as it was."""

    status: str
    attempts: int = ATTEMPTS
    losses: int = 0
    cause: str | None = None
    delay: tuple[float, float] | None = None


BACKED_OFF, SOON, PAUSED = (0.0, 40.0), (0.0, 1.0), (5.0, 30.0)
LAST = "last attempt"

HANDLERS = {
    ("result", "returned"): Row("done"),
    ("raised", "raised"): Row("ready", attempts=2, cause="raised", delay=BACKED_OFF),
    ("raised", LAST): Row("dead", attempts=3, cause="raised"),
    ("SystemExit", "raised"): Row("ready", attempts=2, cause="raised", delay=BACKED_OFF),
    ("not in retry_on", "raised"): Row("failed", cause="failed"),
    ("fail_on", "raised"): Row("failed", cause="failed"),
    ("fail_on and retry_on", "raised"): Row("failed", cause="failed"),
    ("deadline", "passed"): Row("ready", attempts=2, cause="deadline", delay=BACKED_OFF),
    ("connection broke", "cut"): Row("ready", losses=3, cause="connection broke", delay=PAUSED),
    ("Retry", "returned"): Row("ready", attempts=2, cause="retry", delay=(50.0, 50.0)),
    ("Retry", "raised"): Row("ready", attempts=2, cause="retry", delay=(50.0, 50.0)),
    ("Retry", LAST): Row("dead", attempts=3, cause="retry"),
    ("Snooze", "returned"): Row("ready", cause="snoozed", delay=(60.0, 60.0)),
    ("Snooze", "raised"): Row("ready", cause="snoozed", delay=(60.0, 60.0)),
    ("Snooze", LAST): Row("ready", attempts=2, cause="snoozed", delay=(60.0, 60.0)),
    ("Fail", "returned"): Row("failed", cause="failed"),
    ("Fail", "raised"): Row("failed", cause="failed"),
    ("Cancel", "returned"): Row("cancelled", cause="cancelled"),
    ("Cancel", "raised"): Row("cancelled", cause="cancelled"),
}


class Case:
    """One job with a past, claimed by a worker process whose parts are this process's."""

    def __init__(self, engine: Engine, function: Any, how: str = "result", given: str = "returned") -> None:
        self.engine = engine
        self.tables = Tables(engine)
        attempts = ALLOWED - 1 if given == LAST else ATTEMPTS
        timeout = 0.2 if given == "passed" else 60
        made = function.using(max_attempts=ALLOWED, timeout=timeout).enqueue(how, "raised" if given == LAST else given)
        Job.objects.using(engine.alias).update(attempts=attempts, losses=LOSSES)
        (self.claimed,) = claim(engine, 1, f"{self.tables.child.incarnation}:1")
        self.tables.seat([self.claimed])
        self.due_at = made.run_at

    def run(self) -> None:
        """Run it as a worker's thread does, and store what came of it as its writer does."""
        executor = self.tables.worker()._executor
        executor._watcher.start()
        runner = Runner(self.engine, self.tables.plan.settings, "host:1")
        end = executor._run(runner, Assigned(0, self.claimed, time.monotonic()), 0)
        ended.store(self.engine, [end], self.tables.plan.settings.max_uncounted)

    def bury(self, state: State, **values: Any) -> None:
        """Have the process be gone while its seat was in this state."""
        self.tables.region.mark(0, state)
        seats = self.tables.region.seats()
        self.tables.rescuer.add(Fallen(**{"child": self.tables.child, "seats": seats, "how": None, **values}))
        self.tables.rescuer.rescue()

    def row(self) -> Row:
        job = Job.objects.using(self.engine.alias).annotate(clock=Now()).get()
        assert (job.locked_by, job.locked_until) == (None, None)
        assert (job.finished_at is None) == (job.status == "ready")
        assert job.token == self.claimed.token
        # To within a second and the test's own time.
        delay = None if job.run_at == self.due_at else ((job.run_at - job.clock).total_seconds(),) * 2
        cause = job.history[-1]["cause"] if job.history else None
        return Row(job.status, job.attempts, job.losses, cause, delay)


def assert_is(found: Row, expected: Row) -> None:
    if found.delay is not None and expected.delay is not None:
        low, high = expected.delay
        assert low - 5.0 <= found.delay[0] <= high
        found = Row(found.status, found.attempts, found.losses, found.cause, expected.delay)
    assert found == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("how", "given"), HANDLERS)
def test_a_handler_ends_as_the_table_says(engine: Engine, how: str, given: str, form: str) -> None:
    if given == "cut" and engine.name != "postgresql":
        pytest.skip("SQLite has no connection that a server could cut")
    case = Case(engine, FORMS[form], how, given)
    case.run()
    assert_is(case.row(), HANDLERS[how, given])


@pytest.mark.parametrize("form", FORMS)
def test_a_run_whose_jobs_database_is_away_is_a_loss_that_waits(
    engine: Engine, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(engine, FORMS[form], "raised", "raised")
    settings = connections[engine.alias].settings_dict
    # Nothing answers at the address that is asked anew, as when the server is gone; the error is of a class that may say so.
    away = {"HOST": "127.0.0.1", "PORT": "1"} if engine.name == "postgresql" else {"NAME": "/nonexistent/file"}
    monkeypatch.setattr(end_jobs, "raised", lambda how: OperationalError("server closed the connection unexpectedly"))
    for name, value in away.items():
        monkeypatch.setitem(settings, name, value)
    executor = case.tables.worker()._executor
    end = executor._run(
        Runner(engine, case.tables.plan.settings, "host:1"), Assigned(0, case.claimed, time.monotonic()), 0
    )
    monkeypatch.undo()
    ended.store(engine, [end], 10)
    assert_is(case.row(), Row("ready", losses=3, cause="database away", delay=(20.0, 20.0)))


def died(case: Case, state: State) -> None:
    case.bury(state, how="signal 11 (SIGSEGV)")


def cut(case: Case, state: State) -> None:
    case.bury(state, why="stopped by a signal when the grace was over", ours=True)


def lost(case: Case) -> None:
    rows = Job.objects.using(case.engine.alias)
    rows.update(locked_until=Now())
    assert rescue.reap(case.engine, 10) == 1


PROCESSES: dict[str, tuple[Any, Row]] = {
    "died while it ran": (lambda case: died(case, State.RUNNING), Row("ready", losses=3, cause="died")),
    "died when it had returned": (
        lambda case: died(case, State.RETURNED),
        Row("ready", losses=LOSSES, cause="outcome lost"),
    ),
    "died before it started": (lambda case: died(case, State.CLAIMED), Row("ready", losses=LOSSES)),
    "stopped by a person or a deploy": (
        lambda case: cut(case, State.RUNNING),
        Row("ready", losses=LOSSES, cause="stopped"),
    ),
    "released before it started": (lambda case: cut(case, State.CLAIMED), Row("ready", losses=LOSSES)),
    "lease ran out": (lost, Row("ready", losses=3, cause="lease ran out")),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_ends_a_run_as_the_table_says(engine: Engine, name: str) -> None:
    happens, expected = PROCESSES[name]
    case = Case(engine, end_as)
    happens(case)
    assert_is(case.row(), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("how", "given", "cause"),
    [
        ("result", "returned", "asked to stop"),
        ("raised", "raised", "raised"),
        ("Snooze", "returned", "snoozed"),
        ("raised", LAST, "raised"),
    ],
)
def test_a_run_whose_job_a_person_cancelled_ends_it(
    engine: Engine, how: str, given: str, cause: str | None, form: str
) -> None:
    case = Case(engine, FORMS[form], how, given)
    assert operate.cancel(case.claimed.id) == "asked"
    case.run()
    found = case.row()
    assert (found.status, found.losses, found.cause) == ("cancelled", 0, cause)


def test_the_death_of_the_process_that_ran_it_alone_ends_a_job(engine: Engine) -> None:
    case = Case(engine, end_as)
    died(case, State.RUNNING)
    case.tables = Tables(engine)
    (case.claimed,) = claim_suspect(engine, f"{case.tables.child.incarnation}:1")
    case.tables.seat([case.claimed])
    died(case, State.RUNNING)
    assert_is(case.row(), Row("dead", losses=4, cause="died"))
