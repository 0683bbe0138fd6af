"""What PostgreSQL reads for the page of one job when nearly all of many rows are finished."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from django_jobs.engines.base import Engine
from django_jobs.models import Job, Worker
from tests.admin.site import Site
from tests.app.jobs import nothing
from tests.engines.common import on_postgresql
from tests.engines.test_plans import FINISHED, UNFINISHED, read
from tests.plans import watched

pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]
# Of 117,600: itself, what runs, and of its queue what is before it, up to a limit.
MOST = {"done": 10, "dead": 10, "running": 10, "ready": 8_000}


def test_no_page_of_a_job_reads_the_table(engine: Engine) -> None:
    with connections[engine.alias].cursor() as cursor:
        for statement in (FINISHED, UNFINISHED, "ANALYZE django_jobs_job"):
            cursor.execute(statement, [])
    Worker.objects.create(id="w1", host="web", pid=7, supervisor_pid=6, types=[nothing.name], threads=4)
    site = Site(User.objects.create_superuser("ada"), engine.alias, Client())
    for status, most in MOST.items():
        # The last of its queue: all that is due there is before it.
        job = Job.objects.filter(status=status, parked=None, expires_at=None).order_by("priority", "-run_at")[0]
        Job.objects.filter(pk=job.pk, status="ready").update(run_at=job.created_at)
        with watched(engine.alias) as nodes:
            page = site.page(job)
        if status == "ready":
            assert (
                "all 4 threads of the live worker that serves it are busy, and 1,000 or more due jobs are before"
                in page
            )
        assert 0 < read(nodes) <= most, status
