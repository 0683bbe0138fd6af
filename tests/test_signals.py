"""Signals: sent where it is true, once, and no receiver can do harm."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.dispatch import Signal

from django_jobs import signals
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Done, Settlement, released
from django_jobs.exceptions import InvalidJobType
from django_jobs.models import Job
from django_jobs.queue import rescue
from django_jobs.queue import told as queue_told
from django_jobs.workers.runner import Runner
from django_jobs.workers.teller import Teller
from tests.app.jobs import leave_effect, nothing
from tests.harness import wait_for
from tests.processes.common import with_tables
from tests.processes.parts import SETTINGS, claimed, desk, hold, raised, states
from tests.processes.test_writer import Failing
from tests.schedules.common import HOUR, MINUTE, late, tick

pytestmark = with_tables
NAMES = {name: value for name, value in vars(signals).items() if isinstance(value, Signal)}


class Heard:
    """What receivers were told, as the signal's name and what came with it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, dict[str, Any]]] = []
        # What a receiver does besides.
        self.also: Any = lambda: None
        self._receivers: list[tuple[Signal, Any]] = []
        for name, signal in NAMES.items():
            self.connect(signal, self._receiver(name))

    def _receiver(self, name: str) -> Any:
        def receive(sender: Any, signal: Signal, **said: Any) -> None:
            self.told.append((name, sender, said))
            self.also()

        return receive

    def connect(self, signal: Signal, receiver: Any, sender: Any = None) -> None:
        self._receivers.append((signal, (receiver, sender)))
        signal.connect(receiver, sender=sender)

    def disconnect(self) -> None:
        for signal, (receiver, sender) in self._receivers:
            signal.disconnect(receiver, sender=sender)

    def of(self, name: str, *keys: str) -> list[tuple[Any, ...]]:
        return [tuple(said[key] for key in keys) for heard, _, said in self.told if heard == name]

    @property
    def names(self) -> Counter[str]:
        return Counter(name for name, _, _ in self.told)


@pytest.fixture
def heard() -> Iterator[Heard]:
    found = Heard()
    yield found
    found.disconnect()


def fail() -> None:
    raise RuntimeError("a receiver's own fault")


