"""What type checkers say of Django's tasks as jobs, where django-stubs tell them of tasks. Never run."""

from __future__ import annotations

from datetime import timedelta

from django.tasks import task

from django_jobs import schedule
from django_jobs.testing import assert_enqueued, assert_takes_effect_once, enqueued, run_jobs


@schedule(every=timedelta(hours=1))
@task
def of_tasks() -> None: ...


def of_the_kit() -> None:
    run_jobs(types=[of_tasks])
    enqueued(of_tasks)
    assert_enqueued(of_tasks)
    assert_takes_effect_once(of_tasks)
    assert_takes_effect_once(of_tasks.enqueue())
    assert_takes_effect_once(5)  # type: ignore[arg-type]
