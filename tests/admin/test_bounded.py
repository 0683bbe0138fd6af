from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.urls import path, reverse

from django_jobs.admin import acts, job_edits
from django_jobs.admin import bounded as admin_bounded
from django_jobs.admin import bulk as bulk_admin
from django_jobs.admin.base import QueueAdmin
from django_jobs.admin.bounded import TooSlow, bounded, bounded_page
from django_jobs.engines import jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.models import BulkAct, Job
from django_jobs.queue import operate
from tests.admin.site import Site, messages, text
from tests.engines.common import on_postgresql, on_sqlite
from tests.threads import session

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]


def ask(alias: str, question: str) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(question)
        return cursor.fetchone()[0]


def limit(alias: str) -> Any:
    return ask(alias, "SHOW statement_timeout")


@on_postgresql
def test_a_question_that_takes_too_long_is_given_up_and_the_next_one_is_answered(engine: Engine) -> None:
    with pytest.raises(TooSlow, match=r"within 0\.05 s"), bounded(engine.alias, 0.05):
        ask(engine.alias, "SELECT pg_sleep(30)")
    assert ask(engine.alias, "SELECT 1") == 1


@on_postgresql
def test_the_bound_ends_with_the_block_in_a_transaction_of_the_callers_too(engine: Engine) -> None:
    before = limit(engine.alias)
    with transaction.atomic(using=engine.alias):
        with bounded(engine.alias, 7):
            assert limit(engine.alias) == "7s"
        assert limit(engine.alias) == before


@on_postgresql
def test_another_fault_of_the_database_is_not_taken_for_slowness(engine: Engine) -> None:
    with pytest.raises(OperationalError, match="terminated"), bounded(engine.alias):
        ask(engine.alias, "DO $$ BEGIN RAISE EXCEPTION 'terminated' USING ERRCODE = '57P01'; END $$")


def test_what_is_done_within_the_bound_is_kept(site: Site) -> None:
    with bounded(site.alias):
        made = site.make()
    assert Job.objects.using(site.alias).get().pk == made.pk


@on_postgresql
def test_a_page_that_is_too_slow_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobs.admin.bounded.SECONDS", 0.05)
    asking = bounded_page(
        admin.site,
        lambda request, question: TemplateResponse(
            request, "admin/base_site.html", {"title": ask(site.alias, question)}
        ),
    )
    request = RequestFactory().get("/there?q=1")
    request.user = site.user
    answer = asking(request, "SELECT pg_sleep(30)")
    assert answer.status_code == 503
    assert isinstance(answer, TemplateResponse)
    page = text(answer.render().content.decode())
    assert "The database did not answer" in page
    assert asking(request, "SELECT 'fine'").status_code == 200


