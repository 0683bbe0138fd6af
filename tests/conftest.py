from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import translation

from django_jobs import engines
from django_jobs.engines import engine as engine_of
from django_jobs.engines.base import Engine
from django_jobs.schedules import code
from tests import router
from tests.harness import Tree
from tests.threads import Session, session

SHOPS_SCHEDULES = dict(code._schedules)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests with real processes and servers run one after the other, whatever runs beside them."""
    for item in items:
        if item.get_closest_marker("process") or item.get_closest_marker("postgresql"):
            item.add_marker(pytest.mark.xdist_group("processes"))


ALIASES = {"postgresql": "default", "sqlite": "lite"}


@pytest.fixture(autouse=True)
def schedules_of_the_code(monkeypatch: pytest.MonkeyPatch) -> dict[str, code.CodeSchedule]:
    """Leave out the schedules of the example's jobs; return them for those who ask."""
    monkeypatch.setattr(code, "_schedules", {})
    return SHOPS_SCHEDULES


@pytest.fixture(autouse=True)
def own_language() -> Iterator[None]:
    """Forget in which language the last page was asked for."""
    yield
    translation.deactivate()


@pytest.fixture(scope="session", autouse=True)
def nobody_left(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """End all other sessions before the databases are dropped: killed processes, and connections that were thrown away."""
    yield
    with django_db_blocker.unblock():
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connections.close_all()  # may be another than the one that is closed to drop them


@pytest.fixture(params=["postgresql", "sqlite"])
def vendor(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once with the jobs on each database."""
    router.jobs_alias = ALIASES[request.param]
    engines._engine.cache_clear()  # what another test saw of an outage is not to be remembered
    yield request.param
    router.jobs_alias = "default"


@pytest.fixture
def engine(vendor: str, db: None) -> Engine:
    return engine_of()


@pytest.fixture
def other(engine: Engine) -> Iterator[Session]:
    """Return a connection beside the test's own."""
    with session(engine.alias) as found:
        yield found


@pytest.fixture
def tree(vendor: str, transactional_db: None, tmp_path: Path) -> Iterator[Tree]:
    """Return a starter of `runworkers` trees on the test's database; what still runs at the end is killed."""
    found = Tree(ALIASES[vendor], tmp_path)
    yield found
    found.end_all()
