from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db import OperationalError, connections, transaction
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.urls import reverse

from django_jobs.admin.bounded import TooSlow, bounded, bounded_page
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from tests.admin.site import Site, text
from tests.engines.common import on_postgresql

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