@on_sqlite
def test_what_people_did_is_bounded_on_another_database_as_well(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobs.admin.bounded.SECONDS", 0.05)
    with session("default") as other:
        other.begin()
        other.sql("LOCK TABLE django_admin_log IN ACCESS EXCLUSIVE MODE")
        answer = site.client.get(reverse("admin:django_jobs_job_history", args=[site.make().pk]))
    assert answer.status_code == 503


@on_postgresql
@pytest.mark.parametrize("model", ["job", "archivedjob", "bulkact", "schedule", "worker", "pause", "effect"])
def test_every_list_is_bounded(site: Site, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def seen(self: Any, *_args: Any) -> HttpResponse:
        found.append(limit(site.alias))
        return HttpResponse()

    monkeypatch.setattr(admin.ModelAdmin, "changelist_view", seen)
    site.client.get(reverse(f"admin:django_jobs_{model}_changelist"))
    assert found == ["5s"]


SLOW = "SELECT pg_sleep(30)"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give what acts a short time, after which the database stops."""
    monkeypatch.setattr(admin_bounded, "acting_seconds", lambda: 0.1)


def slow_at(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, job_id: int | None = None) -> None:
    """Have the database take long behind an act; upon one job, if one is named."""
    act = getattr(where, name)

    def slow(about: Any, *args: Any, **kwargs: Any) -> Any:
        came = act(about, *args, **kwargs)
        if job_id in (None, about):
            ask(jobs_alias(), SLOW)
        return came

    monkeypatch.setattr(where, name, slow)


@on_postgresql
def test_every_post_is_bounded_by_more_than_it_may_wait_for_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def seen(request: HttpRequest) -> HttpResponse:
        found.append((request.method, limit(site.alias)))
        return HttpResponse()

    monkeypatch.setattr(admin.ModelAdmin, "get_urls", lambda self: [path("probe/", seen)])
    ours = [kind for kind in admin.site._registry.values() if isinstance(kind, QueueAdmin)]
    assert len(ours) >= 7
    for kind in ours:
        (probe,) = [url for url in kind.urls if str(url.pattern) == "probe/"]
        for method in ("get", "post"):
            request = getattr(RequestFactory(), method)("/probe/")
            request.user = site.user
            probe.callback(request)
    assert found == [("GET", "5s"), ("POST", "10s")] * len(ours)


@on_postgresql
@pytest.mark.parametrize("act", ["requeue", "cancel"])
def test_of_acts_one_by_one_those_before_the_slow_one_are_done_and_the_rest_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, quick: None, act: str
) -> None:
    before = "dead" if act == "requeue" else "ready"
    first, slow, last = (site.make(before) for _ in range(3))
    slow_at(monkeypatch, operate, act, slow.pk)
    answer = site.act_on_list(act, first, slow, last, confirmed="1")
    said = messages(answer)
    assert said[0].startswith(f"Job {first.pk} was ")
    assert f"Nothing was done to {slow.pk}, {last.pk}." in said[1]
    assert [job.refresh().status for job in (slow, last)] == [before] * 2
    assert first.refresh().status != before
    assert [pk for pk, _user, _said in site.log()] == [str(first.pk)]


@on_postgresql
@pytest.mark.parametrize("act", ["requeue", "cancel"])
def test_acts_on_a_list_are_no_part_of_one_transaction(site: Site, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    deep = []
    monkeypatch.setattr(operate, act, lambda *_args, **_given: deep.append(len(connections[site.alias].savepoint_ids)))
    monkeypatch.setattr(acts, "_recorded", lambda *_args: "")
    monkeypatch.setattr(acts, "_said", lambda *_args: "")
    job = site.make("dead")
    site.act_on_list(act, job, confirmed="1")
    site.act_on_page(act, job, confirmed="1")
    assert deep[0] == deep[1] - 1


@on_postgresql
def test_an_act_on_a_page_that_is_too_slow_is_not_done_and_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    job = site.make("dead")
    slow_at(monkeypatch, operate, "requeue")
    said = messages(site.act_on_page("requeue", job))
    assert [f"Nothing was done to {job.pk}." in text for text in said] == [True]
    assert job.refresh().status == "dead"
    assert site.log() == []


@on_postgresql
def test_a_post_that_is_too_slow_says_that_nothing_was_changed_and_that_is_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    slow_at(monkeypatch, bulk_admin.BulkActAdmin, "log_addition")
    site.make("dead")
    form = {"token": str(uuid4()), "why": "it is back"}
    address = f"{reverse('admin:django_jobs_bulkact_add')}?act=requeue&state=dead-letters"
    answer = site.client.post(address, form)
    assert answer.status_code == 503
    assert "Nothing was changed" in text(answer)
    assert "Try again" not in text(answer)
    assert not BulkAct.objects.using(site.alias).exists()
    assert Job.objects.using(site.alias).count() == 1


@on_postgresql
def test_what_was_said_to_be_done_is_not_said_when_it_was_undone(
    site: Site, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    job = site.make("ready", run_at=Now() + timedelta(days=1))
    monkeypatch.setattr(job_edits.EditsAdmin, "url_of", lambda *_args: ask(site.alias, SLOW))
    answer = site.act_on_page("run_now", job)
    assert answer.status_code == 503
    assert messages(answer) == []
    assert job.refresh().run_at > job.created_at + timedelta(hours=1)
