"""Jobs that kill what they run in: each is run alone, and convicted; what ran beside it does not notice but by a repetition."""

from __future__ import annotations

import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.db import connections

from django_jobs import pause, resume
from django_jobs.models import Job, Pause
from tests.app.deadline_jobs import catch_everything, grow
from tests.app.jobs import choose_error, leave_effect, nothing, wait_for_file
from tests.app.killer_jobs import do_good, kill_by, kill_session_of_server
from tests.app.models import Effect
from tests.app.process_jobs import die_by_exit
from tests.harness import RunWorkers, Tree, wait_for
from tests.processes.common import (
    effects,
    ends,
    lines,
    lives,
    on_postgresql,
    state,
    wait_for_effect,
    wait_until_gone,
    with_processes,
)

pytestmark = with_processes
MIB = 1024 * 1024
LEASE = {"LEASE": 1.5, "HEARTBEAT": 0.4, "MAX_UNCOUNTED": 5}


def with_innocents(ways: list[str], innocents: int = 50) -> tuple[list[Job], list[Job]]:
    """Enqueue killers among innocent jobs."""
    killers: list[Job] = []
    others = []
    for number in range(innocents):
        if number % 8 == 3 and len(killers) < len(ways):
            killers.append(kill_by.enqueue(ways[len(killers)], ways[len(killers)]))
        others.append(do_good.enqueue(f"good {number}"))
    return killers, others


def assert_all_good(tree: Tree, innocents: list[Job]) -> None:
    for job in innocents:
        tree.wait_for_status(job, "done")
    assert {(job.attempts, job.losses, job.suspect) for job in innocents} == {(0, 0, False)}
    assert [key for key, _ in effects(tree, key__startswith="good")] == sorted(
        f"good {n}" for n in range(len(innocents))
    )


def deaths(workers: RunWorkers) -> int:
    return len(lines(workers, " jobs in its hands "))


def suspect(tree: Tree, *jobs: Job, losses: int = 1) -> None:
    """Make jobs what they are when the process in which they ran has died."""
    rows = Job.objects.using(tree.alias).filter(pk__in=[job.pk for job in jobs])
    assert rows.update(suspect=True, parked="suspect", losses=losses) == len(jobs)


def test_killers_are_dead_after_two_processes_each_and_innocents_are_done_once(tree: Tree) -> None:
    killers, innocents = with_innocents(["segfault", "exit", "memory"])
    workers = tree.start("--processes", "2", "--threads", "4", settings={"SOLO_MEMORY": 64 * MIB})
    assert_all_good(tree, innocents)
    for job in killers:
        tree.wait_for_status(job, "dead")
        assert (job.attempts, job.losses, job.suspect) == (0, 2, True)
    assert [[cause for _, cause in ends(job) if cause != "outcome lost"] for job in killers] == [
        ["died", "died"],
        ["died", "died"],
        ["died", "out of memory"],
    ]
    assert [job.last_error.split("\n")[0] for job in killers] == [
        "The worker process died: signal 11 (SIGSEGV). It ran alone, and was lost 2 times in a row.",
        "The worker process died: exit code 9. It ran alone, and was lost 2 times in a row.",
        "Ran alone, and wanted more memory than SOLO_MEMORY allows (64 MiB).",
    ]
    assert "MemoryError" in killers[2].last_error
    assert deaths(workers) <= 2 * len(killers)
    assert workers.stop() == 0


def test_a_killer_that_the_kernel_kills_for_its_memory_is_dead_with_the_signal(tree: Tree) -> None:
    killers, innocents = with_innocents(["kernel", "memory"])
    workers = tree.start("--processes", "2", "--threads", "4")
    assert_all_good(tree, innocents)
    for job in killers:
        tree.wait_for_status(job, "dead")
        assert state(job) == ("dead", 0, 2, job.token)
        assert job.last_error.startswith("The worker process died: signal 9 (SIGKILL). It ran alone")
        assert "signal 9 (SIGKILL)" in job.explain()
    assert deaths(workers) <= 2 * len(killers)
    assert workers.stop() == 0


def test_killers_of_the_whole_tree_are_dead_in_the_end_and_innocents_are_done_once(tree: Tree) -> None:
    killers, innocents = with_innocents(["tree", "tree"])
    starts = 0
    while starts < 30:
        starts += 1
        workers = tree.start("--burst", "--processes", "2", "--threads", "4", settings={**LEASE, "MAX_UNCOUNTED": 4})
        if workers.wait(60) == 0 and not Job.objects.using(tree.alias).running().exists():
            break
        wait_until_gone(workers)
    assert_all_good(tree, innocents)
    for job in killers:
        tree.wait_for_status(job, "dead")
        assert (job.attempts, job.losses) == (0, 4)
        assert {cause for _, cause in ends(job)} == {"lease ran out"}
        assert job.last_error.startswith("Lost 4 times in a row, never seen to end.")
        assert ": Lost 4 times in a row, never seen to end." in job.explain()
    assert starts <= 1 + 4 * len(killers)


