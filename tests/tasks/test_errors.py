"""What a job's history says, as the errors of a task."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.tasks.errors import ErrorText, errors

pytestmark = pytest.mark.fast


def line(cause: str, error: str, worker: str = "host:1") -> dict[str, Any]:
    return {
        "run": 1,
        "cause": cause,
        "error": error,
        "worker": worker,
        "seconds": 0.1,
        "at": "2026-01-01T00:00:00.000Z",
    }


CASES = [
    ("raised", "ValueError: x", "builtins.ValueError"),
    ("raised", "ValueError", "builtins.ValueError"),
    ("raised", "shop.tasks.Broken: ValueError: y", "shop.tasks.Broken"),
    ("raised", "shop.tasks.f.<locals>.Broken: y", "shop.tasks.f.<locals>.Broken"),
    ("raised", "no class at all", "django_jobs.exceptions.JobsError"),
    ("raised", "list: a builtin that is no exception", "django_jobs.exceptions.JobsError"),
    ("retry", "not yet", "django_jobs.outcomes.Retry"),
    ("retry", "ValueError: as a reason", "django_jobs.outcomes.Retry"),
    ("deadline", "The run passed its deadline of 5 s: shop.Late: x", "shop.Late"),
    (
        "deadline",
        "The run passed its deadline of 5 s, did not end, and was ended with its process.",
        "django_jobs.exceptions.DeadlinePassed",
    ),
    ("lease ran out", "the lease ran out", "django_jobs.exceptions.JobsError"),
    ("connection broke", "django.db.utils.OperationalError: gone", "django.db.utils.OperationalError"),
    ("cancelled", "no longer wanted", "django_jobs.outcomes.Cancel"),
    ("called off", "by ada: a mistake", "django_jobs.outcomes.Cancel"),
    ("expired", "The time passed", "django_jobs.outcomes.Cancel"),
]


@pytest.mark.parametrize(("cause", "said", "path"), CASES)
def test_the_class_is_read_from_the_line_of_the_history(cause: str, said: str, path: str) -> None:
    assert errors([line(cause, said)], "") == [ErrorText(path, said)]


@pytest.mark.parametrize("cause", ["snoozed", "stopped", "released", "requeued", "edited", "asked to stop"])
def test_what_is_no_error_of_the_task_is_left_out(cause: str) -> None:
    assert errors([line(cause, "ValueError: x")], "") == []


def test_the_last_error_has_its_whole_traceback() -> None:
    history = [line("raised", "ValueError: 1"), line("raised", "KeyError: 2"), line("requeued", "by ada")]
    assert errors(history, "Traceback ...\nKeyError: 2") == [
        ErrorText("builtins.ValueError", "ValueError: 1"),
        ErrorText("builtins.KeyError", "Traceback ...\nKeyError: 2"),
    ]


def test_a_failure_without_a_traceback_is_an_outcome() -> None:
    assert (
        errors([line("failed", "OSError: as a reason")], "OSError: as a reason")[0].path == "django_jobs.outcomes.Fail"
    )
    assert errors([line("failed", "OSError: raised")], "Traceback ...\nOSError: raised")[0].path == "builtins.OSError"


def test_a_history_that_somebody_wrote_by_hand_breaks_nothing() -> None:
    assert errors(["text", {}, {"cause": 5}, {"cause": "raised"}], "") == [
        ErrorText("django_jobs.exceptions.JobsError", "")
    ]