def test_each_job_that_is_stored_is_told_once_in_the_callers_transaction(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        first = nothing.enqueue(1)
        assert heard.told == [
            ("job_enqueued", nothing.job_type,
             {"job_id": first.pk, "job_type": nothing.name, "queue": "default", "using": engine.alias}),
        ]  # fmt: skip
        transaction.set_rollback(True, using=engine.alias)
    ids = [nothing.using(idempotency_key="a").enqueue(1).pk for _ in range(2)]
    calls = [nothing.call(2), *(nothing.using(idempotency_key=key, queue="mail").call(1) for key in ("a", "b", "b"))]
    ids += nothing.enqueue_many(calls)
    assert heard.of("job_enqueued", "job_id", "queue")[1:] == [
        (ids[0], "default"), (ids[2], "default"), (ids[4], "mail"),
    ]  # fmt: skip
    with pytest.raises(InvalidJobType):
        nothing.enqueue_many([nothing.call(1), object()])  # type: ignore[list-item]
    assert len(heard.told) == 4


def test_what_a_receiver_breaks_in_the_callers_transaction_is_taken_back_and_the_job_stays(
    engine: Engine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    def write_in_vain() -> None:
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SELECT * FROM nowhere")

    def swallow() -> None:
        try:
            write_in_vain()
        except Exception:
            pass

    for also in (write_in_vain, swallow, fail):
        heard.also = also
        with transaction.atomic(using=engine.alias):
            nothing.enqueue(1)
            leave_effect.enqueue("x")
        leave_effect.enqueue_many([leave_effect.call("x")])
    assert Job.objects.using(engine.alias).count() == 9
    assert caplog.text.count("a receiver's own fault") > 0


def test_the_end_of_a_run_is_told_when_it_is_stored_and_only_then(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = claimed(engine, 6)
    heard.told.clear()
    heard.also = fail
    # The answers are lost: both are sent again, and find what they have written.
    Failing(monkeypatch, engine, "complete", OperationalError("connection reset"), after=True)
    Failing(monkeypatch, engine, "settle", OperationalError("connection reset"), after=True)
    Job.objects.using(engine.alias).filter(pk=jobs[4].id).update(token=9)
    outcomes: list[Done | Settlement] = [
        Done(jobs[0].run, None),
        raised(jobs[1]),
        raised(jobs[2], status="failed", counts="end", cause="failed"),
        raised(jobs[3], status="dead", cause="raised"),
        raised(jobs[4]),
        released(jobs[5].run),
    ]
    with desk(engine, given=lambda found: found.put(*zip(jobs, outcomes, strict=True))) as found:
        wait_for(lambda: len(found.freed) == 6)
    assert [status for status, *_ in states(engine, jobs)][:4] == ["done", "ready", "failed", "dead"]
    told = ("job_id", "status", "cause", "error", "seconds")
    ended = [
        (jobs[0].id, "done", "", "", 0.1),
        (jobs[2].id, "failed", "failed", "it failed", 0.1),
        (jobs[3].id, "dead", "raised", "it failed", 0.1),
    ]
    assert heard.of("job_finished", *told) == ended
    assert heard.of("job_dead", *told) == ended[1:]
    assert heard.of("job_retrying", *told) == [(jobs[1].id, "ready", "raised", "it failed", 0.1)]
    assert {said["attempt"] for _, _, said in heard.told} == {said["run"] for _, _, said in heard.told} == {1}


def test_a_receiver_on_the_thread_that_writes_outcomes_leaves_nothing_there(engine: Engine, heard: Heard) -> None:
    jobs = claimed(engine, 2)

    def leave_a_transaction_open_and_exit() -> None:
        transaction.set_autocommit(False, using=engine.alias)
        Job.objects.using(engine.alias).count()
        raise SystemExit

    heard.also = leave_a_transaction_open_and_exit
    with desk(engine) as found:
        for job in jobs:
            found.put((job, Done(job.run, None)))
            wait_for(lambda: not found.region.seats())
    assert [status for status, *_ in states(engine, jobs)] == ["done", "done"]


def test_a_run_that_was_lost_is_told_with_the_commit_that_takes_it_back(engine: Engine, heard: Heard) -> None:
    jobs = claimed(engine, 2)
    heard.told.clear()
    with transaction.atomic(using=engine.alias):
        assert rescue.lose(
            engine, [(jobs[0].run, 2.0)], cause="died", error="It died.", worker="w", witnessed=True, max_uncounted=10
        )
        assert rescue.give_back(engine, [jobs[1].run], 10)
        assert heard.told == []
    said = {"job_id": jobs[0].id, "job_type": nothing.name, "queue": "default", "attempt": 1, "run": 1}
    said |= {"status": "ready", "cause": "died", "error": "It died.", "seconds": 2.0}
    assert heard.told == [("job_retrying", nothing.job_type, said)]


def test_the_start_of_a_run_is_told_before_its_function_is_called(engine: Engine, heard: Heard) -> None:
    (job,) = claimed(engine, 1)
    heard.told.clear()

    def leave_a_transaction_open() -> None:
        transaction.set_autocommit(False, using=engine.alias)
        Job.objects.using(engine.alias).count()
        raise SystemExit

    heard.also = leave_a_transaction_open
    ended = Runner(engine, SETTINGS, "host:1").run(job, None)  # type: ignore[arg-type]
    assert ended == Done(job.run, "0")
    said = {"job_id": job.id, "job_type": nothing.name, "queue": "default", "attempt": 1, "run": 1}
    assert heard.told == [("job_started", nothing.job_type, said)]


def test_a_slot_is_told_with_its_job_when_that_is_committed(engine: Engine, heard: Heard) -> None:
    schedule = late(engine, HOUR, timedelta(0) + MINUTE)
    with transaction.atomic(using=engine.alias):
        assert tick(engine).fired == 1
        assert heard.told == []
    job = Job.objects.using(engine.alias).get()
    assert heard.names == {"job_enqueued": 1, "schedule_fired": 1}
    assert heard.of("schedule_fired", "schedule", "slot", "job_id", "job_type", "queue") == [
        (schedule.name, job.slot, job.pk, nothing.name, "default")
    ]


def test_a_receiver_may_ask_for_one_job_type(engine: Engine, heard: Heard) -> None:
    only: list[int] = []

    def receive(job_id: int, **kwargs: Any) -> None:
        only.append(job_id)

    heard.connect(signals.job_enqueued, receive, leave_effect.job_type)
    nothing.enqueue(1)
    job = leave_effect.enqueue("x")
    assert only == [job.pk]


def test_a_receiver_keeps_no_thread_of_the_supervisor_waiting() -> None:
    teller, free = Teller(), threading.Event()
    told: list[int] = []
    teller.put(free.wait)  # type: ignore[arg-type]
    teller.put(fail)
    teller.put(lambda: told.append(1))
    assert told == []
    free.set()
    teller.end(5.0)
    assert told == [1]
    teller.put(lambda: told.append(2))
    teller.end(5.0)
    assert told == [1, 2]


def test_what_receivers_are_too_slow_for_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    teller = Teller(most=2)
    free, told = hold(teller), list[int]()
    for number in range(5):
        teller.put(partial(told.append, number))
    free.set()
    teller.end(5.0)
    assert told == [0, 1]
    teller.put(lambda: told.append(5))
    teller.end(5.0)
    assert told == [0, 1, 5]
    assert [line.partition(":")[0] for line in caplog.messages] == ["3 signals were not sent"]


def test_a_worker_process_waits_for_slow_receivers_and_not_for_one_that_does_not_come_back() -> None:
    teller = Teller(most=1, waits=True)
    free, told = hold(teller), list[int]()
    threading.Timer(0.05, free.set).start()
    for number in range(3):
        teller.put(partial(told.append, number))
    teller.end(5.0)
    assert told == [0, 1, 2]
    teller = Teller(most=1, patience=0.02, waits=True)
    free = hold(teller)
    for number in range(3, 6):
        teller.put(partial(told.append, number))
    free.set()
    teller.end(5.0)
    assert told == [0, 1, 2, 3]


def test_the_end_of_a_run_is_told_beside_the_thread_that_stores_outcomes(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller = Teller(waits=True)
    monkeypatch.setattr(queue_told, "_way", teller.put)
    free = hold(teller)
    jobs = claimed(engine, 2)
    with desk(engine, given=lambda found: found.put(*((job, Done(job.run, None)) for job in jobs))) as found:
        wait_for(lambda: len(found.freed) == 2)
    assert heard.names["job_finished"] == 0
    free.set()
    teller.end(5.0)
    assert heard.names["job_finished"] == 2
