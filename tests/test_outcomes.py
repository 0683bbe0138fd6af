"""What a handler may say about its run: outcomes and progress."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Cancel, Context, Fail, InvalidJob, JobsError, Retry, Snooze
from django_jobs.exceptions import InvalidJobType

pytestmark = pytest.mark.fast
SECONDS = "give seconds from 0 to 315360000 (ten years)."


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(0, 0.0), (5, 5.0), (0.5, 0.5), (timedelta(minutes=1), 60.0), (timedelta(days=3650), 315_360_000.0)],
)
def test_a_delay_is_seconds_or_a_timedelta(given: Any, seconds: float) -> None:
    assert (Retry(given).delay, Snooze(given).delay) == (seconds, seconds)


@pytest.mark.parametrize("kind", [Retry, Snooze])
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (-1, InvalidJob, f"is -1; {SECONDS}"),
        (timedelta(seconds=-1), InvalidJob, f"is -1.0; {SECONDS}"),
        (float("nan"), InvalidJob, f"is nan; {SECONDS}"),
        (float("inf"), InvalidJob, f"is inf; {SECONDS}"),
        (1e300, InvalidJob, f"is 1e+300; {SECONDS}"),
        (10**400, InvalidJob, f"is 1{'0' * 76}...; {SECONDS}"),
        (True, InvalidJobType, "is True; give seconds as a number, or a timedelta."),
        ("5", InvalidJobType, "is '5'; give seconds as a number, or a timedelta."),
    ],
)
def test_a_delay_that_makes_no_sense_is_refused(kind: Any, value: Any, error: type[JobsError], said: str) -> None:
    with pytest.raises(error) as caught:
        kind(value)
    assert str(caught.value) == f"{kind.__name__}(delay) {said}"


def test_a_retry_may_leave_its_delay_to_the_backoff_and_a_snooze_may_not() -> None:
    assert Retry().delay is None
    with pytest.raises(InvalidJobType, match=r"^Snooze needs a delay: seconds, or a timedelta\.$"):
        Snooze(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", [Retry(5), Snooze(5), Fail("no"), Cancel("no")])
def test_an_outcome_that_is_raised_is_not_caught_as_an_error(outcome: BaseException) -> None:
    assert not isinstance(outcome, Exception)


def test_reasons_are_text() -> None:
    assert (Fail(5).reason, Cancel().reason, Retry(1, ValueError("x")).reason) == ("5", "", "x")  # type: ignore[arg-type]


# Progress.


def context(reports: list[dict[str, Any]]) -> Context:
    return Context(
        job_id=1,
        attempt=1,
        run=1,
        idempotency_key="job:1",
        slot=None,
        stop_asked=lambda: False,
        report=reports.append,
    )


def test_progress_is_reported_with_its_note_made_storable() -> None:
    reports: list[dict[str, Any]] = []
    context(reports).progress(0, 3)
    context(reports).progress(1.5, 3, "half\x00\ud800")
    assert reports == [
        {"done": 0, "total": 3, "note": ""},
        {"done": 1.5, "total": 3, "note": "half\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"},
    ]


@pytest.mark.parametrize(
    ("done", "total", "note", "error", "said"),
    [
        (0, 0, "", InvalidJob, "progress(done=0, total=0): total must be over 0 and done from 0 to total."),
        (1, -1, "", InvalidJob, "progress(done=1, total=-1): total must be over 0 and done from 0 to total."),
        (2, 1, "", InvalidJob, "progress(done=2, total=1): total must be over 0 and done from 0 to total."),
        (-1, 1, "", InvalidJob, "progress(done=-1, total=1): total must be over 0 and done from 0 to total."),
        (float("nan"), 1, "", InvalidJob, "progress(done=nan): give a finite number."),
        (1, float("inf"), "", InvalidJob, "progress(total=inf): give a finite number."),
        (1, 10**400, "", InvalidJob, f"progress(total=1{'0' * 76}...): give a finite number."),
        (True, 1, "", InvalidJobType, "progress(done=True): give a number."),
        (1, "2", "", InvalidJobType, "progress(total='2'): give a number."),
        (1, 2, 5, InvalidJobType, "progress(note=5): give text."),
        (1, 2, "x" * 1001, InvalidJob, "progress: the note has 1001 characters; at most 1000 are allowed."),
    ],
)
def test_progress_that_makes_no_sense_is_refused_and_not_reported(
    done: Any, total: Any, note: Any, error: type[JobsError], said: str
) -> None:
    reports: list[dict[str, Any]] = []
    with pytest.raises(error) as caught:
        context(reports).progress(done, total, note)
    assert str(caught.value) == said
    assert reports == []
