"""No page and no command shows what REDACT names; the rows keep it."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_jobs.models import Effect, Job, Schedule, Worker
from tests.acts import Ran
from tests.admin.conftest import As
from tests.admin.schedules import errors, fresh, make, page, save
from tests.admin.site import Site
from tests.app.jobs import log_in

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
SECRETS = ("s3cret-by-place", "hunter2-by-name", "n3w-of-result", "p4ss-of-text")
TRACE = 'Traceback (most recent call last):\n  File "x", line 1\n'
LINE = {
    "run": 1,
    "cause": "raised",
    "error": "s3cret-by-place and password=p4ss-of-text",
    "worker": "w:1",
    "seconds": 1,
}


# What only begins, ends and bounds what is asked.
BOUNDS = ("SAVEPOINT", "RELEASE", "SELECT set_config", "SELECT current_setting", "SELECT strftime", "BEGIN", "COMMIT")
WHEN = {"expression": "* * * * *"}


def leaky(site: Site, status: str = "dead", **values: Any) -> Job:
    return site.make(
        status,
        type=log_in.name,
        payload={"args": ["eva", SECRETS[0]], "kwargs": {"deep": [{"Password": SECRETS[1]}]}},
        result={"token": SECRETS[2]},
        progress={"done": 1, "total": 2, "note": f"with {SECRETS[1]}"},
        history=[LINE],
        last_error=f"{TRACE}    {SECRETS[0]}\nE: {SECRETS[1]} token={SECRETS[3]}",
        cancel_reason=f"{SECRETS[0]} leaked",
        meta={"secret": SECRETS[2]},
        **values,
    )  # fmt: skip


def shows(*pages: str) -> list[str]:
    return [secret for page in pages for secret in SECRETS if secret in page]


@pytest.mark.parametrize("status", ["dead", "running", "ready", "cancelled"])
def test_no_page_of_a_job_shows_a_secret_and_the_row_keeps_it(site: Site, status: str) -> None:
    Worker.objects.using(site.alias).create(id="w", host="web", pid=7, supervisor_pid=6, types=[], threads=4)
    job = leaky(site, status)
    addresses = [
        reverse("admin:django_jobs_job_change", args=[job.pk]),
        reverse("admin:django_jobs_job_changelist"),
        reverse("admin:django_jobs_job_cancel", args=[job.pk]),
        reverse("admin:django_jobs_job_edit", args=[job.pk]),
        reverse("admin:django_jobs_worker_change", args=["w"]),
    ]
    pages = [site.client.get(address, follow=True).content.decode() for address in addresses]
    assert shows(*pages) == []
    assert "•••" in pages[0]
    assert "eva" in pages[0]
    assert job.refresh().args == ["eva", SECRETS[0]]


def test_neither_the_overview_nor_the_lists_of_workers_and_dead_letters_show_a_secret(site: Site) -> None:
    Worker.objects.using(site.alias).create(id="w", host="web", pid=7, supervisor_pid=6, types=[], threads=4)
    running, _dead = leaky(site, "running"), leaky(site)
    names = ("app_list", "django_jobs_worker_changelist", "django_jobs_job_dead_letters")
    addresses = [reverse(f"admin:{name}", args=["django_jobs"] if name == "app_list" else []) for name in names]
    pages = [site.client.get(address).content.decode() for address in addresses]
    assert shows(*pages) == []
    assert "with •••" in pages[0]
    assert str(running.pk) in pages[1]
    assert "•••" in pages[2]


def test_the_page_of_an_effect_shows_no_secret(site: Site) -> None:
    values = {"result": [{"token": SECRETS[2]}, {"id": 7}], "note": f"by eva: password={SECRETS[3]}"}
    effect = Effect.objects.using(site.alias).create(kind="outside", key="k", answered_at=Now(), **values)
    page = site.client.get(reverse("admin:django_jobs_effect_change", args=[effect.pk])).content.decode()
    assert shows(page) == []
    assert page.count("•••") == 2


def test_a_secret_far_inside_the_arguments_is_not_in_the_error_of_a_list(site: Site) -> None:
    job = leaky(site)
    payload = {"args": ["eva"], "kwargs": {"a": "x" * 3_000, "password": "far-inside"}}
    Job.objects.using(site.alias).filter(pk=job.pk).update(payload=payload, last_error="E: far-inside is wrong")
    page = site.list().content.decode()
    assert "is wrong" in page
    assert "far-inside" not in page


def test_no_command_shows_a_secret(site: Site) -> None:
    job = leaky(site)
    said = [
        Ran(*words).out
        for words in (["list"], ["list", "--json"], ["show", str(job.pk)], ["show", str(job.pk), "--json"])
    ]
    assert shows(*said) == []
    assert json.loads(said[3])["args"] == ["eva", "•••"]


def test_without_names_to_mask_all_is_shown(site: Site, settings: Any) -> None:
    settings.DJANGO_JOBS = {"REDACT": []}
    job = leaky(site)
    assert set(shows(site.page(job))) == set(SECRETS)


def test_a_page_asks_the_database_little(site: Site, as_user: As) -> None:
    """Also of somebody whose permissions are looked up, of a job of which there is much to say."""
    vera = as_user("view_job", "requeue_job", "edit_job", "cancel_job", "view_effect", "view_schedule", "view_worker")
    Worker.objects.using(site.alias).create(id="w", host="web", pid=7, supervisor_pid=6, types=[log_in.name], threads=4)
    Schedule.objects.using(site.alias).create(
        name="s", type=log_in.name, payload={"args": ["eva"], "kwargs": {}}, **WHEN
    )
    jobs = [leaky(site, status, schedule="s", slot=Now()) for status in ("dead", "ready", "running")]
    for job in jobs:
        Effect.objects.using(site.alias).create(kind="outside", key=f"e{job.pk}", job_id=job.pk)
    for who, limit in ((site, 10), (vera, 12)):
        for job in jobs:
            of_jobs, of_users = (CaptureQueriesContext(connections[alias]) for alias in (site.alias, "default"))
            with of_jobs as asked, of_users as others:
                who.page(job)
            sent = {id(query): query["sql"] for query in [*asked.captured_queries, *others.captured_queries]}
            said = [statement for statement in sent.values() if not statement.strip().startswith(BOUNDS)]
            assert len(said) < limit, "\n".join(said)


def secret_schedule(site: Site) -> Schedule:
    payload = {"args": ["eva", SECRETS[0]], "kwargs": {"deep": [{"Password": SECRETS[1]}]}}
    return make(site, type=log_in.name, payload=payload)


@pytest.mark.parametrize("permission", ["view_schedule", "change_schedule"])
def test_the_page_of_a_schedule_shows_no_secret_to_who_may_change_it_or_not(as_user: As, permission: str) -> None:
    site = as_user("view_schedule", permission)
    schedule = secret_schedule(site)
    code = {"type": log_in.name, "payload": {"args": [], "kwargs": {"token": SECRETS[2]}}}
    Schedule.objects.using(site.alias).filter(pk=schedule.pk).update(code=code)
    shown = page(site, schedule).content.decode()
    assert shows(shown) == []
    assert html.unescape(shown).count("•••") >= 3


def test_a_schedule_that_is_saved_with_the_marks_keeps_what_they_stand_for(site: Site) -> None:
    schedule = secret_schedule(site)
    kept = schedule.payload
    save(
        site, schedule, type=log_in.name, args='["eva", "•••"]', kwargs='{"deep": [{"Password": "•••"}]}', queue="mail"
    )
    assert (fresh(schedule).payload, fresh(schedule).queue) == (kept, "mail")
    save(site, schedule, type=log_in.name, args='["eve", "•••"]', kwargs='{"deep": [{"Password": "n"}]}')
    assert fresh(schedule).payload == {"args": ["eve", SECRETS[0]], "kwargs": {"deep": [{"Password": "n"}]}}


def test_a_mark_where_nothing_is_masked_is_refused_at_its_field(site: Site) -> None:
    schedule = secret_schedule(site)
    answer = save(site, schedule, type=log_in.name, args='["•••", "•••"]', kwargs="{}")
    assert "argument 1 is •••" in errors(answer)["args"][0]
    assert fresh(schedule).payload == schedule.payload
