from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now
from django.urls import reverse

import django_jobs
from django_jobs.models import Pause
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LIST, ADD = "/admin/django_jobs/pause/", "/admin/django_jobs/pause/add/"


def add(site: Site, **values: Any) -> Any:
    given = {"kind": "queue", "called": "default", "until_0": "", "until_1": "", "why": "", **values}
    return site.client.post(ADD, given, follow=True)


def rows(site: Site) -> Any:
    found = Pause.objects.using(site.alias).order_by("kind", "name")
    return [(row.kind, row.name, row.by, row.why) for row in found]


def test_a_queue_and_a_type_are_paused_by_the_form(site: Site) -> None:
    assert add(site, why="the mail server is moved").status_code == 200
    add(site, kind="type", called=nothing.name, until_0="2126-01-02", until_1="03:04:05")
    assert rows(site) == [("queue", "default", "ada", "the mail server is moved"), ("type", nothing.name, "ada", "")]
    until = Pause.objects.using(site.alias).get(kind="type").until
    assert until is not None
    assert until.isoformat() == "2126-01-02T03:04:05+00:00"
    page = text(site.client.get(LIST))
    assert "queue default paused the mail server is moved ada 0." in page
    assert "when resumed" in page
    assert LogEntry.objects.count() == 2


def test_what_is_paused_is_paused_anew(site: Site) -> None:
    django_jobs.pause(queue="default", by="eve", why="old")
    add(site, why="new")
    assert rows(site) == [("queue", "default", "ada", "new")]


def test_a_name_that_nothing_has_is_paused_with_a_warning(site: Site) -> None:
    answer = add(site, called="defualt")
    assert "is it spelled so?" in messages(answer)[0]
    assert [row[1] for row in rows(site)] == ["defualt"]
    assert not any("spelled" in message for message in messages(add(site)))


def test_a_name_that_cannot_be_is_refused_in_the_form(site: Site) -> None:
    answer = add(site, called="a b")
    assert "has a comma, a space or a control character" in text(answer)
    assert rows(site) == []


def test_pauses_are_resumed_from_the_list(site: Site) -> None:
    found = django_jobs.pause(queue="mail")
    django_jobs.pause(queue="other")
    chosen = {"action": "delete_selected", "index": "0", "_selected_action": [found.pk]}
    answer = site.client.post(LIST, chosen, follow=True)
    assert messages(answer) == ["Resumed: queue mail."]
    assert [row[1] for row in rows(site)] == ["other"]
    assert LogEntry.objects.get().object_repr == "queue mail"


def test_a_pause_whose_time_is_over_says_so(site: Site) -> None:
    found = django_jobs.pause(type=nothing, until=60)
    Pause.objects.using(site.alias).update(until=Now() - timedelta(minutes=2))
    assert "over" in text(site.client.get(LIST))
    page = site.client.get(reverse("admin:django_jobs_pause_change", args=[found.pk]))
    assert nothing.name in text(page)


def test_pausing_and_resuming_need_djangos_permissions(as_user: As) -> None:
    site = as_user("view_pause")
    found = django_jobs.pause(queue="mail")
    assert site.client.get(LIST).status_code == 200
    assert add(site).status_code == 403
    site.client.post(LIST, {"action": "delete_selected", "index": "0", "_selected_action": [found.pk]})
    assert [row[1] for row in rows(site)] == ["mail"]


def test_an_end_that_is_past_is_refused_at_its_field_and_what_is_paused_stays_so(site: Site) -> None:
    django_jobs.pause(queue="default", by="eve", why="old")
    answer = add(site, until_0="2001-01-02", until_1="03:04:05")
    assert "which is past by the database's clock" in answer.context["adminform"].form.errors["until"][0]
    assert rows(site) == [("queue", "default", "eve", "old")]
    assert LogEntry.objects.count() == 0


def test_the_form_says_what_a_name_is_and_suggests_those_that_are_known(site: Site) -> None:
    site.make(queue='"><b>')
    page = site.client.get(ADD).content.decode()
    assert 'list="known-names"' in page
    assert '<option value="default">queue</option>' in page
    assert f'<option value="{nothing.name}">type</option>' in page
    assert '"><b>' not in page
    assert "as the list of jobs shows it" in text(page)
