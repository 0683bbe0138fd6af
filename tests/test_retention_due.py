"""Whether anything is old is asked for by one statement, and only what there is some of is done."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_jobs.conf import conf
from django_jobs.engines.base import Engine
from django_jobs.models import Alert, BulkAct, Effect, Stat
from django_jobs.models.clock import database_now, for_row
from django_jobs.workers import retention

pytestmark = pytest.mark.django_db(databases="__all__")


def due(engine: Engine) -> list[retention.Task]:
    with CaptureQueriesContext(connections[engine.alias]) as sent:
        found = retention.due(engine, retention.tasks(engine, conf()))
    assert len(sent) == 2, "one, and the one for the database's time"
    return found


def make(engine: Engine, age: timedelta) -> None:
    """Make one of each that grows old."""
    moment = for_row(database_now(engine.alias) - age, engine.alias)
    Stat.objects.using(engine.alias).create(minute=moment, queue="default", type="mail", runs=[], waits=[])
    Effect.objects.using(engine.alias).create(kind="once", key="key", asked_at=moment)
    Alert.objects.using(engine.alias).create(kind="dead_letters", value=1, limit=1, to_tell=[], cleared_at=moment)
    act = BulkAct.objects.using(engine.alias).create(
        token=uuid4(), act="cancel", sought={}, counted=0, upto=0, start=0, after=0
    )
    BulkAct.objects.using(engine.alias).filter(pk=act.pk).update(created_at=moment)


def tables(found: list[retention.Task]) -> set[str]:
    return {task.rows.split()[0].removeprefix("django_jobs_") for task in found}


def test_nothing_is_done_while_nothing_is_old(engine: Engine) -> None:
    assert due(engine) == []
    make(engine, timedelta(minutes=59))
    assert due(engine) == []


@pytest.mark.parametrize(
    ("age", "old"),
    [
        (timedelta(hours=2), {"stat"}),
        (timedelta(days=31), {"stat", "effect", "alert"}),
        (timedelta(days=91), {"stat", "effect", "alert", "bulkact"}),
    ],
)
def test_all_that_is_old_is_taken_away_or_folded_and_then_nothing_is_due(
    engine: Engine, age: timedelta, old: set[str]
) -> None:
    make(engine, age)
    found = due(engine)
    assert tables(found) == old
    for task in found:
        task.do()
    assert due(engine) == []
