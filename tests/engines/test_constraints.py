"""Rows that make no sense are refused by the database itself, whoever writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from django_jobs.models import Job
from tests.engines.common import alone, enqueue, rows, running

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone
LEASE = {"locked_by": "w:1", "locked_until": Now()}
NO_LEASE: dict[str, Any] = {"locked_by": None, "locked_until": None}


def refused(engine: Engine, constraint: str, **values: Any) -> None:
    before = rows(engine)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic(using=engine.alias):
        Job.objects.using(engine.alias).update(**values)
    assert rows(engine) == before


@pytest.mark.parametrize("status", ["", "waiting", "READY"])
def test_a_status_is_one_of_six(engine: Engine, status: str) -> None:
    enqueue(1)
    refused(engine, "django_jobs_status|django_jobs_finished", status=status)
    refused(engine, "django_jobs_status", status=status, finished_at=Now())


@pytest.mark.parametrize("values", [{"locked_by": "w:1"}, {"locked_until": Now()}, LEASE])
def test_a_waiting_job_has_no_lease(engine: Engine, values: dict[str, Any]) -> None:
    enqueue(1)
    refused(engine, "django_jobs_lease", **values)


@pytest.mark.parametrize("values", [{"locked_by": None}, {"locked_until": None}, NO_LEASE])
def test_a_running_job_has_a_whole_lease(engine: Engine, values: dict[str, Any]) -> None:
    running(engine)
    refused(engine, "django_jobs_lease", **values)


@pytest.mark.parametrize("status", ["done", "failed", "dead", "cancelled"])
def test_a_job_that_ended_has_no_lease_and_an_end(engine: Engine, status: str) -> None:
    running(engine)
    refused(engine, "django_jobs_lease", status=status, finished_at=Now())
    refused(engine, "django_jobs_finished", status=status, **NO_LEASE)


def test_a_job_that_has_not_ended_has_no_end(engine: Engine) -> None:
    running(engine)
    refused(engine, "django_jobs_finished", finished_at=Now())
    refused(engine, "django_jobs_finished", finished_at=Now(), status="ready", **NO_LEASE)


def test_only_a_waiting_job_is_parked(engine: Engine) -> None:
    running(engine)
    refused(engine, "django_jobs_parked_ready", parked="type")


@pytest.mark.parametrize(
    ("name", "value"),
    [("priority", 101), ("priority", -101), ("attempts", -1), ("max_attempts", 0), ("losses", -1), ("token", -1)],
)
def test_numbers_are_within_their_limits(engine: Engine, name: str, value: int) -> None:
    enqueue(1)
    refused(engine, "django_jobs_numbers", **{name: value})


def test_a_key_is_held_once(engine: Engine) -> None:
    enqueue(2)
    refused(engine, "django_jobs_key|idempotency_key", idempotency_key="k")
