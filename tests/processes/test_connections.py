"""What a process of ours sets up for its connections, and what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.db.backends.signals import connection_created

from django_jobs.workers.connections import answer_timeout, configure_connections, connect_timeout, statement_timeout


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[dict[str, Any]]:
    """The project's OPTIONS of the database on PostgreSQL, restored afterwards as is all that is set up here."""
    given: dict[str, Any] = {"connect_timeout": 17}
    for alias in connections:
        for name in ("OPTIONS", "CONN_MAX_AGE"):
            monkeypatch.setitem(connections.settings[alias], name, connections.settings[alias][name])
    monkeypatch.setitem(connections.settings["default"], "OPTIONS", given)
    yield given
    connection_created.disconnect(dispatch_uid="django_jobs")


def set_up() -> dict[str, Any]:
    return dict(connections.settings["default"]["OPTIONS"])


def test_a_process_forked_from_one_that_is_set_up_is_what_it_would_be_otherwise(options: dict[str, Any]) -> None:
    configure_connections("supervisor", 30)
    assert set_up()["application_name"] == "django_jobs:supervisor"
    configure_connections("worker", 30)
    assert set_up()["application_name"] == "django_jobs:worker"
    assert set_up()["connect_timeout"] == 17
    assert options == {"connect_timeout": 17}


def test_what_the_project_says_wins_and_only_its_pool_is_left_out(options: dict[str, Any]) -> None:
    options |= {"pool": True, "keepalives_idle": 60}
    configure_connections("worker", 30)
    found = set_up()
    assert (found["connect_timeout"], found["keepalives_idle"], found["keepalives_count"]) == (17, 60, 3)
    assert "pool" not in found


@pytest.mark.parametrize("lease", [1.5, 3.0, 30.0, 3600.0])
def test_whatever_the_lease_no_wait_of_ours_is_longer_than_ten_seconds(lease: float) -> None:
    assert statement_timeout(lease) + 1 <= answer_timeout(lease) < 10
    assert connect_timeout(lease) <= 5
    assert statement_timeout(lease) <= lease / 3
