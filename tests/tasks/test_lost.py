"""A task whose worker is killed."""

from __future__ import annotations

import pytest

from tests.harness import Tree, wait_for
from tests.processes.common import on_postgresql, with_processes
from tests.tasks_contract.framework import TaskResultStatus
from tests.tasks_contract.tasks import kill_its_worker_at_first

pytestmark = [pytest.mark.fast, *with_processes]


@on_postgresql
def test_a_task_whose_worker_was_killed_runs_again(tree: Tree) -> None:
    result = kill_its_worker_at_first.enqueue()
    tree.start("--threads", "1")

    def ended() -> bool:
        result.refresh()
        return result.is_finished

    wait_for(ended)
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 2, 2)
    (error,) = result.errors
    assert error.exception_class_path == "django_jobs.exceptions.JobsError"
    assert "signal 9" in error.traceback
