"""Words that the contract tests of the engines share."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, ClaimOrder, Lane, Run, Settlement
from django_jobs.models import Job
from tests.app.jobs import nothing

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPES = (nothing.name,)
WORKER = "a1b2:1"
# What makes the tables, by alias.
MIGRATE = {"default": "`manage.py migrate`", "lite": "`manage.py migrate --database=lite`"}
# Named, a claim is one statement, which need not look for them.
LANES = (Lane("default", 0, 0.0, 0),)

# In a transaction of the test's own, or committed for others to see.
alone = pytest.mark.django_db(databases="__all__")
beside_others = pytest.mark.django_db(
    transaction=True, databases="__all__", available_apps=["django_jobs", "tests.app"]
)
on_postgresql = pytest.mark.parametrize("vendor", ["postgresql"], indirect=True)
on_sqlite = pytest.mark.parametrize("vendor", ["sqlite"], indirect=True)


def order(
    limit: int = 1,
    *,
    locked_by: str = WORKER,
    queues: tuple[str, ...] | None = None,
    types: tuple[str, ...] = TYPES,
    lease: float = 30.0,
    lanes: tuple[Lane, ...] | None = None,
    oldest: int = 0,
    deployment: str | None = None,
) -> ClaimOrder:
    return ClaimOrder(
        locked_by=locked_by,
        lease=lease,
        limit=limit,
        queues=queues,
        types=types,
        lanes=lanes,
        oldest=oldest,
        deployment=deployment,
    )


def claim(engine: Engine, limit: int = 1, **options: Any) -> list[Claimed]:
    return engine.claim(order(limit, **options)).jobs


def claim_one(engine: Engine, **options: Any) -> Run:
    (claimed,) = claim(engine, **options)
    return claimed.run


def enqueue(count: int, **options: Any) -> list[Job]:
    return [nothing.using(**options).enqueue(number) for number in range(count)]


def running(engine: Engine, count: int = 1, **options: Any) -> list[Run]:
    """Enqueue jobs and claim them; return their runs."""
    enqueue(count)
    return [claimed.run for claimed in claim(engine, count, **options)]


def ids(found: Iterable[Any]) -> list[int]:
    return [item.id for item in found]


def row(engine: Engine, job_id: int) -> dict[str, Any]:
    found: dict[str, Any] = Job.objects.using(engine.alias).filter(pk=job_id).values().get()
    return found


def rows(engine: Engine) -> list[dict[str, Any]]:
    return list(Job.objects.using(engine.alias).order_by("id").values())


def alter(engine: Engine, job_id: int, **values: Any) -> None:
    assert Job.objects.using(engine.alias).filter(pk=job_id).update(**values) == 1


def clock(engine: Engine) -> datetime:
    """Return the time by the database's clock."""
    if engine.name == "postgresql":
        found = sql(engine, "SELECT clock_timestamp()")[0][0]
        assert isinstance(found, datetime)
        return found
    text = sql(engine, "SELECT strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')")[0][0]
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def settled(run: Run, **values: Any) -> Settlement:
    return Settlement(**{"run": run, "status": "ready", "counts": "nothing", "cause": "test", **values})


def entry(run: Run, cause: str = "test", error: str = "") -> str:
    return json.dumps({"run": run.token, "cause": cause, "error": error, "worker": "host:1", "seconds": 0.5})


def sql(engine: Engine, statement: str, *parameters: Any) -> list[Any]:
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
