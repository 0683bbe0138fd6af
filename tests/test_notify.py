"""What is sent to wake idle workers, by whom and when: heard by a plain connection that listens."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.models.functions import Now
from django.test import TestCase, override_settings
from django.utils import timezone

from django_jobs import notify, pause, resume
from django_jobs.engines.base import Engine
from django_jobs.engines.postgresql_wake import ask
from django_jobs.models import Job
from django_jobs.queue import bulk, operate, rescue
from django_jobs.queue.choose import Choice
from tests.app.jobs import nothing
from tests.engines.common import on_postgresql, on_sqlite
from tests.listening import Heard, listening
from tests.processes.common import with_tables
from tests.schedules import common as schedules
from tests.threads import Session, together

pytestmark = with_tables
LONG = 1000.0
# The one of the process; each test has its own.
WINDOW = notify._window


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing been sent before, and everything be heard but what a test says otherwise."""
    monkeypatch.setattr(notify, "_window", notify._Window())
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 0.0)


@pytest.fixture
def engine(vendor: str, transactional_db: None) -> Engine:
    from django_jobs.engines import engine as engine_of

    return engine_of()


@pytest.fixture
def heard(engine: Engine) -> Iterator[Heard]:
    with listening(engine) as found:
        yield found


@on_postgresql
def test_an_enqueue_outside_a_transaction_is_told_at_once(heard: Heard) -> None:
    nothing.enqueue(1)
    nothing.using(queue="mäil").enqueue(1)
    assert heard.so_far() == ["default", "mäil"]


