"""What workers take, what they leave, and how each end of a run shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models.functions import Now

from django_jobs.models import Job
from tests.app.jobs import choose_error, end_as, fail_until, leave_effect, nothing, report, wait_for_file
from tests.app.process_jobs import newer, report_and_return
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import (
    LEASE_2,
    effects,
    ends,
    lines,
    on_postgresql,
    on_sqlite,
    state,
    wait_seconds,
    with_processes,
)
from tests.threads import session

pytestmark = with_processes
OLD_CODE = {"DJANGO_JOBS_TEST_WITHOUT_NEWER": "1"}


def test_two_thousand_jobs_on_two_processes_are_run_once_each(tree: Tree) -> None:
    with transaction.atomic(using=tree.alias):
        jobs = [nothing.enqueue(number) for number in range(2000)]
    workers = tree.start("--burst", "--processes", "2")
    assert workers.wait() == 0
    found = {job.pk: job for job in tree.jobs()}
    assert [(found[job.pk].status, found[job.pk].token, found[job.pk].result) for job in jobs] == [
        ("done", 1, number) for number in range(2000)
    ]
    summaries = [line.split("Last second: ")[1].split(" done")[0] for line in lines(workers, "Last second: ")]
    assert sum(int(number) for number in summaries if number.isdigit()) == 2000


def test_a_burst_runs_what_its_jobs_fail_into_and_leaves_what_is_due_later(tree: Tree) -> None:
    due = [nothing.enqueue(number) for number in range(20)]
    at_once = fail_until.enqueue(3)
    later = nothing.using(delay=3600).enqueue(1)
    workers = tree.start("--burst", "--processes", "2")
    assert workers.wait() == 0
    assert {state(job) for job in due} == {("done", 0, 0, 1)}
    assert (state(at_once), at_once.result) == (("done", 2, 0, 3), 3)
    assert ends(at_once) == [(1, "raised"), (2, "raised")]
    assert state(later) == ("ready", 0, 0, 0)


@on_postgresql
def test_a_burst_waits_for_what_others_have_lost(tree: Tree) -> None:
    job = leave_effect.enqueue("a")
    jobs = Job.objects.using(tree.alias).filter(pk=job.pk)
    jobs.update(status="running", token=1, locked_by="gone:1", locked_until=Now() - timedelta(seconds=1))
    workers = tree.start("--burst", settings=LEASE_2)
    assert workers.wait() == 0
    assert (state(job), ends(job)) == (("done", 0, 0, 2), [(1, "lease ran out")])


def test_only_the_queues_asked_for_are_served(tree: Tree) -> None:
    jobs = {queue: leave_effect.using(queue=queue).enqueue(queue) for queue in ("mail", "default", "other", "mail2")}
    workers = tree.start("--burst", "--queues", "mail,other")
    assert workers.wait() == 0
    assert effects(tree) == [("mail", 1), ("other", 1)]
    assert {queue: state(job)[0] for queue, job in jobs.items()} == {
        "mail": "done",
        "default": "ready",
        "other": "done",
        "mail2": "ready",
    }


def _transactions(tree: Tree) -> int:
    with connections[tree.alias].cursor() as cursor:
        cursor.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def _transactions_a_second(tree: Tree, seconds: float = 2.0) -> float:
    wait_seconds(1.2)  # the server's own counters lag by a second
    before = _transactions(tree)
    wait_seconds(seconds)
    return (_transactions(tree) - before) / seconds


@on_postgresql
def test_unknown_types_are_parked_once_and_run_by_a_worker_that_knows_them(tree: Tree) -> None:
    unknown = [newer.enqueue(number) for number in range(5)]
    due = {job.pk: job.run_at for job in unknown}
    known = [nothing.enqueue(number) for number in range(5)]
    old = tree.start("--processes", "2", env=OLD_CODE)
    for job in known:
        tree.wait_for_status(job, "done")
    wait_for(lambda: tree.count(parked="type") == 5, what="all are parked")
    assert {state(job) for job in unknown} == {("ready", 0, 0, 0)}
    # Neither an empty queue nor parked jobs are asked for all the time: five looks a second each, and heartbeats.
    assert _transactions_a_second(tree) < 100
    wait_for(lambda: sum(int(line.split()[4 - 1]) for line in lines(old, "are parked")) == 5, what="all are said")
    new = tree.start()
    for number, job in enumerate(unknown):
        tree.wait_for_status(job, "done")
        assert (state(job), job.parked, job.run_at, job.result) == (("done", 0, 0, 1), None, due[job.pk], number)
    assert [workers.stop() for workers in (old, new)] == [0, 0]


@on_sqlite
def test_on_sqlite_jobs_parked_by_old_code_are_run_by_the_next_start_that_knows_them(tree: Tree) -> None:
    unknown = newer.enqueue(7)
    old = tree.start("--burst", env=OLD_CODE)
    assert old.wait() == 0
    assert (state(unknown), unknown.parked) == (("ready", 0, 0, 0), "type")
    new = tree.start("--burst")
    assert new.wait() == 0
    assert (state(unknown), unknown.result) == (("done", 0, 0, 1), 7)


@on_postgresql
def test_a_due_job_whose_row_somebody_holds_is_not_asked_for_all_the_time(tree: Tree) -> None:
    job = nothing.enqueue()
    with session(tree.alias) as other:
        other.begin()
        other.sql("SELECT 1 FROM django_jobs_job WHERE id = %s FOR UPDATE", job.pk)
        workers = tree.start()
        workers.wait_until_ready()
        assert _transactions_a_second(tree) < 100
        assert state(job) == ("ready", 0, 0, 0)
    tree.wait_for_status(job, "done", timeout=3.0)
    assert workers.stop() == 0


def test_progress_is_stored_and_its_last_value_stays(tree: Tree) -> None:
    jobs = [report.enqueue(3), report_and_return.enqueue(2)]
    workers = tree.start()
    for job in jobs:
        tree.wait_for_status(job, "done")
    assert jobs[0].progress == {"done": 3, "total": 3, "note": "step 3"}
    assert jobs[1].progress == {
        "done": 2,
        "total": 2,
        "note": "\N{REPLACEMENT CHARACTER} step\N{REPLACEMENT CHARACTER}",
    }
    assert workers.stop() == 0


def test_outcomes_returned_and_raised_end_as_documented(tree: Tree) -> None:
    outcomes = {
        (how, raised): end_as.enqueue(how, raised)
        for how in ("retry", "snooze", "fail", "cancel")
        for raised in (False, True)
    }
    chosen = {
        name: choose_error.enqueue(name) for name in ("OSError", "FileNotFoundError", "ValidationError", "KeyError")
    }
    workers = tree.start("--burst")
    assert workers.wait() == 0
    expected = {
        "retry": (("dead", 2, 0, 2), [(1, "retry"), (2, "retry")], "Retry"),
        "snooze": (("ready", 0, 0, 1), [(1, "snoozed")], "Snooze"),
        "fail": (("failed", 0, 0, 1), [(1, "failed")], "no"),
        "cancel": (("cancelled", 0, 0, 1), [(1, "cancelled")], "enough"),
    }
    for (how, _), job in outcomes.items():
        assert (state(job), ends(job), job.last_error) == expected[how]
    assert {name: state(job)[:3] for name, job in chosen.items()} == {
        "OSError": ("dead", 8, 0),
        "FileNotFoundError": ("failed", 0, 0),
        "ValidationError": ("failed", 0, 0),
        "KeyError": ("failed", 0, 0),
    }
    snoozed = outcomes["snooze", True]
    assert timedelta(minutes=59) < snoozed.run_at - snoozed.created_at < timedelta(minutes=61)
    dead_letters = Job.objects.using(tree.alias).dead_letters()
    assert {job.status for job in dead_letters} == {"dead", "failed"}
    assert len(dead_letters) == 2 + 2 + 4


def test_failed_attempts_wait_by_their_backoff(tree: Tree) -> None:
    jobs = [wait_for_file.enqueue(str(number), 7) for number in range(10)]  # type: ignore[arg-type]
    workers = tree.start("--burst", settings={"BACKOFF": [1000, 1, 1000]})
    assert workers.wait() == 0
    waits = [job.refresh().run_at - (job.last_started_at or job.run_at) for job in jobs]
    assert all(timedelta(0) < wait < timedelta(seconds=1010) for wait in waits)
    assert max(waits) - min(waits) > timedelta(seconds=100), "they are spread"
    for job in jobs:
        assert (job.status, job.losses) == ("ready", 0)
        assert ends(job) == [(run, "raised") for run in range(1, job.attempts + 1)]
        assert "TypeError" in job.last_error


@on_postgresql
def test_missing_tables_are_said_in_one_line_with_exit_2(tree: Tree) -> None:
    _refuses(tree.start("--burst", env={"PGOPTIONS": "-c search_path=nowhere"}))


@on_sqlite
def test_missing_tables_of_sqlite_are_said_in_one_line_with_exit_2(tree: Tree, tmp_path: Any) -> None:
    name = connections[tree.alias].settings_dict["NAME"]
    connections[tree.alias].settings_dict["NAME"] = str(tmp_path / "empty.sqlite3")
    try:
        workers = tree.start("--burst")
    finally:
        connections[tree.alias].settings_dict["NAME"] = name
    _refuses(workers)


def _refuses(workers: RunWorkers) -> None:
    assert workers.wait() == 2
    assert "run `manage.py migrate`" in workers.log
    assert "Traceback" not in workers.log
