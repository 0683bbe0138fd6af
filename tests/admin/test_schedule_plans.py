"""What PostgreSQL reads for the pages of schedules when there are very many, and very many jobs of one."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site as admin_site
from django.contrib.auth.models import User
from django.db import connections
from django.test import RequestFactory

from django_jobs.admin import schedule_panel
from django_jobs.engines.base import Engine
from django_jobs.models.schedule import Schedule
from tests.admin.site import Site
from tests.engines.common import on_postgresql
from tests.plans import watched

pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]
SCHEDULES = """
INSERT INTO django_jobs_schedule (name, type, payload, expression, timezone, nonexistent, ambiguous, missed, missed_limit,
                                  overlap, queue, enabled)
SELECT 'schedule ' || lpad(number::text, 6, '0'), 'tests.app.jobs.nothing', '{"args": [], "kwargs": {}}', '0 4 * * *',
       'UTC', 'after_gap', 'first', 'latest', 100, 'allow', '', mod(number, 7) > 0
  FROM generate_series(1, 100000) AS number
"""
STATES = "INSERT INTO django_jobs_schedulestate (schedule_id) SELECT id FROM django_jobs_schedule"
JOBS = """
INSERT INTO django_jobs_job (type, payload, status, finished_at, schedule, slot, idempotency_key, max_attempts)
SELECT 'tests.app.jobs.nothing', '{"args": [], "kwargs": {}}', 'done', now(), name,
       '2026-01-01'::timestamptz + number * interval '1 minute',
       'schedule:' || name || ':' ||
       to_char('2026-01-01'::timestamp + number * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 8
  FROM generate_series(1, 50000) AS number, (VALUES ('schedule 000001'), ('schedule 00000'), ('schedule 000001x')) AS names (name)
"""
TABLES = ("django_jobs_schedule", "django_jobs_schedulestate", "django_jobs_job")


def fill(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        for statement in (SCHEDULES, STATES, JOBS, *(f"ANALYZE {table}" for table in TABLES)):
            cursor.execute(statement, [])


def read(nodes: list[dict[str, Any]]) -> int:
    """Return how many rows of tables and entries of indexes were read, those thrown away included."""
    scans = [node for node in nodes if node.get("Relation Name") in TABLES]
    return sum((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in scans)


def a_page(query: dict[str, str]) -> list[Any]:
    request = RequestFactory().get("/", query)
    request.user = User(is_superuser=True, is_staff=True)
    return list(admin_site._registry[Schedule].get_changelist_instance(request).result_list)


def test_a_page_of_very_many_schedules_reads_in_the_order_of_names_and_counts_to_its_limit(engine: Engine) -> None:
    fill(engine.alias)
    # The count's 10,000, and the page's rows with their states.
    for query, most in (({}, 10_500), ({"p": "3"}, 11_000), ({"enabled": "no"}, 110_000), ({"q": "000077"}, 210_000)):
        with watched(engine.alias) as nodes:
            found = a_page(query)
        assert found
        assert 0 < read(nodes) <= most, query
        assert not [node for node in nodes if node["Node Type"] == "Sort" and node["Actual Rows"] > 1_000], query


def test_the_jobs_of_the_latest_slots_are_read_from_the_end_of_the_index_of_keys(site: Site) -> None:
    fill(site.alias)
    schedule = Schedule.objects.using(site.alias).get(name="schedule 000001")
    with watched(site.alias) as nodes:
        lines = schedule_panel.recent_jobs(schedule)
    assert [line["slot"] for line in lines[:2]] == ["Wed 2026-02-04 17:20 UTC", "Wed 2026-02-04 17:19 UTC"]
    assert len(lines) == 10
    assert read(nodes) <= 12
