"""What `jobs doctor` says of a transaction pooler between us and the database."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from django_jobs import engines
from django_jobs.doctor import server as looked_at
from django_jobs.doctor.examine import examine
from example_project import postgres
from tests.processes.outages import ALIAS

pytestmark = [pytest.mark.process, pytest.mark.postgresql]


def found(alias: str) -> list[str]:
    return [finding.name for finding in looked_at.pooler(engines.engine(alias))]


def test_a_pooler_without_a_way_past_it_is_named_and_what_cannot_be_set_on_its_sessions(
    server: postgres.Server, behind: str, settings: Any
) -> None:
    assert found(ALIAS) == []
    assert found(behind) == ["pooler_without_listen_dsn", "pooler_idle"]
    assert {"pooler_without_listen_dsn", "no_workers"} <= {finding.name for finding in examine()}
    settings.DJANGO_JOBS = {"LISTEN_DSN": f"postgresql://postgres@127.0.0.1:{server.port}/postgres"}
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("ALTER ROLE postgres SET idle_in_transaction_session_timeout = '60s'")
        cursor.execute("ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'")
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
            "WHERE usename = 'postgres' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    connections[behind].close()
    assert found(behind) == ["pooler_isolation"]