def test_a_handler_that_kills_its_processes_parent_is_dead_in_the_end_and_innocents_are_done(tree: Tree) -> None:
    (killer,), innocents = with_innocents(["template"], 20)
    workers = tree.start("--processes", "2", "--threads", "2", settings=LEASE)
    assert_all_good(tree, innocents)
    tree.wait_for_status(killer, "dead")
    assert (killer.attempts, killer.losses) == (0, 5)
    assert {cause for _, cause in ends(killer)} == {"worker failed"}
    assert killer.last_error == (
        "Lost 5 times in a row, never seen to end. The run was lost: the template process died."
    )
    assert len(lines(workers, "The template process died")) == 5
    tree.wait_for_status(nothing.enqueue(), "done")
    assert workers.stop() == 0


def test_a_suspect_runs_in_a_process_of_its_own_that_is_the_first_to_go(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "go"
    job = wait_for_file.enqueue("suspect", str(path))
    suspect(tree, job)
    ordinary = [wait_for_file.enqueue(f"ordinary {number}", str(path)) for number in range(2)]
    workers = tree.start("--threads", "2")
    pid = wait_for_effect(tree, "suspect:start")
    others = {wait_for_effect(tree, f"ordinary {number}:start") for number in range(2)}
    assert len(others) == 1
    assert pid not in others
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
    assert Path(f"/proc/{others.pop()}/oom_score_adj").read_text() == Path("/proc/self/oom_score_adj").read_text()
    assert "Runs alone, as a suspect, for " in job.explain()
    if tree.alias == "default":
        with connections[tree.alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'django_jobs:solo'")
            assert cursor.fetchone()[0] >= 2
    path.touch()
    for waiting in (job, *ordinary):
        tree.wait_for_status(waiting, "done")
    wait_for(lambda: not lives(pid), what="the end of the process that ran one suspect")
    assert (state(job), job.suspect) == (("done", 0, 0, 1), False)
    assert not lines(workers, " died: ")
    assert workers.stop() == 0


def test_a_suspect_that_raises_alone_is_charged_an_attempt_and_no_suspect_any_more(tree: Tree) -> None:
    job = choose_error.enqueue("OSError")
    suspect(tree, job)
    workers = tree.start()
    wait_for(lambda: job.refresh().attempts > 1, what="two attempts")
    assert (job.suspect, job.losses) == (False, 0)
    assert len(lines(workers, f" runs job {job.pk} ")) == 1
    assert workers.stop() == 0


def test_burst_ends_when_suspects_have_run_and_leaves_those_that_nobody_may_start(tree: Tree) -> None:
    due = [leave_effect.enqueue(f"due {number}") for number in range(3)]
    kept = [nothing.enqueue(), leave_effect.using(queue="shut").enqueue("shut"), nothing.using(delay=3600).enqueue()]
    kept.append(Job.objects.using(tree.alias).create(type="nobody.knows.it", payload={"args": [], "kwargs": {}}))
    suspect(tree, *due, *kept)
    pause(type=nothing)
    pause(queue="shut")
    workers = tree.start("--burst")
    assert workers.wait() == 0, workers.log
    assert {state(job) for job in due} == {("done", 0, 0, 1)}
    assert {(*state(job), job.parked) for job in kept} == {("ready", 0, 1, 0, "suspect")}
    assert len({pid for (pid,) in Effect.objects.using(tree.alias).values_list("pid")}) == 3


def test_eighty_suspects_are_run_one_by_one_and_stop_no_ordinary_work(tree: Tree) -> None:
    suspects = [do_good.enqueue(f"suspect {number}", 0.02) for number in range(80)]
    suspect(tree, *suspects)
    ordinary = [do_good.enqueue(f"good {number}") for number in range(50)]
    workers = tree.start("--burst", "--processes", "1", "--threads", "4")
    for job in ordinary:
        tree.wait_for_status(job, "done")
    assert tree.count(parked="suspect") >= 40
    assert workers.wait(60) == 0, workers.log
    assert {state(job) for job in suspects} == {("done", 0, 0, 1)}
    pids = Counter(Effect.objects.using(tree.alias).filter(key__startswith="suspect").values_list("pid", flat=True))
    assert (len(pids), max(pids.values())) == (80, 1)
    times = [(job.last_started_at, job.finished_at) for job in suspects]
    spans = sorted((start, end) for start, end in times if start and end)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_as_many_suspects_as_are_allowed_run_at_once(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "go"
    jobs = [wait_for_file.enqueue(str(number), str(path)) for number in range(3)]
    suspect(tree, *jobs)
    workers = tree.start(settings={"SOLO_PROCESSES": 3})
    assert len({wait_for_effect(tree, f"{number}:start") for number in range(3)}) == 3
    path.touch()
    for job in jobs:
        tree.wait_for_status(job, "done")
    assert workers.stop() == 0


def test_a_killer_that_is_requeued_runs_alone_and_costs_one_process(tree: Tree) -> None:
    job = die_by_exit.enqueue("a", 3)
    workers = tree.start()
    tree.wait_for_status(job, "dead")
    before = deaths(workers)
    assert before == 2
    job.requeue(why="try again")
    tree.wait_for_status(job, "dead")
    assert (state(job), deaths(workers)) == (("dead", 0, 2, 3), before + 1)
    # Once before it was convicted, and once more.
    assert len(lines(workers, f" runs job {job.pk} ")) == 2
    assert workers.stop() == 0


def test_three_convictions_pause_the_type_and_the_fourth_job_waits_with_the_reason(tree: Tree) -> None:
    killers = [die_by_exit.enqueue(str(number), 3) for number in range(3)]
    workers = tree.start(settings={"SOLO_PROCESSES": 2})
    for job in killers:
        tree.wait_for_status(job, "dead")
    row = wait_for(lambda: Pause.objects.using(tree.alias).first(), what="the pause")
    said = ", ".join(str(job.pk) for job in killers)
    why = f"3 jobs of it killed their process within 10 minutes: jobs {said}"
    assert (row.kind, row.name, row.by, row.until, row.why) == ("type", die_by_exit.name, "django_jobs", None, why)
    assert lines(workers, "ERROR   The type tests.app.process_jobs.die_by_exit is paused until a person resumes it")
    fourth = die_by_exit.enqueue("fourth", 3)
    tree.wait_for_status(nothing.enqueue(), "done")
    assert state(fourth) == ("ready", 0, 0, 0)
    assert "was paused by django_jobs " in fourth.explain()
    assert why in fourth.explain()
    # What a person has resumed stays so until the next conviction.
    good = nothing.enqueue()
    assert resume(type=die_by_exit)
    tree.wait_for_status(good, "done")
    tree.wait_for_status(fourth, "dead")
    wait_for(lambda: Pause.objects.using(tree.alias).filter(name=die_by_exit.name).exists(), what="paused again")
    assert workers.stop() == 0


def test_three_that_wanted_too_much_memory_pause_their_type_as_well(tree: Tree) -> None:
    jobs = [kill_by.enqueue(str(number), "memory") for number in range(3)]
    suspect(tree, *jobs)
    workers = tree.start(settings={"SOLO_MEMORY": 64 * MIB})
    for job in jobs:
        tree.wait_for_status(job, "dead")
        assert [cause for _, cause in ends(job)] == ["out of memory"]
    wait_for(lambda: Pause.objects.using(tree.alias).filter(name=kill_by.name).exists(), what="the pause")
    assert deaths(workers) == 0
    assert workers.stop() == 0


def test_memory_under_the_limit_may_be_had_alone(tree: Tree) -> None:
    job = grow.enqueue("16 MiB", 16)
    suspect(tree, job)
    workers = tree.start("--burst", settings={"SOLO_MEMORY": 64 * MIB})
    assert workers.wait() == 0
    assert state(job) == ("done", 0, 0, 1)


def test_a_handler_that_hangs_alone_is_ended_at_its_deadline(tree: Tree) -> None:
    job = catch_everything.using(timeout=0.5, max_attempts=1).enqueue("a")
    suspect(tree, job)
    workers = tree.start(env={"DJANGO_JOBS_TEST_PATIENCE": "0.5"})
    pid = wait_for_effect(tree, "a:start")
    tree.wait_for_status(job, "dead")
    assert (state(job), [cause for _, cause in ends(job)]) == (("dead", 1, 0, 1), ["deadline"])
    assert not job.suspect
    assert not lives(pid)
    assert workers.stop() == 0


def test_a_suspect_that_is_stopped_goes_back_uncharged_and_still_a_suspect(tree: Tree, tmp_path: Path) -> None:
    job = wait_for_file.enqueue("a", str(tmp_path / "never"))
    suspect(tree, job)
    workers = tree.start(settings={"SHUTDOWN_GRACE": 0.5})
    pid = wait_for_effect(tree, "a:start")
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 3
    assert not lives(pid)
    assert (state(job), job.suspect, job.parked) == (("ready", 0, 1, 1), True, "suspect")
    assert [cause for _, cause in ends(job)] == ["stopped"]


@on_postgresql
def test_a_query_that_crashes_its_server_process_again_and_again_is_dead_in_the_end_and_others_go_on(
    tree: Tree,
) -> None:
    job = kill_session_of_server.enqueue("a")
    rows = Job.objects.using(tree.alias).filter(pk=job.pk)
    workers = tree.start("--threads", "2", settings=LEASE)
    seen: list[tuple[Any, ...]] = []
    for number in range(1, 6):
        wait_for(lambda: job.refresh().losses == number and job.status != "running", what=f"loss {number}")  # noqa: B023
        seen.append((job.status, job.suspect, job.attempts))
        tree.wait_for_status(do_good.enqueue(f"good {number - 1}"), "done")
        rows.filter(status="ready").update(run_at=job.created_at)  # it would be due later and later
    assert seen == [("ready", False, 0), *[("ready", True, 0)] * 3, ("dead", True, 0)]
    assert {cause for _, cause in ends(job)} == {"connection broke"}
    assert job.last_error.startswith("Lost 5 times in a row, never seen to end. ")
    assert len(lines(workers, f" runs job {job.pk} ")) == 3
    assert workers.stop() == 0
