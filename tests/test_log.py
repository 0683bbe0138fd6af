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
