from __future__ import annotations

from datetime import timedelta
from types import ModuleType

from django.db import connections

from django_jobs.models.clock import database_now
from tests.testing.kit_jobs import step


def test_the_fixture_has_the_kit_and_the_database(jobs: ModuleType) -> None:
    step.enqueue("x")
    assert [ran.status for ran in jobs.run_jobs()] == ["done"]
    assert connections["default"].in_atomic_block


def test_the_fixture_sets_the_clock_back(transactional_db: None, jobs: ModuleType) -> None:
    assert not connections["default"].in_atomic_block
    before = database_now("default")
    jobs.advance(timedelta(hours=1))
    # What the fixture does when the test has ended.
    jobs.reset_clock()
    assert database_now("default") - before < timedelta(minutes=1)
