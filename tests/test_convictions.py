"""When convictions of jobs pause their type."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs import pause, resume
from django_jobs.engines.base import Engine
from django_jobs.models import Job, Pause
from django_jobs.queue import convictions
from tests.app.jobs import leave_effect, nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]


def convicted(engine: Engine, type_name: str = nothing.name, cause: str = "died", **values: Any) -> int:
    line = {"run": 2, "cause": cause, "error": "it died", "worker": "host:7", "seconds": 1}
    made = Job.objects.using(engine.alias).create(
        type=type_name,
        payload={"args": [], "kwargs": {}},
        **{"status": "dead", "suspect": True, "token": 2, "losses": 2, "finished_at": Now(), **values},
        history=[line],
    )
    return int(made.pk)


def paused(engine: Engine) -> list[tuple[str, str, str, str]]:
    return list(Pause.objects.using(engine.alias).in_force().values_list("kind", "name", "by", "why"))


def test_the_third_conviction_of_a_type_pauses_it_and_says_which_jobs_at_error(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [convicted(engine), convicted(engine, cause="out of memory")]
    convictions.review(engine, ids)
    assert paused(engine) == []
    ids.append(convicted(engine))
    with caplog.at_level(logging.ERROR, "django_jobs"):
        convictions.review(engine, ids[2:])
    why = f"3 jobs of it killed their process within 10 minutes: jobs {ids[0]}, {ids[1]}, {ids[2]}"
    assert paused(engine) == [("type", nothing.name, "django_jobs", why)]
    (record,) = caplog.records
    assert f"The type {nothing.name} is paused until a person resumes it: 3 jobs of it" in record.getMessage()


@pytest.mark.parametrize(
    "other",
    [
        {"finished_at": Now() - timedelta(minutes=11)},
        {"type_name": leave_effect.name},
        {"cause": "lease ran out"},
        {"suspect": False},
        {"status": "failed"},
        {"token": 3},
    ],
)
def test_only_convictions_of_the_type_within_ten_minutes_count(engine: Engine, other: dict[str, Any]) -> None:
    ids = [convicted(engine), convicted(engine, **other), convicted(engine)]
    convictions.review(engine, ids)
    assert paused(engine) == []
    convictions.review(engine, [convicted(engine)])
    assert [name for _, name, _, _ in paused(engine)] == [nothing.name]


def test_what_a_person_resumed_stays_so_until_the_next_conviction(engine: Engine) -> None:
    ids = [convicted(engine) for _ in range(3)]
    convictions.review(engine, ids)
    assert resume(type=nothing)
    convictions.review(engine, [])
    convictions.review(engine, [convicted(engine, leave_effect.name)])
    convictions.review(engine, [int(nothing.enqueue().pk)])
    assert paused(engine) == []
    convictions.review(engine, [convicted(engine)])
    assert [name for _, name, _, _ in paused(engine)] == [nothing.name]


def test_a_pause_that_a_person_made_keeps_its_reason(engine: Engine) -> None:
    pause(type=nothing, why="maintenance", by="ada")
    convictions.review(engine, [convicted(engine) for _ in range(3)])
    assert paused(engine) == [("type", nothing.name, "ada", "maintenance")]
