"""The life of jobs against a small model: what any order of enqueues, claims, ends, freezes and acts leaves in the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from django_jobs import StateConflict, pause, resume
from django_jobs.engines.causes import DIED, LEASE_RAN_OUT
from django_jobs.engines.values import Claimed, ClaimOrder, Counts, Done, Run, Settlement
from django_jobs.models import Job, Pause
from django_jobs.queue import operate, rescue
from django_jobs.queue.history import entry
from tests.app.jobs import leave_effect, nothing

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

FUNCTIONS: dict[str, Any] = {function.name: function for function in (nothing, leave_effect)}
# Type, queue, priority, key, how long it holds, attempts allowed.
JOB = st.tuples(
    st.sampled_from(sorted(FUNCTIONS)),
    st.sampled_from(["one", "two"]),
    st.integers(0, 1),
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from(["window", "unfinished", "waiting"]),
    st.integers(1, 3),
)
MOST_LOSSES = 6
FINAL = ("done", "failed", "dead", "cancelled")
ENDS: dict[str, tuple[str, Counts]] = {
    "raised": ("ready", "attempt"),
    "snoozed": ("ready", "end"),
    "failed": ("failed", "end"),
    "cancelled by itself": ("cancelled", "end"),
    "released": ("ready", "nothing"),
    DIED: ("ready", "loss"),
    "database away": ("ready", "loss"),
}


@dataclass
class Modelled:
    """What is known of a job without looking at its row."""

    type: str
    queue: str
    priority: int
    key: str | None
    holds: str
    max_attempts: int
    original_key: str | None
    status: str = "ready"
    parked: str | None = None
    due: bool = True
    attempts: int = 0
    losses: int = 0
    suspect: bool = False
    token: int = 0
    cancelled: bool = False
    lapsed: bool = False
    causes: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        names = ("status", "parked", "attempts", "losses", "suspect", "token", "cancelled", "key", "causes")
        return {name: getattr(self, name) for name in names}

    def say(self, cause: str) -> None:
        if len(self.causes) >= 10:
            del self.causes[1]
        self.causes.append(cause)

    def end(self, status: str) -> None:
        self.status = status
        if status in FINAL and self.holds != "window":
            self.key = None


class Life(RuleBasedStateMachine):
    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.jobs: dict[int, Modelled] = {}
        self.runs: list[Claimed] = []
        self.paused: set[tuple[str, str]] = set()
        self.claims = 0
        Job.objects.using(engine.alias).all().delete()
        Pause.objects.using(engine.alias).all().delete()

    # Words.

    def current(self, run: Run) -> Modelled | None:
        """Return the job whose row a run may still write."""
        job = self.jobs[run.id]
        return job if job.status == "running" and job.token == run.token else None

    def running(self) -> list[Modelled]:
        return [job for job in self.jobs.values() if job.status == "running"]

    def may_run(self, job: Modelled, queues: tuple[str, ...] | None) -> bool:
        served = queues is None or job.queue in queues
        return job.status == "ready" and job.due and served and ("queue", job.queue) not in self.paused

    def take(self, found: list[Claimed]) -> None:
        for claimed in found:
            job = self.jobs[claimed.id]
            job.status, job.parked, job.lapsed = "running", None, False
            job.token += 1
            assert (claimed.token, claimed.attempts, claimed.expired) == (job.token, job.attempts, False)
            assert claimed.idempotency_key == (job.key if job.holds == "window" else None)
            if job.holds == "waiting":
                job.key = None
        self.runs += found

    def some_job(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.jobs)), "job")

    def some_run(self, data: st.DataObject) -> Claimed:
        living = [run for run in self.runs if self.current(run.run)]
        # Those that come back while their job runs again elsewhere.
        late = [run for run in self.runs if run not in living and self.jobs[run.id].status == "running"]
        return data.draw(st.sampled_from(living * 2 + late * 2 + self.runs[-4:]), "run")

    # Rules.

    @rule(new=JOB)
    def enqueue(self, new: tuple[str, str, int, str | None, Any, int]) -> None:
        name, queue, priority, key, holds, max_attempts = new
        key = None if key is None else f"{name}:{key}"
        using = FUNCTIONS[name].using(queue=queue, priority=priority, max_attempts=max_attempts)
        if key is not None:
            using = using.using(idempotency_key=key, unique=holds)
        made = using.enqueue(*(["x"] if name == leave_effect.name else []))
        holder = [job_id for job_id, job in self.jobs.items() if key is not None and job.key == key]
        if holder:
            assert [made.pk] == holder
            return
        assert made.pk not in self.jobs
        holds = holds if key is not None else "window"
        self.jobs[made.pk] = Modelled(name, queue, priority, key, holds, max_attempts, key)

    @rule(
        limit=st.integers(1, 4),
        known=st.sampled_from([(nothing.name,), tuple(FUNCTIONS)]),
        queues=st.sampled_from([None, ("one",)]),
        parked=st.booleans(),
    )
    def claim(self, limit: int, known: tuple[str, ...], queues: tuple[str, ...] | None, parked: bool) -> None:
        self.claims += 1
        order = ClaimOrder(locked_by=f"w:{self.claims}", lease=60, limit=limit, queues=queues, types=known)
        if parked:
            self._claim_parked(order)
            return
        waiting = {job_id for job_id, job in self.jobs.items() if job.parked is None and self.may_run(job, queues)}
        result = self.engine.claim(order)
        rows = Job.objects.using(self.engine.alias).filter(pk__in=waiting)
        taken = {claimed.id for claimed in result.jobs}
        for job_id in set(rows.filter(parked__isnull=False).values_list("pk", flat=True)):
            job = self.jobs[job_id]
            job.parked = "type" if job.type not in known else "pause"
            assert job.type not in known or ("type", job.type) in self.paused
            taken.add(job_id)
        assert taken <= waiting
        assert len(taken) == len(result.jobs) + result.parked == min(limit, len(waiting))
        left = waiting - taken
        assert not left or max(self.jobs[one].priority for one in left) <= min(self.jobs[one].priority for one in taken)
        for claimed in result.jobs:
            assert claimed.type in known
            assert ("type", claimed.type) not in self.paused
        self.take(result.jobs)

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """What a worker does most: claim all that may be had, and end some of it."""
        if sum(job.status == "ready" for job in self.jobs.values()) < 3:
            self.enqueue(data.draw(JOB, "new"))
        before = len(self.runs)
        self.claim(4, tuple(FUNCTIONS), None, data.draw(st.booleans(), "parked"))
        for claimed in self.runs[before:]:
            how = data.draw(st.sampled_from(["goes on", "returned", *ENDS]), "end")
            if data.draw(st.sampled_from([False, False, True]), "cancelled meanwhile"):
                self._cancel(claimed.id)
            if how == "returned":
                self._return(claimed)
            elif how in ENDS:
                self._end(claimed, how, later=False)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), causes=st.lists(st.sampled_from([DIED, "database away", "raised"]), min_size=2, max_size=3))
    def run_again_and_again(self, data: st.DataObject, causes: list[str]) -> None:
        """One job is run several times in a row, and each run ends badly."""
        job_id = self.some_job(data)
        for cause in causes:
            if self.jobs[job_id].suspect:
                self.claim_suspect(tuple(FUNCTIONS), None)
            else:
                self.claim(20, tuple(FUNCTIONS), None, self.jobs[job_id].parked is not None)
            for run in [run for run in self.runs if run.id == job_id and self.current(run.run)]:
                self._end(run, cause, later=False)

    def _claim_parked(self, order: ClaimOrder) -> None:
        had = {
            job_id
            for job_id, job in self.jobs.items()
            if job.parked in ("type", "pause") and self.may_run(job, order.queues) and job.type in order.types
            if ("type", job.type) not in self.paused
        }
        assert self.engine.look(order.queues, order.types).parked == bool(had)
        found = self.engine.claim_parked(order).jobs
        assert {claimed.id for claimed in found} <= had
        assert len(found) == min(order.limit, len(had))
        self.take(found)

    @precondition(lambda self: any(job.suspect for job in self.jobs.values()))
    @rule(
        known=st.sampled_from([(nothing.name,), tuple(FUNCTIONS)]),
        queues=st.sampled_from([None, ("one",)]),
    )
    def claim_suspect(self, known: tuple[str, ...], queues: tuple[str, ...] | None) -> None:
        self.claims += 1
        order = ClaimOrder(locked_by=f"w:{self.claims}", lease=60, limit=4, queues=queues, types=known)
        had = {
            job_id: job.losses
            for job_id, job in self.jobs.items()
            if job.parked == "suspect" and self.may_run(job, queues) and job.type in known
            if ("type", job.type) not in self.paused
        }
        assert self.engine.suspects_due(queues, known, 50).count(0.0) == len(had)
        found = self.engine.claim_suspect(order).jobs
        assert len(found) == min(1, len(had))
        assert all(had[claimed.id] == min(had.values()) for claimed in found)
        self.take(found)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def returns(self, data: st.DataObject) -> None:
        self._return(self.some_run(data))

    def _return(self, claimed: Claimed) -> None:
        run = claimed.run
        job = self.current(run)
        expected = {}
        if job is not None:
            job.losses, job.suspect = 0, False
            job.end("cancelled" if job.cancelled else "done")
            expected = {run.id: job.status}
        assert self.engine.complete([Done(run, "1")]) == expected

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), cause=st.sampled_from(sorted(ENDS)), later=st.booleans())
    def ends(self, data: st.DataObject, cause: str, later: bool) -> None:
        self._end(self.some_run(data), cause, later)

    def _end(self, claimed: Claimed, cause: str, later: bool) -> None:
        job = self.current(claimed.run)
        status, counts = ENDS[cause]
        if cause == "raised" and claimed.attempts + 1 >= claimed.max_attempts:
            status = "dead"
        delay = (3600.0 if later else 0.0) if status == "ready" and cause != "released" else None
        line = None if cause == "released" else entry(claimed.token, cause, "because", "w", 1.0)
        settlement = Settlement(
            run=claimed.run,
            status=status,
            counts=counts,
            cause=cause,
            delay=delay,
            witnessed=cause == DIED,
            error="because",
            entry=line,
        )
        expected = {}
        if job is not None:
            self._model_end(job, settlement)
            expected = {claimed.id: job.status}
        assert self.engine.settle([settlement], MOST_LOSSES) == expected

    def _model_end(self, job: Modelled, settlement: Settlement) -> None:
        status = settlement.status
        if settlement.counts == "loss":
            # A suspect is run alone, and so was this one.
            convicted = settlement.witnessed and job.suspect and job.losses > 0
            again = job.losses > 0 and settlement.cause != "database away"
            job.losses += 1
            job.suspect |= settlement.witnessed or again or job.losses >= MOST_LOSSES - 3
            if convicted or job.losses >= MOST_LOSSES:
                status = "dead"
        elif settlement.counts != "nothing":
            job.losses, job.suspect = 0, False
            job.attempts += settlement.counts == "attempt"
        if settlement.entry is not None:
            job.say(settlement.cause)
        job.due = not settlement.delay or (job.due and settlement.delay is None)
        job.end("cancelled" if job.cancelled else status)
        job.parked = "suspect" if job.suspect and job.status == "ready" else None

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def freezes(self, data: st.DataObject) -> None:
        """The lease of a run passes without a heartbeat; the run itself may come back later."""
        run = self.some_run(data).run
        job = self.current(run)
        if job is not None:
            job.lapsed = True
            past = Now() - timedelta(seconds=1)
            assert Job.objects.using(self.engine.alias).filter(pk=run.id).update(locked_until=past) == 1
            if data.draw(st.booleans(), "taken back"):
                self.reap()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        run = self.some_run(data).run
        job = self.current(run)
        assert self.engine.extend([run], 60) == ({} if job is None else {run.id: job.cancelled})
        if job is not None:
            job.lapsed = False

    @precondition(lambda self: any(job.lapsed or not self.engine.reaps_by_lease for job in self.running()))
    @rule()
    def reap(self) -> None:
        lost = [job for job in self.jobs.values() if job.status == "running"]
        if self.engine.reaps_by_lease:
            lost = [job for job in lost if job.lapsed]
        assert rescue.reap(self.engine, MOST_LOSSES) == len(lost)
        for job in lost:
            loss = Settlement(Run(0, 0, ""), "ready", "loss", LEASE_RAN_OUT, entry="{}")
            self._model_end(job, loss)

    @precondition(lambda self: not all(job.due for job in self.jobs.values()))
    @rule()
    def time_passes(self) -> None:
        """What waits for later becomes due."""
        for job in self.jobs.values():
            job.due = True
        Job.objects.using(self.engine.alias).filter(run_at__gt=Now()).update(run_at=Now())

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._cancel(self.some_job(data))

    def _cancel(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.status in FINAL:
            with pytest.raises(StateConflict):
                operate.cancel(job_id)
            return
        assert operate.cancel(job_id) == ("cancelled" if job.status == "ready" else "asked")
        if job.status == "running" and not job.cancelled:
            job.say("asked to stop")
        job.cancelled = True
        if job.status == "ready":
            job.parked = None
            job.say("called off")
            job.end("cancelled")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        job_id = self.some_job(data)
        job = self.jobs[job_id]
        taken = any(
            other.key is not None and other.key == job.original_key
            for other_id, other in self.jobs.items()
            if other_id != job_id
        )
        if job.status not in FINAL or taken:
            with pytest.raises(StateConflict):
                operate.requeue(job_id)
            return
        operate.requeue(job_id)
        job.status, job.due, job.attempts, job.losses = "ready", True, 0, min(job.losses, 1)
        job.parked = "suspect" if job.suspect else None
        job.cancelled, job.key = False, job.original_key
        job.say("requeued")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def expires(self, data: st.DataObject) -> None:
        """The time by which a job had to start passes before anybody took it."""
        job_id = self.some_job(data)
        job = self.jobs[job_id]
        rows = Job.objects.using(self.engine.alias).filter(pk=job_id, status="ready")
        passed = rows.update(expires_at=Now() - timedelta(seconds=1))
        assert self.engine.cancel_expired(10) == passed == (job.status == "ready")
        if passed:
            job.parked = None
            job.say("expired")
            job.end("cancelled")

    @rule(what=st.sampled_from([("queue", "one"), ("queue", "two"), ("type", nothing.name)]))
    def pause(self, what: tuple[str, str]) -> None:
        pause(**{what[0]: what[1]})  # type: ignore[arg-type]
        self.paused.add(what)

    @precondition(lambda self: self.paused)
    @rule(what=st.sampled_from([("queue", "one"), ("queue", "two"), ("type", nothing.name)]))
    def resume(self, what: tuple[str, str]) -> None:
        assert resume(**{what[0]: what[1]}) == (what in self.paused)
        self.paused.discard(what)

    # What must hold whatever was done.

    @invariant()
    def the_table_is_as_the_model_says(self) -> None:
        rows = Job.objects.using(self.engine.alias).all()
        found = {
            row.pk: {
                "status": row.status,
                "parked": row.parked,
                "attempts": row.attempts,
                "losses": row.losses,
                "suspect": row.suspect,
                "token": row.token,
                "cancelled": row.cancel_reason is not None,
                "key": row.idempotency_key,
                "causes": [line["cause"] for line in row.history],
            }
            for row in rows
        }
        assert found == {job_id: job.row() for job_id, job in self.jobs.items()}

    def teardown(self) -> None:
        for row in Job.objects.using(self.engine.alias).all():
            assert row.explain()


@pytest.mark.timeout(600)  # a failure is made small first
@pytest.mark.django_db(databases="__all__")
def test_any_order_of_events_leaves_what_the_model_says(engine: Engine) -> None:
    run_state_machine_as_test(
        lambda: Life(engine),  # type: ignore[arg-type]
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
