"""What a storm's account finds, number by number: what is missing of one is not made up for by another."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from django_jobs import JobFunction
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from tests.app.models import Effect
from tests.app.storm_jobs import pay, send_receipt
from tests.faults.account import Account
from tests.processes.common import on_postgresql

pytestmark = [pytest.mark.django_db(transaction=True, databases="__all__"), on_postgresql]


def leave(alias: str, function: JobFunction[..., ..., None], *numbers: int) -> list[int]:
    """Store jobs with these numbers that are done and had their effect."""
    for number in numbers:
        Effect.objects.using(alias).create(key=f"{function.name.rsplit('.', 1)[1]}:{number}", run=1, pid=1)
    stored = [function.enqueue(number).pk for number in numbers]
    Job.objects.using(alias).filter(pk__in=stored).update(status="done", finished_at=Now())
    return stored


@pytest.mark.parametrize(
    ("receipts", "found"),
    [
        ([1, 2], (0, 0)),
        ([1], (1, 0)),
        ([1, 1, 2], (0, 1)),
        ([1, 1], (1, 1)),
        ([1, 2, 3], (0, 1)),
    ],
    ids=["in order", "missing", "double", "one missing and one double", "of no payment"],
)
def test_follow_ups_are_accounted_for_by_number(engine: Engine, receipts: list[int], found: tuple[int, int]) -> None:
    stored = leave(engine.alias, pay, 1, 2) + leave(engine.alias, send_receipt, *receipts)
    account = Account.of(engine.alias, stored)
    assert (account.lost, account.doubled) == found
