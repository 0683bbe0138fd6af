from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import TestCase

from django_jobs.engines.base import Engine
from django_jobs.models import Effect
from django_jobs.models.clock import Clock
from django_jobs.workers import retention
from tests.harness import Tree, wait_for
from tests.plans import explained
from tests.processes.common import on_postgresql, with_tables
from tests.threads import Session

pytestmark = pytest.mark.django_db(databases="__all__")
DAYS = timedelta(days=1)


def make(alias: str, key: str, days: float, kind: str = "once", **values: Any) -> None:
    Effect.objects.using(alias).create(kind=kind, key=key, asked_at=Clock() - days * DAYS, **values)


def keys(alias: str) -> list[str]:
    return list(Effect.objects.using(alias).order_by("key").values_list("key", flat=True))


def test_what_was_asked_for_longer_ago_than_the_window_is_deleted_and_nothing_else(
    engine: Engine, settings: Any
) -> None:
    for number, days in enumerate((29, 30.1, 31, 400)):
        make(engine.alias, str(number), days)
    # Made long ago, and asked for last within the window: it is young.
    make(engine.alias, "asked again", 29.9, kind="outside", asks=7)
    assert (retention.purge(engine), retention.purge(engine)) == (3, 0)
    assert keys(engine.alias) == ["0", "asked again"]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "EFFECT_WINDOW": timedelta(days=29.5)}
    assert retention.purge(engine) == 1
    assert keys(engine.alias) == ["0"]


def test_what_may_have_happened_is_deleted_with_a_warning_that_counts(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for key, days in (("b", 32), ("a", 33), ("young", 1)):
        make(engine.alias, key, days, kind="outside")
    make(engine.alias, "answered", 31, kind="outside", answered_at=Clock())
    make(engine.alias, "once", 31)
    with TestCase.captureOnCommitCallbacks(using=engine.alias) as lines:
        assert retention.purge(engine) == 4
    assert caplog.records == [], "nothing is said of what may be rolled back"
    for line in lines:
        line()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "2 effects outside the database may have happened, nobody settled them within EFFECT_WINDOW (30 days, 0:00:00), "
        "and their records are deleted now; the oldest is 'a'"
    )
    assert keys(engine.alias) == ["young"]


def test_nothing_is_said_of_effects_that_are_settled(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    make(engine.alias, "once", 31)
    with TestCase.captureOnCommitCallbacks(using=engine.alias, execute=True):
        assert retention.purge(engine) == 1
    assert caplog.records == []


def test_many_are_deleted_in_batches_the_oldest_first(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for number in range(5):
        make(engine.alias, str(number), 40 - number)
    assert retention.purge(engine) == 2
    assert keys(engine.alias) == ["2", "3", "4"]
    assert [retention.purge(engine) for _ in range(3)] == [2, 1, 0]


@on_postgresql
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_one_that_somebody_holds_is_passed_over_without_waiting(engine: Engine, other: Session) -> None:
    for key in ("held", "free"):
        make(engine.alias, key, 31)
    other.begin()
    other.sql("SELECT 1 FROM django_jobs_effect WHERE key = 'held' FOR UPDATE")
    with transaction.atomic(using=engine.alias):
        connections[engine.alias].cursor().execute("SET LOCAL lock_timeout = '3s'")
        assert retention.purge(engine) == 1
    assert keys(engine.alias) == ["held"]


@on_postgresql
def test_among_many_effects_only_those_to_be_deleted_are_read(engine: Engine) -> None:
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_effect (kind, key) SELECT 'once', 'young:' || number FROM generate_series(1, 20000) number"
        )
        cursor.execute("ANALYZE django_jobs_effect")
    make(engine.alias, "old", 31)
    read: list[int] = []

    def wrapper(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if "asked_at" in sql and sql.startswith("SELECT"):
            read.extend(node["Actual Rows"] for node in explained(sql, parameters, context))
        return execute(sql, parameters, many, context)

    with connections[engine.alias].execute_wrapper(wrapper):
        assert retention.purge(engine) == 1
    assert max(read) == 1


@pytest.mark.process
@with_tables
def test_whoever_runs_workers_deletes_all_that_is_old(tree: Tree) -> None:
    rows = [Effect(kind="once", key=str(number), asked_at=Clock() - 31 * DAYS) for number in range(1200)]
    Effect.objects.using(tree.alias).bulk_create(rows)
    make(tree.alias, "young", 1)
    workers = tree.start()
    wait_for(lambda: keys(tree.alias) == ["young"], what="all old effects are deleted")
    assert workers.stop() == 0
