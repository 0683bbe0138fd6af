"""What PostgreSQL reads for the overview when nearly all of many rows are finished."""

from __future__ import annotations

import pytest

from django_jobs.admin.overview import dead, queues
from django_jobs.engines.base import Engine
from tests.admin.front import front
from tests.admin.site import Site
from tests.admin.test_plans import fill
from tests.engines.common import on_postgresql
from tests.engines.test_plans import indexes, read
from tests.plans import watched

pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]


def test_the_overview_reads_what_waits_up_to_its_limit_and_nothing_that_is_done(
    engine: Engine, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "COUNT_LIMIT", 50)
    monkeypatch.setattr(dead, "READ", 50)
    fill(engine)
    with watched(engine.alias) as nodes:
        front(site)
    # 15 lanes with what is due, what is not and what is parked, and the way to them, six kinds of others, and the 500 that run.
    assert 0 < read(nodes) <= 15 * (2 * 50 + 100) + 100 + 6 * 50 + 500
    jobs = {node["Node Type"] for node in nodes if node.get("Relation Name") == "django_jobs_job"}
    assert "Seq Scan" not in jobs
    assert {
        "django_jobs_claim",
        "django_jobs_running",
        "django_jobs_unsuccessful",
        "django_jobs_dead_letters",
    } <= indexes(nodes)
