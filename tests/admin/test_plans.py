"""What PostgreSQL reads for a page of the admin's list when nearly all of many rows are finished."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site as admin_site
from django.contrib.auth.models import User
from django.db import connections
from django.test import RequestFactory

from django_jobs.admin import listing
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from django_jobs.report import status
from tests.engines.common import on_postgresql
from tests.engines.test_plans import FINISHED, UNFINISHED, read
from tests.plans import watched

pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]
# The most rows that each list may read of 117,500: one page, what its partial index holds, or the limit of what is
# looked through.
PAGES: list[tuple[dict[str, str], int]] = [
    ({}, 30_000),
    ({"state": "due"}, 40_000),
    ({"state": "later"}, 40_000),
    ({"state": "retries"}, 40_000),
    ({"state": "parked"}, 20_000),
    ({"state": "running"}, 3_000),
    ({"state": "done"}, 60_000),
    ({"state": "dead-letters"}, 8_000),
    ({"state": "cancelled"}, 100),
    ({"state": "due", "queue": "q1", "type": "none"}, 40_000),
    ({"type": "none"}, 45_000),
    ({"state": "done", "queue": "none"}, 45_000),
    ({"q": "77"}, 200),
    ({"q": "done500"}, 1_000),
    ({"q": "nothing"}, 50),
]


def lists(query: dict[str, str]) -> Any:
    """Make a list's page as the admin does."""
    request = RequestFactory().get("/", query)
    request.user = User(is_superuser=True, is_staff=True)
    found = admin_site._registry[Job].get_changelist_instance(request)
    return list(found.result_list)


def fill(engine: Engine) -> None:
    with connections[engine.alias].cursor() as cursor:
        for statement in (FINISHED, UNFINISHED, "ANALYZE django_jobs_job"):
            cursor.execute(statement, [])


def test_no_list_reads_the_whole_table(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOK_BACK", 20_000)
    fill(engine)
    for query, most in PAGES:
        with watched(engine.alias) as nodes:
            lists(query)
        assert 0 < read(nodes) <= most, query


def test_what_is_parked_is_counted_by_the_indexes_that_hold_it(engine: Engine) -> None:
    fill(engine)
    with watched(engine.alias) as nodes:
        assert sum(queue["parked"] for queue in status()["queues"]) == 5_100
    by = {node["Index Name"] for node in nodes if "Index Name" in node}
    assert {"django_jobs_parked", "django_jobs_suspects"} <= by


def test_the_index_of_keys_serves_beginnings_in_any_collation(engine: Engine) -> None:
    question = """
    SELECT opcname FROM pg_index JOIN pg_opclass ON pg_opclass.oid = indclass[0]
     WHERE indexrelid = 'django_jobs_key'::regclass
    """
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(question)
        assert cursor.fetchall() == [("varchar_pattern_ops",)]
