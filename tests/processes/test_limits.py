"""Worker processes that reach a limit are replaced, without harm to what they run."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from tests.app.deadline_jobs import grow
from tests.app.jobs import leave_effect, nothing, wait_for_file
from tests.app.models import Effect
from tests.harness import Tree, wait_for
from tests.processes.common import (
    ends,
    lines,
    lives,
    on_postgresql,
    state,
    wait_for_effect,
    with_processes,
)

pytestmark = with_processes
MIB = 1024 * 1024


def test_a_process_claims_no_more_jobs_than_it_may_and_is_replaced(tree: Tree) -> None:
    jobs = [leave_effect.enqueue(str(number)) for number in range(60)]
    workers = tree.start("--burst", "--processes", "2", settings={"MAX_JOBS_PER_PROCESS": 10})
    begun = time.monotonic()
    assert workers.wait() == 0, workers.log
    # Nobody is taken for a process that keeps dying at its start.
    assert time.monotonic() - begun < 15
    assert {state(job) for job in jobs} == {("done", 0, 0, 1)}
    each = Counter(Effect.objects.using(tree.alias).values_list("pid", flat=True))
    assert (sum(each.values()), max(each.values())) == (60, 10)
    assert len(lines(workers, "has claimed 10 jobs (MAX_JOBS_PER_PROCESS is 10); it is replaced")) >= 5
    assert not lines(workers, " died: ")
    summaries = [line.split("Last second: ")[1].split(" done")[0] for line in lines(workers, "Last second: ")]
    assert sum(int(number) for number in summaries if number.isdigit()) == 60


@on_postgresql
def test_the_replacement_comes_before_the_process_has_ended(tree: Tree, tmp_path: Path) -> None:
    running = wait_for_file.enqueue("running", str(tmp_path / "go"))
    workers = tree.start(settings={"MAX_JOBS_PER_PROCESS": 2})
    pid = wait_for_effect(tree, "running:start")
    tree.wait_for_status(leave_effect.enqueue("second"), "done")
    tree.wait_for_status(leave_effect.enqueue("third"), "done")
    assert wait_for_effect(tree, "second") == pid
    assert wait_for_effect(tree, "third") != pid
    assert lives(pid)
    (tmp_path / "go").touch()
    tree.wait_for_status(running, "done")
    assert (state(running), wait_for_effect(tree, "running:end")) == (("done", 0, 0, 1), pid)
    wait_for(lambda: not lives(pid), what="the end of the process that was replaced")
    assert workers.stop() == 0


@on_postgresql
def test_what_does_not_finish_within_drain_is_cut_uncharged(tree: Tree, tmp_path: Path) -> None:
    running = wait_for_file.enqueue("running", str(tmp_path / "go"))
    workers = tree.start(settings={"MAX_JOBS_PER_PROCESS": 1, "DRAIN": 1})
    pid = wait_for_effect(tree, "running:start")
    assert wait_for_effect(tree, "running:start", run=2) != pid
    assert not lives(pid)
    (tmp_path / "go").touch()
    tree.wait_for_status(running, "done")
    assert state(running)[:3] == ("done", 0, 0)
    assert {cause for _, cause in ends(running)} == {"stopped"}
    assert workers.stop() == 0


def test_a_process_that_grew_too_large_finishes_and_is_replaced_and_the_log_has_the_figure(
    tree: Tree, tmp_path: Path
) -> None:
    running = wait_for_file.enqueue("running", str(tmp_path / "go"))
    workers = tree.start(settings={"MAX_PROCESS_MEMORY": 300 * MIB})
    pid = wait_for_effect(tree, "running:start")
    small = grow.enqueue("small", 1)
    tree.wait_for_status(small, "done")
    grow.enqueue("large", 300)
    assert wait_for_effect(tree, "large") == pid
    (line,) = wait_for(lambda: lines(workers, "of resident memory"))
    said = line.split(f"Worker process {pid} has ")[1]
    assert said.endswith(" MiB of resident memory (MAX_PROCESS_MEMORY is 300.0 MiB); it is replaced")
    assert 300 < float(said.split(" MiB")[0]) < 600
    wait_for(lambda: pid not in workers.worker_pids() or len(workers.worker_pids()) == 2)
    tree.wait_for_status(leave_effect.enqueue("after"), "done")
    assert wait_for_effect(tree, "after") != pid
    (tmp_path / "go").touch()
    tree.wait_for_status(running, "done")
    assert (state(running), wait_for_effect(tree, "running:end")) == (("done", 0, 0, 1), pid)
    assert workers.stop() == 0


@on_postgresql
def test_a_process_that_is_too_large_from_the_start_does_something_before_it_is_replaced(tree: Tree) -> None:
    workers = tree.start(settings={"MAX_PROCESS_MEMORY": 16 * MIB})
    for number in range(5):
        tree.wait_for_status(nothing.enqueue(number), "done")
    assert len(lines(workers, "of resident memory")) <= 5
    assert workers.stop() == 0
