"""The log lines of what people do: said when it is true, which it is when their transaction has committed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from django.db import transaction

from django_jobs import pause, resume
from django_jobs.queue import bulk, operate
from django_jobs.queue.choose import Choice
from tests.acts import in_state
from tests.engines.common import beside_others

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.engines.base import Engine

ACTS: dict[str, Callable[[int], object]] = {
    "requeued": operate.requeue,
    "paused": lambda _: pause(queue="mail"),
    "resumed": lambda _: resume(queue="mail"),
    "deleted": lambda job_id: list(bulk.purge(Choice(states=operate.FINISHED, ids=(job_id,)))),
}


@beside_others
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("status", "word"),
    [("ready", "is cancelled"), ("running", "is asked to stop"), *(("dead", word) for word in ACTS)],
)
def test_an_act_is_logged_when_its_transaction_has_committed(
    engine: Engine, caplog: pytest.LogCaptureFixture, status: str, word: str, commits: bool
) -> None:
    job = in_state(engine, status)
    if word == "resumed":
        pause(queue="mail")
    caplog.set_level(logging.INFO, "django_jobs")
    caplog.clear()
    with transaction.atomic(using=engine.alias):
        ACTS.get(word, operate.cancel)(job.pk)
        assert caplog.messages == []
        transaction.set_rollback(not commits, using=engine.alias)
    assert len(caplog.messages) == commits
    assert all(word in line for line in caplog.messages)


@beside_others
def test_an_act_is_logged_where_the_project_manages_its_transactions_itself(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    job = in_state(engine, "ready")
    caplog.set_level(logging.INFO, "django_jobs")
    transaction.set_autocommit(False, using=engine.alias)
    try:
        job.cancel()
        pause(queue="mail")
        resume(queue="mail")
        transaction.commit(using=engine.alias)
    finally:
        transaction.set_autocommit(True, using=engine.alias)
    assert [line.rpartition("is ")[2].split(":")[0] for line in caplog.messages] == ["cancelled", "paused", "resumed"]
