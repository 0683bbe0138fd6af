from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs import pause, resume, waiting
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, ClaimOrder, Done, Run, Settlement
from django_jobs.models import Job, Pause, Worker
from django_jobs.queue.edit import edit
from django_jobs.queue.history import entry
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
TYPE = nothing.name
ORDER = ClaimOrder(locked_by="w:1", lease=30, limit=10, queues=None, types=(TYPE,))


def worker(engine: Engine, **changes: Any) -> Worker:
    values = {"id": "w", "host": "host", "pid": 7, "supervisor_pid": 6, "types": [TYPE], "threads": 4, **changes}
    found: Worker = Worker.objects.using(engine.alias).create(**values)
    return found


def claim(engine: Engine, lease: float = 30) -> None:
    order = ClaimOrder(locked_by="w:1", lease=lease, limit=10, queues=None, types=(TYPE,))
    assert engine.claim(order).jobs


def in_whole_seconds(job: Job) -> str:
    """Return what is said of a job, its times in whole seconds: a loaded machine lets tenths of one pass."""
    return re.sub(r"\b(\d+)\.\d s\b", r"\1 s", job.explain())


def settle(engine: Engine, job: Job, status: str, counts: Any, error: str, delay: float | None = None) -> None:
    claim(engine)
    job.refresh()
    line = json.dumps({"run": job.token, "cause": "raised", "error": error, "worker": "host:7", "seconds": 1})
    run = Job.objects.using(engine.alias).values_list("id", "token", "locked_by").get(pk=job.pk)
    engine.settle([Settlement(Run(*run), status, counts, "raised", delay=delay, error=error, entry=line)], 10)


def test_a_due_job_without_workers_says_that_none_runs(engine: Engine) -> None:
    assert "but no worker is running: start `manage.py runworkers`" in nothing.enqueue().explain()


def test_a_job_in_a_queue_that_nobody_serves_says_so(engine: Engine) -> None:
    worker(engine, queues=["mail"])
    assert "the one live worker does not serve the queue 'default'" in nothing.enqueue().explain()


def test_a_job_of_a_type_that_nobody_knows_says_so(engine: Engine) -> None:
    worker(engine, types=["other"])
    assert f"no live worker that serves the queue 'default' knows the type '{TYPE}'" in nothing.enqueue().explain()


def test_a_silent_worker_does_not_count_as_live(engine: Engine) -> None:
    worker(engine)
    Worker.objects.using(engine.alias).update(heartbeat_at=Now() - timedelta(seconds=31))
    assert "no worker is running" in nothing.enqueue().explain()


def test_a_parked_job_says_who_parked_it_and_who_will_take_it(engine: Engine) -> None:
    job = nothing.enqueue()
    engine.claim(ClaimOrder(locked_by="old:1", lease=30, limit=1, queues=None, types=("other",)))
    worker(engine)
    assert "a worker without the type" in job.explain()


def test_a_job_that_others_are_ahead_of_says_how_many(engine: Engine) -> None:
    worker(engine)
    nothing.using(priority=5).enqueue()
    nothing.using(queue="other", priority=5).enqueue()
    assert "1 due job is before it in its queue, 1 live worker serves it" in nothing.enqueue().explain()


def run(engine: Engine, number: int, holder: str = "w:1") -> None:
    """Have so many jobs run somewhere."""
    values = {"type": TYPE, "payload": {"args": [], "kwargs": {}}, "status": "running", "token": 1}
    lease = {"locked_by": holder, "locked_until": Now() + timedelta(minutes=1), "last_started_at": Now()}
    Job.objects.using(engine.alias).bulk_create([Job(**values, **lease) for _ in range(number)])


def test_a_job_for_which_no_thread_is_free_says_so_and_how_many_are_ahead(engine: Engine) -> None:
    worker(engine, threads=2)
    worker(engine, id="v", pid=8, threads=1)
    nothing.using(priority=5).enqueue()
    job = nothing.enqueue()
    run(engine, 2)
    assert "1 due job is before it in its queue, 2 live workers serve it" in job.explain()
    run(engine, 1, "v:7")
    busy = "all 3 threads of the 2 live workers that serve it are busy, and 1 due job is before it in its queue"
    assert in_whole_seconds(job) == f"Due for 0 s; {busy}."


def test_threads_of_workers_that_do_not_serve_the_job_are_not_counted(engine: Engine) -> None:
    worker(engine, threads=1)
    worker(engine, id="v", pid=8, queues=["mail"])
    worker(engine, id="u", pid=9, types=["other"])
    job = nothing.enqueue()
    run(engine, 3, "v:1")
    run(engine, 3, "u:1")
    run(engine, 3, "ww:1")
    assert "busy" not in job.explain()
    run(engine, 1)
    assert "the one thread of the live worker that serves it is busy, and 0 due jobs" in job.explain()


