"""What was raised goes to the log with the end of a job, and with nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs import Cancel, Fail, Retry
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Claimed, Settlement
from django_jobs.workers.ended import Ended, account
from tests.app.jobs import Endless
from tests.processes.common import with_tables
from tests.processes.test_runner import raises, run

pytestmark = with_tables
LAST = {"attempts": 7}
ERROR = ValueError("no")


@pytest.mark.parametrize(
    ("error", "values", "status", "said"),
    [
        (ERROR, LAST, "dead", ERROR),
        (ERROR, {}, "ready", None),
        (Fail("no"), LAST, "failed", None),
        (Retry(1.0), LAST, "dead", None),
        (Cancel("no"), LAST, "cancelled", None),
        (MemoryError("no"), LAST, "dead", None),
        (ValueError("x" * 30_000), LAST, "dead", None),
        (Endless("no"), LAST, "dead", None),
    ],
    ids=[
        "the last attempt",
        "a retry",
        "Fail",
        "Retry",
        "Cancel",
        "out of memory",
        "a long text",
        "a chain without end",
    ],
)
def test_the_end_of_a_job_keeps_what_was_raised_for_the_log_if_it_can_be_said(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    values: dict[str, Any],
    status: str,
    said: BaseException | None,
) -> None:
    ended = run(engine, monkeypatch, raises(error), **values)
    assert isinstance(ended, Settlement)
    assert (ended.status, ended.exception) == (status, said)


@pytest.mark.fast
def test_it_is_logged_when_the_end_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    claimed = Claimed(7, 2, "w:1", "shop.receipt", "{}", 7, 8, None, None, None)
    settlement = Settlement(claimed.run, "dead", "attempt", "raised", error="no", exception=ERROR)
    region: Any = SimpleNamespace(count=lambda name: None)
    account(region, [Ended(0, claimed, settlement, 0.1)], {7: "dead"})
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is ERROR
