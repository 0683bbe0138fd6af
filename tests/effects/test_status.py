from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models.functions import Now

from django_jobs.engines.base import Engine
from django_jobs.models import Effect, Job
from django_jobs.models.clock import Clock
from tests.app.jobs import nothing
from tests.test_commands import as_json, jobs

pytestmark = pytest.mark.django_db(databases="__all__")


def status(*options: str) -> str:
    out = StringIO()
    call_command("jobs", "status", *options, stdout=out)
    return out.getvalue()


def test_status_says_how_many_effects_may_have_happened_and_since_when(engine: Engine) -> None:
    assert "May have happened" not in status()
    job = nothing.enqueue()
    effects = Effect.objects.using(engine.alias)
    effects.create(kind="once", key="a")
    effects.create(kind="outside", key="answered", answered_at=Clock())
    effects.create(kind="outside", key="a", asked_at=Clock() - timedelta(hours=30))
    effects.create(kind="outside", key="b", job_id=job.pk)
    assert "May have happened: 2 effects outside the database, without an answer for up to 1080" in status()
    # What is just being asked for is under way.
    Job.objects.using(engine.alias).update(status="running", locked_by="w:1", locked_until=Now(), token=1)
    assert "May have happened: 1 effect outside" in status()
    found = json.loads(status("--json"))["may_have_happened"]
    assert found["effects"] == 1
    assert 108_000 <= found["oldest_seconds"] < 108_100


def test_show_names_the_newest_effects_of_the_job_that_may_have_happened_and_counts_the_others(engine: Engine) -> None:
    job, other = nothing.enqueue(), nothing.enqueue()
    effects = Effect.objects.using(engine.alias)
    assert "May have happened" not in jobs("show", str(job.pk))
    effects.create(kind="outside", key="answered", job_id=job.pk, answered_at=Clock())
    effects.create(kind="once", key="once", job_id=job.pk)
    for number in range(7):
        effects.create(kind="outside", key=f"{number}", job_id=job.pk, asked_at=Clock() - timedelta(minutes=number))
    assert as_json("show", str(job.pk))["may_have_happened"] == {"effects": 7, "newest": ["0", "1", "2", "3", "4"]}
    said = "May have happened: '0', '1', '2', '3', '4' and 2 more, outside the database, without an answer"
    assert said in jobs("show", str(job.pk))
    assert "May have happened" not in jobs("show", str(other.pk))
    Job.objects.using(engine.alias).update(status="running", locked_by="w:1", locked_until=Now(), token=1)
    assert "May have happened" not in jobs("show", str(job.pk)), "they may be under way"
