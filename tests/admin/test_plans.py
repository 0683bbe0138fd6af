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

JOBS = "django_jobs_job"
LANE = 'after:[0,"q1",3,"2026-01-01T00:00:00+00:00",5]'
RETRIED = "UPDATE django_jobs_job SET attempts = 2 WHERE status = 'ready' AND id % 3 = 0"
pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]
# The most rows that each list may read of 117,600: a page and what is counted, or what is looked through and no more.
COUNTED, LOOKED = 2_000, 4_000
PAGES: list[tuple[dict[str, str], int]] = [
    ({}, 2_400),
    ({"at": "last"}, 2_400),
    ({"at": "after:[0,ID]"}, 2_400),
    ({"state": "due"}, 2_400),
    ({"state": "due", "at": "last"}, 2_400),
    ({"state": "due", "at": LANE}, 2_400),
    ({"state": "due", "at": LANE.replace("after", "before")}, 2_400),
    ({"state": "due", "queue": "q1", "priority": "3", "at": "last"}, 2_400),
    ({"state": "later", "at": "last"}, 4_400),  # of which there are 4,000
    ({"state": "retries"}, 2_400),
    ({"state": "retries", "at": "last"}, 2_400),
    ({"state": "parked"}, 2_600),
    ({"state": "parked", "at": "last"}, 2_600),
    ({"state": "running"}, 2_400),
    ({"worker": "w3"}, 400),
    ({"state": "done"}, 8_300),
    ({"state": "done", "at": "last"}, 8_300),
    ({"state": "dead-letters"}, 2_400),
    ({"state": "dead-letters", "at": "last"}, 2_400),
    ({"state": "dead"}, 2_600),
    ({"state": "cancelled"}, 200),
    ({"state": "due", "type": "none"}, 8_300),
    ({"state": "due", "type": "none", "at": LANE}, 9_000),
    ({"state": "dead-letters", "type": "none"}, 8_300),
    ({"state": "dead-letters", "error": "none"}, 8_300),
    ({"type": "none"}, 8_300),
    ({"tag": "none"}, 8_300),
    ({"q": "args.0=none"}, 8_300),
    ({"state": "done", "queue": "none", "at": "last"}, 8_600),
    ({"since": "1m", "at": "last"}, 2_600),
    ({"until": "1h"}, 400),
    ({"state": "dead-letters", "since": "1m"}, 2_400),
    ({"q": "ID"}, 400),
    ({"q": "done500"}, 1_400),
    ({"q": "done"}, 4_300),
    ({"q": "nothing"}, 12_300),
]


def lists(query: dict[str, str]) -> Any:
    """Make a list's page as the admin does."""
    request = RequestFactory().get("/", query)
    request.user = User(is_superuser=True, is_staff=True)
    found = admin_site._registry[Job].get_changelist_instance(request)
    return list(found.result_list)


def fill(engine: Engine) -> None:
    with connections[engine.alias].cursor() as cursor:
        for statement in (FINISHED, UNFINISHED, RETRIED.replace("%", "%%"), "ANALYZE django_jobs_job"):
            cursor.execute(statement, [])


def test_no_list_reads_the_whole_table(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "COUNT_LIMIT", COUNTED)
    monkeypatch.setattr(listing, "LOOK_AT", LOOKED)
    monkeypatch.setattr(listing, "LOOK_AT_ERRORS", LOOKED)
    fill(engine)
    some = Job.objects.using(engine.alias).earliest("pk").pk + 60_000
    for asked, most in PAGES:
        query = {name: value.replace("ID", str(some)) for name, value in asked.items()}
        with watched(engine.alias) as nodes:
            lists(query)
        assert 0 < read(nodes) <= most, query
        assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node.get("Relation Name") == JOBS], (
            query
        )


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