@on_postgresql
def test_an_enqueue_is_told_when_its_transaction_commits_and_not_before(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        with transaction.atomic(using=engine.alias):
            nothing.enqueue(1)
        assert heard.so_far() == []
    assert heard.so_far() == ["default"]


@on_postgresql
def test_a_rollback_tells_nothing(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        nothing.enqueue(1)
        nothing.enqueue_many([nothing.call(1)])
        transaction.set_rollback(True, using=engine.alias)
    assert heard.so_far() == []


@on_postgresql
@pytest.mark.parametrize(
    ("inside", "outside", "told"), [(True, False, []), (True, True, ["default"]), (False, True, ["default"])]
)
def test_a_savepoint_that_is_rolled_back_takes_what_it_would_tell_and_no_more(
    engine: Engine, heard: Heard, inside: bool, outside: bool, told: list[str]
) -> None:
    with transaction.atomic(using=engine.alias):
        with transaction.atomic(using=engine.alias):
            if inside:
                nothing.enqueue(1)
            transaction.set_rollback(True, using=engine.alias)
        if outside:
            nothing.enqueue(2)
    assert heard.so_far() == told


@on_postgresql
def test_what_came_before_a_savepoint_is_told_although_that_is_rolled_back(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        nothing.enqueue(1)
        with transaction.atomic(using=engine.alias):
            nothing.enqueue(2)
            transaction.set_rollback(True, using=engine.alias)
    assert heard.so_far() == ["default"]


@on_postgresql
def test_many_enqueues_in_a_transaction_leave_one_hook(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        for number in range(100):
            nothing.enqueue(number)
        with transaction.atomic(using=engine.alias):
            nothing.enqueue(1)
        assert len(connections[engine.alias].run_on_commit) == 1
    assert heard.so_far() == ["default"]


@on_postgresql
def test_many_jobs_at_once_are_told_once_for_each_queue(heard: Heard) -> None:
    nothing.enqueue_many(nothing.using(queue=f"q{number % 3}").call(number) for number in range(30))
    assert sorted(heard.so_far()) == ["q0", "q1", "q2"]


@on_postgresql
def test_a_process_tells_of_a_queue_once_in_a_while_whichever_thread_enqueues(
    engine: Engine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "WINDOW_SECONDS", LONG)
    together([lambda: [nothing.enqueue(number) for number in range(10)]] * 8)
    nothing.using(queue="other").enqueue(1)
    assert heard.so_far() == ["default", "other"]
    monkeypatch.setattr(notify._window, "_next", {(engine.alias, "default"): 0.0})  # when it is over
    nothing.enqueue(1)
    assert heard.so_far() == ["default"]


def test_a_process_tells_of_a_queue_twenty_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    window, now = notify._Window(), [5.0]
    monkeypatch.undo()
    monkeypatch.setattr("django_jobs.notify.time.monotonic", lambda: now[0])
    taken = []
    for step in range(1000):
        now[0] = 5.0 + step / 1000
        if window.take("default", "mail"):
            taken.append(step)
    assert taken == list(range(0, 1000, 50))


@on_postgresql
def test_jobs_that_are_due_later_are_not_told(heard: Heard) -> None:
    later = timezone.now() + timedelta(hours=1)
    nothing.using(delay=1).enqueue(1)
    nothing.using(run_at=later).enqueue(1)
    nothing.using(delay=1, idempotency_key="a").enqueue(1)
    nothing.enqueue_many([nothing.using(delay=1).call(1), nothing.using(run_at=later, queue="b").call(1)])
    nothing.enqueue_many([nothing.using(delay=1, queue="c", idempotency_key="c").call(1)])
    assert heard.so_far() == []


@on_postgresql
def test_the_second_enqueue_of_a_key_is_not_told(heard: Heard) -> None:
    keyed = nothing.using(idempotency_key="a")
    keyed.enqueue(1)
    assert heard.so_far() == ["default"]
    assert keyed.enqueue(1).pk
    assert heard.so_far() == []


def _requeue(engine: Engine) -> None:
    operate.requeue(_ended(engine))


def _requeue_many(engine: Engine) -> None:
    list(bulk.requeue(Choice(ids=(_ended(engine), _ended(engine)), states=("dead",))))


def _ended(engine: Engine) -> int:
    job = nothing.using(delay=1, queue="q").enqueue(1)
    Job.objects.using(engine.alias).filter(pk=job.pk).update(status="dead", finished_at=Now())
    return int(job.pk)


def _resume_queue(engine: Engine) -> None:
    pause(queue="q")
    resume(queue="q")


def _resume_type(engine: Engine) -> None:
    pause(type=nothing)
    resume(type=nothing)


def _run_now(engine: Engine) -> None:
    schedules.made(engine, queue="q").run_now()


def _slot(engine: Engine) -> None:
    schedules.late(engine, schedules.MINUTE, schedules.MINUTE, queue="q")
    assert schedules.tick(engine).fired == 1


def _lost(engine: Engine) -> None:
    job = nothing.using(delay=1).enqueue(1)
    lost = {"status": "running", "token": 1, "locked_by": "gone:1", "locked_until": Now() - timedelta(seconds=1)}
    Job.objects.using(engine.alias).filter(pk=job.pk).update(**lost)
    assert rescue.reap(engine, 10) == 1


PLACES: dict[str, tuple[Callable[[Engine], object], list[str]]] = {
    "a keyed enqueue": (lambda engine: nothing.using(queue="q", idempotency_key="k").enqueue(1), ["q"]),
    "an async enqueue": (lambda engine: async_to_sync(nothing.using(queue="q").aenqueue)(1), ["q"]),
    "keyed ones": (lambda engine: nothing.enqueue_many([nothing.using(queue="q", idempotency_key="k").call(1)]), ["q"]),
    "a requeue": (_requeue, ["q"]),
    "a requeue of many": (_requeue_many, ["q"]),
    "a queue that is resumed": (_resume_queue, ["q"]),
    "a type that is resumed": (_resume_type, [""]),
    "a schedule that is run now": (_run_now, ["q"]),
    "a slot": (_slot, ["q"]),
    "a lost run": (_lost, [""]),
}


@on_postgresql
@pytest.mark.parametrize("place", PLACES)
def test_whatever_makes_a_job_ready_is_told(engine: Engine, heard: Heard, place: str) -> None:
    act, told = PLACES[place]
    act(engine)
    assert list(dict.fromkeys(heard.so_far())) == told


@on_postgresql
def test_slots_that_are_due_later_and_suspects_are_not_told(engine: Engine, heard: Heard) -> None:
    spread = schedules.late(engine, schedules.DAY, schedules.MINUTE, queue="q", spread=timedelta(hours=20))
    assert schedules.tick(engine).fired == 1
    assert schedules.jobs(engine, spread)[0].run_at > timezone.now()
    job_id = _ended(engine)
    Job.objects.using(engine.alias).filter(pk=job_id).update(suspect=True)
    operate.requeue(job_id)
    assert heard.so_far() == []


@on_postgresql
def test_nothing_is_told_with_listen_off(heard: Heard) -> None:
    with override_settings(DJANGO_JOBS={"LISTEN": False}):
        nothing.enqueue(1)
        nothing.enqueue_many([nothing.call(1)])
    assert heard.so_far() == []


@on_sqlite
def test_on_sqlite_nothing_is_told(engine: Engine) -> None:
    with transaction.atomic(using=engine.alias):
        nothing.enqueue(1)
        assert connections[engine.alias].run_on_commit == []
    nothing.enqueue(1)
    assert notify._window._next == {}


# What must not be harmed by it.


@on_postgresql
def test_it_changes_nothing_in_the_session(engine: Engine, heard: Heard) -> None:
    nothing.enqueue(1)
    assert heard.so_far() == ["default"]
    assert _settings(engine) == ("on", "0")


def _settings(engine: Engine) -> tuple[str, str]:
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')")
        found: tuple[str, str] = cursor.fetchone()
        return found


@on_postgresql
def test_it_is_no_query_of_the_projects(engine: Engine, heard: Heard, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1, connection=connections[engine.alias]):
        nothing.enqueue(1)
    assert heard.so_far() == ["default"]


@on_postgresql
def test_in_a_test_case_whose_hooks_are_run_it_leaves_the_transaction_as_it_was(engine: Engine, heard: Heard) -> None:
    with transaction.atomic(using=engine.alias):
        with TestCase.captureOnCommitCallbacks(using=engine.alias, execute=True) as hooks:
            nothing.enqueue(1)
        assert len(hooks) == 1
        assert _settings(engine) == ("on", "0")
        transaction.set_rollback(True, using=engine.alias)
    assert heard.so_far() == []


@on_postgresql
@pytest.mark.parametrize("way", ["BEGIN", "autocommit off"])
def test_a_transaction_of_which_django_does_not_tell_takes_the_job_and_tells_nothing(
    engine: Engine, heard: Heard, way: str
) -> None:
    connection = connections[engine.alias]
    connection.ensure_connection()
    if way == "BEGIN":
        connection.cursor().execute("BEGIN")
    else:
        connection.set_autocommit(False)
    job = nothing.enqueue(1)
    if way == "BEGIN":
        connection.cursor().execute("COMMIT")
    else:
        connection.commit()
        connection.set_autocommit(True)
    assert heard.so_far() == []
    assert job.refresh().status == "ready"


@on_postgresql
def test_a_connection_that_breaks_at_the_commit_fails_no_enqueue(
    engine: Engine, other: Session, heard: Heard, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.log._failures_said", {})
    for _ in range(2):
        job = _enqueue_on_breaking(engine, other)
        notify._window.hold(0.0)
    assert job.refresh().status == "ready"
    assert heard.so_far() == []
    assert [message.split(":")[0] for message in caplog.messages] == [
        "Idle workers could not be woken, and find new jobs by themselves"
    ]


def _enqueue_on_breaking(engine: Engine, other: Session) -> Job:
    """Enqueue in a transaction whose connection is ended after its commit, before our hook."""

    def end_session() -> None:
        other.sql("SELECT pg_terminate_backend(%s, 10000)", raw.pgconn.backend_pid)

    with transaction.atomic(using=engine.alias):
        raw: Any = connections[engine.alias].connection
        transaction.on_commit(end_session, using=engine.alias)
        job = nothing.enqueue(1)
    assert raw.closed
    return job


@on_postgresql
def test_after_an_error_it_is_left_alone_for_a_while(engine: Engine, other: Session, heard: Heard) -> None:
    _enqueue_on_breaking(engine, other)
    nothing.enqueue(1)
    assert heard.so_far() == []
    notify._window.hold(0.0)
    nothing.enqueue(1)
    assert heard.so_far() == ["default"]


@on_postgresql
def test_an_answer_that_does_not_come_is_waited_for_so_long_and_no_longer(engine: Engine) -> None:
    given = connections[engine.alias].get_connection_params()
    given.pop("cursor_factory", None), given.pop("context", None)
    raw = psycopg.connect(**given, autocommit=True)
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError, match=r"no answer came within 0\.1 s"):
        ask(raw, b"SELECT pg_sleep(60)", [], 0.1)
    assert time.monotonic() - began < 10
    assert raw.closed


def test_a_forked_process_tells_although_a_thread_of_its_parent_was_about_to() -> None:
    with WINDOW._lock:
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if WINDOW.take("forked", "mail") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@on_postgresql
def test_the_jobs_of_another_schema_wake_nobody_here(engine: Engine, heard: Heard) -> None:
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("CREATE SCHEMA elsewhere")
        cursor.execute("CREATE TABLE elsewhere.django_jobs_job (LIKE django_jobs_job INCLUDING ALL)")
        try:
            cursor.execute("SET search_path = elsewhere")
            nothing.enqueue(1)
            assert heard.so_far() == []
        finally:
            cursor.execute("SET search_path = DEFAULT")
            cursor.execute("DROP SCHEMA elsewhere CASCADE")
    nothing.enqueue(1)
    assert heard.so_far() == ["default"]
