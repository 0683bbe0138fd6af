"""The test kit does nothing to the jobs of a site."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test.utils import _TestState

from django_jobs import JobsError
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from django_jobs.testing import advance, assert_enqueued, assert_takes_effect_once, enqueued, immediate, run_jobs
from tests.testing import kit_jobs as jobs
from tests.testing.common import alone, committed, effects


def immediately() -> None:
    with immediate():
        pass


CALLS: dict[str, Callable[[Job], object]] = {
    "run_jobs": lambda job: run_jobs(),
    "advance": lambda job: advance(timedelta(hours=1)),
    "enqueued": lambda job: enqueued(),
    "assert_enqueued": lambda job: assert_enqueued(times=0),
    "assert_takes_effect_once": lambda job: assert_takes_effect_once(job),
    "immediate": lambda job: immediately(),
}


@alone
def test_where_no_tests_are_run_each_function_refuses_and_says_what_to_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.step.enqueue("x")
    monkeypatch.delattr(_TestState, "saved_data")
    for name, call in CALLS.items():
        told = "enqueued" if name == "assert_enqueued" else name
        with pytest.raises(JobsError, match=rf"^{told}\(\) is for tests, .*manage.py test.*runworkers --burst"):
            call(job)
    assert (job.refresh().token, effects(engine)) == (0, [])


@committed
def test_a_database_that_is_none_of_tests_is_refused_as_in_a_plain_unittest(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.step.enqueue("x")
    settings: dict[str, Any] = connections[engine.alias].settings_dict
    name = settings["NAME"]
    monkeypatch.setitem(settings, "NAME", "shop")
    monkeypatch.setitem(settings, "TEST", {**settings["TEST"], "NAME": None})
    with pytest.raises(JobsError, match=rf"^run_jobs\(\) .*'shop', which is none .*DATABASES\['{engine.alias}'\]"):
        run_jobs()
    with immediate(), pytest.raises(JobsError, match=r"^IMMEDIATE would act"):
        jobs.step.enqueue("y")
    assert (job.refresh().token, effects(engine)) == (0, [])
    settings["TEST"]["NAME"] = "shop"
    assert len(enqueued()) == 2
    settings["TEST"]["NAME"] = "var/shop.sqlite3"
    for found, is_for_tests in (
        ("var/shop.sqlite3", True),
        ("var/shop_3.sqlite3", True),
        ("var/shop_live.sqlite3", False),
    ):
        settings["NAME"] = found
        if is_for_tests:
            enqueued()
        else:
            with pytest.raises(JobsError):
                enqueued()
    settings["NAME"] = name


@alone
def test_a_testcase_may_be_on_any_database(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = connections[engine.alias].settings_dict
    monkeypatch.setitem(settings, "NAME", "shop")
    monkeypatch.setitem(settings, "TEST", {**settings["TEST"], "NAME": None})
    assert run_jobs() == []
