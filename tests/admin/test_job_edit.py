"""Run now, edit, and requeue with other arguments, from a job's page."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from django_jobs.models import Job
from django_jobs.queue import edit
from django_jobs.redact import MARK
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text
from tests.app.jobs import log_in
from tests.archive.common import ended, go_round

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
PAYLOAD = {"args": ["eva", "s3cret"], "kwargs": {"tries": 3, "next": {"password": "hunter2"}}}
LATER = Now() + timedelta(hours=1)


def make(site: Site, status: str = "ready", **values: Any) -> Job:
    return site.make(status, **{"type": log_in.name, "payload": PAYLOAD, **values}).refresh()


def form(site: Site, job: Job) -> dict[str, str]:
    """Return what the form of the page has, as a browser would send it."""
    answer = site.client.get(reverse("admin:django_jobs_job_edit", args=[job.pk]))
    assert answer.status_code == 200
    page = answer.content.decode()
    areas = re.findall(r'<textarea name="(\w+)"[^>]*>\n([^<]*)<', page)
    inputs = [re.findall(r'(name|value)="([^"]*)"', tag) for tag in re.findall(r"<input [^>]*>", page)]
    fields = {dict(pairs)["name"]: dict(pairs).get("value", "") for pairs in inputs if "name" in dict(pairs)}
    return {name: html.unescape(value) for name, value in [*fields.items(), *areas] if name != "csrfmiddlewaretoken"}


def send(site: Site, job: Job, **values: str) -> Any:
    return site.client.post(reverse("admin:django_jobs_job_edit", args=[job.pk]), values, follow=True)


def said(answer: Any) -> str:
    """Return the faults that the form names."""
    return " ".join(
        re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', html.unescape(answer.content.decode()), re.DOTALL)
    )


def test_the_form_shows_the_arguments_masked_and_what_is_sent_back_unchanged_changes_nothing(site: Site) -> None:
    job = make(site)
    before = row_of(site, job)
    given = form(site, job)
    assert json.loads(given["args"]) == ["eva", MARK]
    assert json.loads(given["kwargs"]) == {"tries": 3, "next": {"password": MARK}}
    assert messages(send(site, job, **given)) == [f"Nothing of job {job.pk} was changed."]
    assert row_of(site, job) == before
    assert site.log() == []


def row_of(site: Site, job: Job) -> Any:
    found: Any = Job.objects.using(site.alias).filter(pk=job.pk).values().get()
    return found


def test_the_form_says_what_of_arguments_is_checked(site: Site) -> None:
    page = site.client.get(reverse("admin:django_jobs_job_edit", args=[make(site).pk]))
    assert 'Their types are not: "17" is a text, 17 a number.' in html.unescape(text(page))


def test_a_job_that_waits_is_edited_and_its_secrets_stay_unless_they_are_written_over(site: Site) -> None:
    job = make(site, priority=1, run_at=LATER)
    given = form(site, job)
    kwargs = {"tries": 4, "next": {"password": MARK, "page": 2}}
    due = timezone.localtime(job.run_at + timedelta(days=1)).replace(microsecond=0)
    changed = {"kwargs": json.dumps(kwargs), "priority": "-5", "run_at": f"{due:%Y-%m-%dT%H:%M:%S}", "why": "typo"}
    answer = send(site, job, **{**given, **changed})
    what = "arguments next, tries, priority, due time"
    assert messages(answer) == [f"Job {job.pk} was edited: {what}."]
    job.refresh()
    assert job.payload == {
        "args": ["eva", "s3cret"],
        "kwargs": {"tries": 4, "next": {"password": "hunter2", "page": 2}},
    }
    assert (job.priority, job.run_at, job.status) == (-5, due, "ready")
    assert job.history[-1]["error"] == f"by ada: typo ({what})"
    assert site.log() == [(str(job.pk), site.user, f"Edited ({what}): typo")]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"args": '["eva", "t", "x", '}, "Give a JSON list"),
        ({"args": "{}"}, "Give a JSON list"),
        ({"args": '["eva", NaN]'}, "NaN is no JSON"),
        ({"args": "[" * 100_000}, "Give a JSON list"),
        ({"args": '["eva", "\\u0000"]'}, "NUL character"),
        ({"args": "[]"}, "argument: 'user'. Nothing was changed."),
        ({"args": ""}, "This field is required"),
        ({"kwargs": "[]"}, "Give a JSON object"),
        ({"kwargs": '{"tries": 1, "tries": 2}'}, "'tries' stands there twice"),
        ({"kwargs": f'{{"tries": "{MARK}"}}'}, f"'tries' is {MARK}, which stands for what was masked there"),
        ({"args": f'["{MARK}"]'}, f"argument 1 is {MARK}"),
        ({"priority": "101"}, "less than or equal to 100"),
        ({"run_at": "soon"}, "Enter a valid date/time"),
        ({"run_at": "2999-01-01T00:00:00"}, "is cancelled unless it starts before"),
        ({"why": "x" * 301}, "at most 300 characters"),
    ],
)
def test_what_cannot_be_used_is_said_beside_the_form_and_nothing_is_written(
    site: Site, given: dict[str, str], says: str
) -> None:
    job = make(site, expires_at=LATER)
    before = row_of(site, job)
    answer = send(site, job, **{**form(site, job), "priority": "3", **given})
    assert says in said(answer)
    assert "s3cret" not in answer.content.decode()
    for name, value in given.items():
        if name in ("args", "kwargs") and len(value) < 1000:
            assert value in html.unescape(answer.content.decode()), "what was written is there to be mended"
    assert row_of(site, job) == before
    assert site.log() == []


def test_a_claim_that_came_first_wins_and_that_is_said(site: Site) -> None:
    job = make(site)
    given = form(site, job)
    Job.objects.using(site.alias).filter(pk=job.pk).update(
        status="running", token=1, locked_by="w:1", locked_until=Now()
    )
    before = row_of(site, job)
    answer = send(site, job, **{**given, "priority": "5"})
    assert messages(answer) == [f"Job {job.pk} runs; what it was called with is with its handler."]
    assert row_of(site, job) == before


def test_one_who_saw_the_job_before_another_edited_it_changes_nothing(site: Site) -> None:
    job = make(site)
    given = form(site, job)
    edit.edit(job.pk, priority=2, by="bob")
    before = row_of(site, job)
    answer = send(site, job, **{**given, "priority": "5"})
    assert "was changed since it was shown" in messages(answer)[0]
    assert row_of(site, job) == before
    assert site.log() == []


@pytest.mark.parametrize("status", ["dead", "failed", "done", "cancelled"])
def test_a_job_that_ended_is_requeued_with_other_arguments(site: Site, status: str) -> None:
    job = make(site, status)
    assert 'id="requeue_edited"' in site.page(job)
    given = form(site, job)
    assert "priority" not in given
    answer = send(site, job, **{**given, "args": f'["bob", "{MARK}"]', "why": "wrong user"})
    assert messages(answer) == [f"Job {job.pk} was requeued."]
    job.refresh()
    assert (job.status, job.args, job.kwargs) == ("ready", ["bob", "s3cret"], PAYLOAD["kwargs"])
    assert job.history[-1]["error"] == "by ada: wrong user (with other arguments 1)"
    assert site.log() == [(str(job.pk), site.user, "Requeued with other arguments 1: wrong user")]
    again = send(site, job, **given)
    assert "was changed since it was shown" in messages(again)[0], "a second click"
    assert len(site.log()) == 1


def test_an_archived_job_is_made_anew_with_other_arguments(site: Site) -> None:
    from django_jobs.engines import engine

    job = ended(engine(site.alias), "done", 3)
    go_round(engine(site.alias))
    address = reverse("admin:django_jobs_archivedjob_edit", args=[job.pk])
    page = site.client.get(address).content.decode()
    seen = re.findall(r'name="as_seen" value="(\w+)"', page)[0]
    answer = site.client.post(address, {"args": "[2]", "kwargs": "{}", "as_seen": seen, "why": ""}, follow=True)
    new = Job.objects.using(site.alias).get()
    assert messages(answer) == [
        f"Job {job.pk} is archived: it was requeued as the new job {new.pk}, without an idempotency key."
    ]
    assert (new.args, new.meta["requeued_from"]) == ([2], job.pk)
    assert site.client.post(reverse("admin:django_jobs_archivedjob_run_now", args=[job.pk])).status_code == 403


def test_of_a_type_that_is_not_known_here_the_arguments_stay_and_the_priority_can_be_changed(site: Site) -> None:
    job = make(site, type="shop.gone")
    given = form(site, job)
    answer = send(site, job, **{**given, "args": "[1]", "priority": "4"})
    assert messages(answer) == [f"Job {job.pk} was edited: priority."]
    assert job.refresh().payload == PAYLOAD


def test_a_job_is_run_now_from_its_page(site: Site) -> None:
    job = make(site, run_at=LATER, attempts=2)
    page = site.page(job)
    assert 'id="run_now"' in page
    seen = re.findall(r'name="as_seen" value="(\w+)"', page)[0]
    answer = site.act_on_page("run_now", job, why="customer waits", as_seen=seen)
    assert messages(answer) == [f"Job {job.pk} is due now."]
    assert 'id="run_now"' not in answer.content.decode()
    again = site.act_on_page("run_now", job, as_seen=seen)
    assert "was changed since it was shown" in messages(again)[0]
    assert site.log() == [(str(job.pk), site.user, "Made due at once: customer waits")]
    assert job.refresh().attempts == 2


def test_edits_are_asked_by_post_and_by_those_who_may(as_user: As) -> None:
    site = as_user("view_job", "requeue_job", "cancel_job")
    waits, dead = make(site, run_at=LATER), make(site, "dead")
    before = [row_of(site, job) for job in (waits, dead)]
    for job in (waits, dead):
        page = site.page(job)
        assert not any(f'id="{word}"' in page for word in ("edit", "run_now", "requeue_edited"))
        assert send(site, job, args="[1]", kwargs="{}", as_seen="x").status_code == 403
        assert site.client.get(reverse("admin:django_jobs_job_edit", args=[job.pk])).status_code == 403
        assert site.act_on_page("run_now", job).status_code == 403
    assert [row_of(site, job) for job in (waits, dead)] == before


def test_who_may_edit_alone_changes_what_waits_and_requeues_nothing(as_user: As) -> None:
    site = as_user("view_job", "edit_job")
    waits, dead = make(site, run_at=LATER), make(site, "dead")
    assert site.client.get(reverse("admin:django_jobs_job_run_now", args=[waits.pk])).status_code == 405
    assert 'id="requeue_edited"' not in site.page(dead)
    assert send(site, dead, args="[1]", kwargs="{}", as_seen="x").status_code == 403
    assert messages(site.act_on_page("run_now", waits)) == [f"Job {waits.pk} is due now."]
    assert dead.refresh().status == "dead"


def test_who_may_edit_and_not_see_jobs_edits_none(as_user: As) -> None:
    site = as_user("edit_job", "requeue_job")
    job = make(site, run_at=LATER)
    assert site.act_on_page("run_now", job).status_code == 403
    assert send(site, job, args="[1]", kwargs="{}", as_seen="x").status_code == 403
    assert job.refresh().history == []


def test_an_edit_from_another_site_is_refused(as_user: As) -> None:
    site = as_user("view_job", "edit_job", enforce_csrf_checks=True)
    job = make(site, run_at=LATER)
    assert site.act_on_page("run_now", job).status_code == 403
    assert send(site, job, args="[1]", kwargs="{}", as_seen="x").status_code == 403
    assert job.refresh().history == []


def test_the_form_says_what_the_function_takes_and_what_becomes_of_the_key(site: Site) -> None:
    job = make(site, idempotency_key="<b>order:17</b>")
    page = site.client.get(reverse("admin:django_jobs_job_edit", args=[job.pk])).content.decode()
    assert "log_in(user: str, token: str = '•••', /, *codes: int, tries: int = 3" in html.unescape(page)
    assert "the key stands for the new call" in text(page)
    assert "<b>order:17</b>" not in page


def test_a_payload_that_enqueue_would_not_have_stored_can_be_put_right(site: Site) -> None:
    job = make(site, payload=[1])
    given = form(site, job)
    assert (given["args"], given["kwargs"]) == ("[]", "{}")
    send(site, job, **{**given, "args": '["eva"]'})
    assert job.refresh().payload == {"args": ["eva"], "kwargs": {}}
