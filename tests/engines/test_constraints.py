"""Rows that make no sense are refused by the database itself, whoever writes them."""

from __future__ import annotations

import re
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


def refusal(engine: Engine, **values: Any) -> str:
    """Return what the database says when all rows are given these values; empty, or when rows changed, it took them."""
    before = rows(engine)
    try:
        with transaction.atomic(using=engine.alias):
            Job.objects.using(engine.alias).update(**values)
    except IntegrityError as error:
        return str(error) if rows(engine) == before else ""
    return ""


@pytest.mark.parametrize("status", ["", "waiting", "READY"])
def test_a_status_is_one_of_six(engine: Engine, status: str) -> None:
    enqueue(1)
    assert re.search("django_jobs_status|django_jobs_finished", refusal(engine, status=status))
    assert "django_jobs_status" in refusal(engine, status=status, finished_at=Now())


@pytest.mark.parametrize("values", [{"locked_by": "w:1"}, {"locked_until": Now()}, LEASE])
def test_a_waiting_job_has_no_lease(engine: Engine, values: dict[str, Any]) -> None:
    enqueue(1)
    assert "django_jobs_lease" in refusal(engine, **values)


@pytest.mark.parametrize("values", [{"locked_by": None}, {"locked_until": None}, NO_LEASE])
def test_a_running_job_has_a_whole_lease(engine: Engine, values: dict[str, Any]) -> None:
    running(engine)
    assert "django_jobs_lease" in refusal(engine, **values)


@pytest.mark.parametrize("status", ["done", "failed", "dead", "cancelled"])
def test_a_job_that_ended_has_no_lease_and_an_end(engine: Engine, status: str) -> None:
    running(engine)
    assert "django_jobs_lease" in refusal(engine, status=status, finished_at=Now())
    assert "django_jobs_finished" in refusal(engine, status=status, **NO_LEASE)


def test_a_job_that_has_not_ended_has_no_end(engine: Engine) -> None:
    running(engine)
    assert "django_jobs_finished" in refusal(engine, finished_at=Now())
    assert "django_jobs_finished" in refusal(engine, finished_at=Now(), status="ready", **NO_LEASE)


def test_only_a_waiting_job_is_parked(engine: Engine) -> None:
    running(engine)
    assert "django_jobs_parked_ready" in refusal(engine, parked="type")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 101),
        ("priority", -101),
        ("attempts", -1),
        ("max_attempts", 0),
        ("losses", -1),
        ("token", -1),
    ],
)
def test_numbers_are_within_their_limits(engine: Engine, name: str, value: int) -> None:
    enqueue(1)
    assert "django_jobs_numbers" in refusal(engine, **{name: value})


def test_a_key_is_held_once(engine: Engine) -> None:
    enqueue(2)
    assert re.search("django_jobs_key|idempotency_key", refusal(engine, idempotency_key="k"))


def test_a_key_holds_in_one_of_three_ways(engine: Engine) -> None:
    enqueue(1)
    assert "django_jobs_key_holds" in refusal(engine, key_holds="for ever")
