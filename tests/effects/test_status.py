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
