from __future__ import annotations

import logging

import pytest

from django_jobs import log
from django_jobs.engines.values import Claimed

pytestmark = pytest.mark.fast
JOB = Claimed(7, 2, "w:1", "shop.receipt", "{}", 1, 8, None, None, None)


@pytest.mark.parametrize(
    ("status", "cause", "says"),
    [
        ("failed", "failed", "Job 7 shop.receipt is failed: no"),
        ("dead", "raised", "Job 7 shop.receipt is dead (raised): no"),
        ("cancelled", "cancelled", "Job 7 shop.receipt cancelled: no"),
        ("ready", "raised", "Job 7 shop.receipt raised, again in 2.0 s at the earliest: no"),
    ],
)
def test_an_end_is_said_once(caplog: pytest.LogCaptureFixture, status: str, cause: str, says: str) -> None:
    with caplog.at_level(logging.INFO, "django_jobs"):
        log.job_settled(JOB, status, cause, "no", 2.0)
    assert caplog.messages == [says]


@pytest.mark.parametrize(
    ("status", "has_traceback"), [("failed", True), ("dead", True), ("ready", False), ("cancelled", False)]
)
def test_what_was_raised_is_logged_with_the_end_of_the_job_and_not_with_its_retries(
    caplog: pytest.LogCaptureFixture, status: str, has_traceback: bool
) -> None:
    error = OSError("disk")
    with caplog.at_level(logging.INFO, "django_jobs"):
        log.job_settled(JOB, status, "raised", "no", 2.0, error)
    (record,) = caplog.records
    assert (record.exc_info is not None) == has_traceback
    if has_traceback:
        assert record.exc_info is not None
        assert record.exc_info[1] is error
    said = {name: getattr(record, name) for name in ("job_id", "job_type", "queue", "attempt")}
    assert said == {"job_id": 7, "job_type": "shop.receipt", "queue": "", "attempt": 2}
