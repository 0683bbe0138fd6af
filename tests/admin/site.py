"""The admin as a client sees it, and rows for it."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from django_jobs.models import Job
from tests.app.jobs import nothing

FINAL = ("done", "failed", "dead", "cancelled")


class Site:
    def __init__(self, user: User, alias: str, client: Client) -> None:
        self.user = user
        self.alias = alias
        self.client = client
        client.force_login(user)

    def make(self, status: str = "ready", **values: Any) -> Job:
        values = {"type": nothing.name, "payload": {"args": [], "kwargs": {}}, **values}
        if status == "running":
            values = {"locked_by": "w:1", "locked_until": Now(), "token": 1, **values}
        if status in FINAL:
            values = {"finished_at": Now(), **values}
        made: Job = Job.objects.using(self.alias).create(status=status, **values)
        return made

    def list(self, **query: Any) -> Any:
        return self.client.get(reverse("admin:django_jobs_job_changelist"), query)

    def ids(self, **query: Any) -> Any:
        answer = self.list(**query)
        assert answer.status_code == 200
        return [job.pk for job in answer.context["cl"].result_list]

    def page(self, job: Job) -> str:
        answer = self.client.get(reverse("admin:django_jobs_job_change", args=[job.pk]))
        assert answer.status_code == 200
        return answer.content.decode()

    def act_on_list(self, act: str, *jobs: Job | int, **values: str) -> Any:
        ids = [str(job if isinstance(job, int) else job.pk) for job in jobs]
        values = {"action": act, "index": "0", "_selected_action": ids, **values}  # type: ignore[dict-item]
        return self.client.post(reverse("admin:django_jobs_job_changelist"), values, follow=True)

    def act_on_page(self, act: str, job: Job, **values: str) -> Any:
        return self.client.post(reverse(f"admin:django_jobs_job_{act}", args=[job.pk]), values, follow=True)

    def log(self) -> Any:
        return [(entry.object_id, entry.user, entry.change_message) for entry in LogEntry.objects.order_by("pk")]


def messages(answer: Any) -> Any:
    return [str(message) for message in answer.context["messages"]]


def text(answer: Any) -> str:
    """Return what a person reads, one space between words."""
    page = answer if isinstance(answer, str) else answer.content.decode()
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())
