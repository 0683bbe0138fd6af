"""Looking at what was enqueued."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from django.utils import timezone

from django_jobs.engines.base import Engine
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.testing import advance, assert_enqueued, assert_takes_effect_once, enqueued, run_jobs
from tests.app.jobs import log_in
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone

pytestmark = alone


def test_waiting_jobs_are_found_by_all_that_they_were_enqueued_with(engine: Engine) -> None:
    first = jobs.leave.using(idempotency_key="k", queue="mail").enqueue("a")
    second = jobs.leave.using(delay=300).enqueue(key="b")
    third = log_in.enqueue("ada", "x", 1, tries=5)
    fourth = jobs.with_default.enqueue("a")
    assert enqueued() == [first, second, third, fourth]
    assert enqueued(jobs.leave) == enqueued(jobs.leave.name) == [first, second]
    assert enqueued(jobs.leave, args=["a"]) == enqueued(jobs.leave, kwargs={"key": "a"}) == [first]
    assert enqueued(jobs.leave, args=["b"]) == enqueued(jobs.leave, delay=timedelta(minutes=5)) == [second]
    assert enqueued(log_in, args=["ada", ANY, 1], kwargs={"tries": 5}) == [third]
    assert enqueued(log_in, args=["ada", ANY, 1]) == []
    assert enqueued(jobs.with_default, args=["a"]) == enqueued(jobs.with_default, args=["a", 1]) == [fourth]
    assert enqueued(key="k") == enqueued(queue="mail") == [first]
    assert enqueued(jobs.leave, run_at=datetime.now(UTC) + timedelta(minutes=5)) == [second]
    advance(timedelta(minutes=4))
    assert enqueued(jobs.leave, delay=timedelta(minutes=1)) == [second]
    run_jobs(types=[jobs.leave])
    assert assert_enqueued(jobs.leave) == [second]
    assert assert_enqueued(jobs.leave, args=["a"], times=0) == []


def test_times_are_compared_also_in_a_project_without_time_zones(engine: Engine, settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    job = jobs.leave.using(delay=300).enqueue("a")
    assert enqueued(run_at=timezone.now() + timedelta(minutes=5)) == enqueued(delay=timedelta(minutes=5)) == [job]
    with pytest.raises(AssertionError, match=r"default, due in (300|299) s"):
        assert_enqueued(delay=timedelta(0))
    assert_takes_effect_once(jobs.leave_once.enqueue("x"))
    assert enqueued(delay=timedelta(minutes=5)) == [job]


def test_an_assertion_that_fails_says_what_waits_instead(engine: Engine) -> None:
    with pytest.raises(
        AssertionError,
        match=r"leave\('a'\), key k: at least 1 expected, and 0 found\. No job",
    ):
        assert_enqueued(jobs.leave, args=["a"], key="k")
    jobs.leave.using(idempotency_key="k", delay=90).enqueue("b")
    for _ in range(25):
        jobs.step.enqueue("c")
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(jobs.leave, args=["a"])
    lines = str(raised.value).splitlines()
    assert lines[0].endswith("These wait:")
    assert lines[1].strip() in [
        f"tests.testing.kit_jobs.leave('b'), queue default, key k, due in {left} s" for left in (89, 90)
    ]
    assert (lines[2].strip(), lines[-1].strip()) == (
        "tests.testing.kit_jobs.step('c'), queue default, due",
        "and 6 more",
    )
    with pytest.raises(AssertionError, match="2 expected, and 25 found"):
        assert_enqueued(jobs.step, times=2)


def test_what_cannot_be_meant_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidJob, match="say of which type"):
        enqueued(args=[1])
    with pytest.raises(InvalidJobType, match="args is 'a'"):
        enqueued(jobs.leave, args="a")
    with pytest.raises(InvalidJobType, match=r"kwargs is \['a'\]; give a dict"):
        enqueued(jobs.leave, kwargs=["a"])  # type: ignore[arg-type]
    with pytest.raises(InvalidJobType, match="delay is 5"):
        enqueued(jobs.leave, delay=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="give one"):
        enqueued(run_at=datetime.now(UTC), delay=timedelta(0))
    with pytest.raises(InvalidJob, match="times=-1"):
        assert_enqueued(times=-1)
    with pytest.raises(InvalidJobType, match=r"leave\('a', 'b', 'c'\) cannot have been enqueued"):
        enqueued(jobs.leave, args=["a", "b", "c"])
