"""What the functions of the kit take for a type of job, all in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.testing import (
    assert_enqueued,
    assert_takes_effect_once,
    database_away,
    enqueued,
    lease_lost,
    run_jobs,
    worker_lost,
)
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone

pytestmark = alone


def met(fault: Any) -> Callable[[Any], Any]:
    def run(given: Any) -> None:
        with fault(given):
            run_jobs()

    return run


TAKE: list[Callable[[Any], Any]] = [
    enqueued,
    assert_enqueued,
    met(worker_lost),
    met(database_away),
    met(lease_lost),
    lambda given: run_jobs(types=[given]),
    assert_takes_effect_once,
]


@pytest.mark.parametrize("given", [jobs.leave_once, jobs.leave_once.name], ids=["function", "name"])
def test_a_job_function_or_the_name_of_its_type_is_taken(engine: Engine, given: Any) -> None:
    for number, take in enumerate(TAKE):
        run_jobs()
        job = jobs.leave_once.enqueue(str(number))
        take(given)
        assert job.refresh().status == ("ready" if number < 2 else "done")


def test_anything_else_is_refused_with_what_to_give(engine: Engine) -> None:
    row = jobs.step.enqueue("x")
    for take in TAKE:
        for wrong in (5, jobs.step.job_type.function, row, [jobs.step]):
            if (take, wrong) != (assert_takes_effect_once, row):
                with pytest.raises(
                    InvalidJobType, match="is no type of job; give a function with @job, a task, or the name"
                ):
                    take(wrong)
        with pytest.raises(InvalidJob, match=r"'tests.kit_jobs.step' is no .* there is .*tests.testing.kit_jobs.step"):
            take("tests.kit_jobs.step")
    with pytest.raises(InvalidJob, match="lost: times is 0"), worker_lost(times=0):
        pass


def test_the_only_job_of_a_type_that_waits_is_meant(engine: Engine) -> None:
    with pytest.raises(AssertionError, match=r"no job of .*step waits"):
        assert_takes_effect_once(jobs.step)
    jobs.step.enqueue("x")
    jobs.step.enqueue("y")
    with pytest.raises(InvalidJob, match="more than one job"):
        assert_takes_effect_once(jobs.step)
    with pytest.raises(InvalidJobType, match="effect=5"):
        assert_takes_effect_once(jobs.step, effect=5)  # type: ignore[arg-type]