def test_of_very_many_that_are_ahead_it_says_so_many_or_more(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AHEAD_LIMIT", 3)
    worker(engine, threads=1)
    nothing.using(priority=5).enqueue_many([nothing.call() for _ in range(5)])
    run(engine, 1)
    assert "busy, and 3 or more due jobs are before it" in nothing.enqueue().explain()


def test_workers_that_were_asked_to_claim_nothing_more_do_not_serve(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    Worker.objects.using(engine.alias).update(asked="quiet")
    assert "but the live worker that serves it was asked to claim nothing more" in job.explain()
    worker(engine, id="v", pid=8, asked="stop")
    assert "but all 2 live workers that serve it were asked to claim nothing more" in job.explain()
    Worker.objects.using(engine.alias).filter(pk="v").update(asked="")
    assert "1 live worker serves it" in job.explain()


def test_without_a_live_worker_it_says_since_when_the_last_is_silent(engine: Engine) -> None:
    worker(engine, heartbeat_at=Now() - timedelta(minutes=5))
    worker(engine, id="v", pid=8, heartbeat_at=Now() - timedelta(hours=5))
    said = "but no worker is running (host:7 is silent for 5 min): start `manage.py runworkers`."
    assert nothing.enqueue().explain().endswith(said)


def test_an_edit_hides_no_reason_why_a_retry_waits(engine: Engine) -> None:
    job = nothing.enqueue()
    settle(engine, job, "ready", "attempt", "ValueError: no", delay=600)
    edit(job.pk, priority=3)
    assert job.explain() == "Attempt 2 of 8 is due in 10 min; the last run ended as 'raised': ValueError: no."


def test_of_an_error_with_tracebacks_it_says_what_was_raised_last(engine: Engine) -> None:
    trace = 'Traceback (most recent call last):\n  File "x", line 1\n'
    text = f"{trace}OSError: down\n\nwhich came from:\n\n{trace}ValueError: no\n"
    job = Job.objects.using(engine.alias).create(
        type=TYPE, payload={"args": [], "kwargs": {}}, status="failed", finished_at=Now(), last_error=text
    )
    assert in_whole_seconds(job) == "Failed for good 0 s ago: OSError: down"


@pytest.mark.parametrize("status", ["ready", "running", "dead", "failed", "cancelled"])
def test_no_secret_of_a_job_is_said(engine: Engine, status: str) -> None:
    line = {"run": 1, "cause": "raised", "error": "hunter2 refused", "worker": "h:1", "seconds": 1, "at": "x"}
    ends = {
        "running": {"locked_by": "w:1", "locked_until": Now()},
        "ready": {"run_at": Now() + timedelta(hours=1)},
    }.get(status, {"finished_at": Now()})
    job = Job.objects.using(engine.alias).create(
        type=TYPE,
        payload={"args": [], "kwargs": {"password": "hunter2"}},
        status=status,
        token=1,
        history=[line],
        last_error="ValueError: hunter2 refused, token=abc",
        cancel_reason="by ada: hunter2 leaked" if status in ("running", "cancelled") else None,
        **ends,  # type: ignore[arg-type]
    )
    said = job.explain()
    assert "•••" in said
    assert "hunter2" not in said
    assert "abc" not in said
    assert job.refresh().history == [line]


def test_a_future_job_says_when_it_is_due(engine: Engine) -> None:
    assert nothing.using(delay=3 * 3600).enqueue().explain() == "The first run is due in 3 h."


def test_a_retry_says_which_attempt_waits_and_why(engine: Engine) -> None:
    job = nothing.enqueue()
    settle(engine, job, "ready", "attempt", "ValueError: no", delay=600)
    assert job.explain() == ("Attempt 2 of 8 is due in 10 min; the last run ended as 'raised': ValueError: no.")


def test_a_streak_of_the_same_end_is_counted(engine: Engine) -> None:
    job = nothing.enqueue()
    settle(engine, job, "ready", "attempt", "no")
    settle(engine, job, "ready", "attempt", "no", delay=600)
    assert "ended as 'raised', 2 times in a row" in job.explain()


@pytest.mark.parametrize(("ends", "says"), [(9, "9"), (10, "at least 9"), (13, "at least 9")])
def test_a_streak_that_may_be_longer_than_the_history_says_at_least(engine: Engine, ends: int, says: str) -> None:
    worker(engine)
    job = nothing.using(max_attempts=20).enqueue()
    for _number in range(ends):
        settle(engine, job, "ready", "nothing", "no")
    assert f"ended as 'raised', {says} times in a row: no" in job.explain()


def test_a_streak_among_the_last_lines_of_a_full_history_is_counted(engine: Engine) -> None:
    line = {"run": 1, "cause": "raised", "error": "no", "worker": "h:1", "seconds": 1}
    job = nothing.enqueue()
    lines = [line, {**line, "cause": "lost"}, *[line] * 8]
    Job.objects.using(engine.alias).filter(pk=job.pk).update(history=lines, run_at=Now() + timedelta(hours=1))
    assert "ended as 'raised', 8 times in a row: no" in job.explain()


def test_a_running_job_says_where_it_runs_and_for_how_long_it_is_leased(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    claim(engine)
    sentence = job.explain()
    assert "on host:7 (run 1), leased for another" in sentence


def test_a_running_job_with_a_silent_worker_says_so(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    claim(engine)
    Worker.objects.using(engine.alias).update(heartbeat_at=Now() - timedelta(seconds=25))
    assert "the worker is silent for 25 s" in job.explain()


def test_a_running_job_whose_lease_ran_out_says_so(engine: Engine) -> None:
    job = nothing.enqueue()
    claim(engine)
    Job.objects.using(engine.alias).update(locked_until=Now() - timedelta(seconds=5))
    assert "its lease ran out 5" in job.explain()
    assert "gone or has not said it is there" in job.explain()


@pytest.mark.parametrize(
    ("status", "counts", "says"),
    [
        ("failed", "end", "Failed for good"),
        ("dead", "attempt", "Dead after 1 of 8 attempts, "),
        ("cancelled", "end", "Cancelled"),
    ],
)
def test_an_ended_job_says_how_and_why(engine: Engine, status: str, counts: str, says: str) -> None:
    job = nothing.enqueue()
    settle(engine, job, status, counts, "Traceback...\nOSError: disk")
    assert job.explain().startswith(says)
    assert job.explain().endswith("OSError: disk")


def test_a_deleted_job_says_that_it_is_gone(engine: Engine) -> None:
    job = nothing.enqueue()
    pk = job.pk
    Job.objects.using(engine.alias).all().delete()
    assert job.explain() == f"Job {pk} is gone: it was deleted."


# Pauses, and what people did.


def test_a_job_of_a_paused_queue_or_type_says_by_whom_since_when_and_until_when(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    pause(queue="default", until=1800, by="ada", why="No paper.")
    Pause.objects.using(engine.alias).update(created_at=Now() - timedelta(seconds=180))
    says = "but its queue 'default' was paused by ada 3 min ago for another 30 min (No paper)."
    assert job.explain().startswith("Due for ")
    assert in_whole_seconds(job).endswith(says)
    pause(type=nothing)
    assert f"(No paper) and its type '{TYPE}' was paused 0 s ago until it is resumed." in in_whole_seconds(job)
    Job.objects.using(engine.alias).update(run_at=Now() + timedelta(hours=3, seconds=1))
    said = f"The first run is due in 3 h; but its type '{TYPE}' was paused 0 s ago until it is resumed."
    assert in_whole_seconds(job) == said  # and not the queue's, which is over by then
    Pause.objects.using(engine.alias).filter(kind="queue").update(until=Now() + timedelta(hours=4))
    assert job.explain().startswith("The first run is due in 3 h; but its queue 'default' was paused by ada")
    Pause.objects.using(engine.alias).update(until=Now() - timedelta(seconds=1))
    assert job.explain() == "The first run is due in 3 h."


def test_a_job_that_a_pause_had_parked_says_that_it_is_over(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    pause(type=nothing)
    assert engine.claim(ClaimOrder(locked_by="w:1", lease=30, limit=1, queues=None, types=(TYPE,))).parked == 1
    assert "was paused" in job.explain()
    resume(type=nothing)
    assert (
        "it was parked by a pause that is over, and the one worker that knows its type takes it next" in job.explain()
    )


def test_a_job_that_may_expire_says_when_and_that_it_is_about_to(engine: Engine) -> None:
    worker(engine)
    job = nothing.using(expires=601).enqueue()
    assert job.explain().endswith("; it is cancelled unless it starts within 10 min.")
    Job.objects.using(engine.alias).update(expires_at=Now() - timedelta(seconds=5))
    assert "but the time by which it had to start passed 5 s ago: it is about to be cancelled." in in_whole_seconds(job)
    engine.cancel_expired(10)
    assert job.explain().endswith("ago: The time by which it had to start passed before a worker took it.")


def test_a_job_that_a_person_cancelled_says_who_and_why(engine: Engine) -> None:
    job = nothing.enqueue()
    settle(engine, job, "ready", "attempt", "ValueError: no")
    job.cancel(by="ada", why="Wrong order.")
    assert in_whole_seconds(job) == "Cancelled 0 s ago by ada: Wrong order."
    other = nothing.enqueue().cancel()
    assert in_whole_seconds(other) == "Cancelled 0 s ago by a person: no reason given."


def test_a_running_job_that_was_asked_to_stop_says_so_with_its_age(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    claim(engine)
    job.refresh().cancel(by="ada", why="enough")
    history = [{**line, "at": at(engine, 3)} for line in job.history]
    Job.objects.using(engine.alias).update(history=history)
    says = (
        "(run 1); it was asked to stop 3 s ago by ada: enough: its handler is told with a heartbeat (every 10 s), and "
        "it is cancelled when its run ends, leased for another 30 s."
    )
    assert in_whole_seconds(job).endswith(says)
    Job.objects.using(engine.alias).update(history=[{**line, "at": None} for line in job.history])
    assert "it was asked to stop some time ago by ada" in job.explain()
    run = Run(job.pk, 1, "w:1")
    engine.complete([Done(run, None)])
    assert job.explain().endswith("by ada: enough; its run returned or was not begun.")


def at(engine: Engine, seconds: float) -> str:
    """Return the time so many seconds ago as a line of a history has it."""
    moment = (
        Job.objects.using(engine.alias).annotate(at=Now() - timedelta(seconds=seconds)).values_list("at", flat=True)
    )
    return str(moment[0].isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def test_how_a_run_ended_that_was_asked_to_stop_is_said(engine: Engine) -> None:
    job = nothing.enqueue()
    claim(engine)
    job.refresh().cancel(by="ada")
    entry = json.dumps({"run": 1, "cause": "raised", "error": "OSError: x.", "worker": "h:1", "seconds": 1})
    engine.settle([Settlement(Run(job.pk, 1, "w:1"), "ready", "attempt", "raised", entry=entry)], 10)
    assert job.explain().endswith("ago by ada; its run ended as 'raised': OSError: x.")


def test_a_requeued_job_says_who_requeued_it_and_when(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    settle(engine, job, "dead", "attempt", "no")
    job.refresh().requeue(by="ada", why="the disk is there")
    said = r"; requeued \d\.\d s ago by ada: the disk is there; 0 due jobs are before it"
    assert re.search(said, job.explain())


def die(engine: Engine, claimed: Claimed, error: str) -> str:
    line = entry(claimed.token, "died", error, "host:7", 1.0)
    died = Settlement(claimed.run, "ready", "loss", "died", witnessed=True, error=error, entry=line)
    return engine.settle([died], 10)[claimed.id]


def test_a_suspect_says_why_it_is_one_and_how_many_are_before_it(engine: Engine) -> None:
    worker(engine)
    jobs = [nothing.enqueue() for _ in range(3)]
    for claimed in engine.claim(ORDER).jobs:
        die(engine, claimed, "it died.")
    why = "it is to be run alone, since it may have killed its process"
    assert jobs[2].explain().startswith("Due for 0.")
    assert jobs[2].explain().endswith(f"; {why} (run 1 ended as 'died': it died); 2 suspects are before it.")
    assert jobs[1].explain().endswith("; 1 suspect is before it.")
    rows = Job.objects.using(engine.alias).filter(pk=jobs[0].pk)
    rows.update(losses=3)
    said = f"; {why}, lost 3 times in a row (run 1 ended as 'died': it died); 2 suspects are before it."
    assert jobs[0].explain().endswith(said)
    assert jobs[2].explain().endswith("; 1 suspect is before it.")
    rows.update(run_at=Now() + timedelta(hours=1), losses=1)
    assert "is due in 60 min; the last run ended as 'died': it died; it is to be run alone." in jobs[0].explain()
    assert jobs[1].explain().endswith("; 0 suspects are before it.")
    rows.update(status="running", locked_by="w:2", locked_until=Now(), suspect=True, parked=None)
    assert jobs[1].explain().endswith("; 0 suspects are before it, and 1 runs alone now.")


def test_a_suspect_that_runs_says_that_it_runs_alone_and_one_that_is_dead_why(engine: Engine) -> None:
    worker(engine)
    job = nothing.enqueue()
    (claimed,) = engine.claim(ORDER).jobs
    die(engine, claimed, "it died.")
    (claimed,) = engine.claim_suspect(ORDER).jobs
    assert job.explain().startswith("Runs alone, as a suspect, for 0.")
    assert die(engine, claimed, "it died again.") == "dead"
    assert job.explain().endswith(" ago: it died again. It ran alone, and was lost 2 times in a row.")
    job.refresh().requeue(by="ada")
    assert "it is to be run alone, since it may have killed its process (run 2 ended as 'died'" in job.explain()
