"""What was raised goes to the log with the end of a job, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs import Cancel, Fail, Retry
from django_jobs.engines.base import Engine
from django_jobs.engines.values import Settlement
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
