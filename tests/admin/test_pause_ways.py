"""From where a pause is made and ended without a search for its page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

import django_jobs
from django_jobs.models import Pause, Schedule
from tests.admin.conftest import As
from tests.admin.schedules import make, page, page_of
from tests.admin.site import Site, messages, text
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LIST = "/admin/django_jobs/pause/"


def test_from_a_schedules_page_its_type_is_paused_with_an_end_and_its_why_and_one_comes_back(site: Site) -> None:
    schedule = make(site)
    button = re.search(r'id="pause-type" formaction="([^"]*)"', page(site, schedule).content.decode())
    assert button is not None
    assert site.client.get(button[1]).status_code == 405
    form = site.client.post(button[1], {"why": "no paper & ink"})["Location"]
    initial = site.client.get(form).context["adminform"].form.initial
    assert (initial["kind"], initial["called"], initial["why"]) == ("type", nothing.name, "no paper & ink")
    given = {"kind": "type", "called": nothing.name, "lasts": "tomorrow", "until_0": "", "until_1": "", "why": ""}
    answer = site.client.post(form, given, follow=True)
    assert answer.redirect_chain[-1][0] == page_of(schedule)
    assert Pause.objects.using(site.alias).get(kind="type").until is not None


def test_who_may_not_pause_is_offered_no_pause_of_the_type(as_user: As) -> None:
    site = as_user("view_schedule", "change_schedule")
    schedule = make(site)
    shown = page(site, schedule).content.decode()
    assert 'id="pause"' in shown
    assert "pause-type" not in shown
    assert site.client.post(f"{page_of(schedule).removesuffix('change/')}pause-type/").status_code == 403


def row_button(site: Site) -> Any:
    return re.search(r'formaction="([^"]*)" name="pause" value="([^"]*)"', site.client.get(LIST).content.decode())


def test_a_row_of_the_list_of_pauses_has_a_button_that_resumes_it_alone(site: Site) -> None:
    django_jobs.pause(queue="mail")
    django_jobs.pause(type=nothing)
    button = row_button(site)
    assert button[2] == "queue mail"
    answer = site.client.post(button[1], {"pause": button[2], "action": "", "index": "0"}, follow=True)
    assert messages(answer) == ["Resumed: queue mail."]
    assert Pause.objects.using(site.alias).get().kind == "type"


def test_the_zone_of_a_pauses_end_is_named_in_the_form_and_where_it_is_in_force(site: Site) -> None:
    shop = "Asia/Tokyo"
    with timezone.override(shop):
        form = text(site.client.get(f"{LIST}add/"))
    assert "until tomorrow, 00:00 JST" in form
    assert "In the time zone Asia/Tokyo." in form
    assert "send_receipt" not in form
    django_jobs.pause(queue="default", until=datetime(2126, 1, 2, 3, 4, tzinfo=UTC))
    site.make()
    assert "until 2126-01-02 03:04 UTC" in text(site.list(queue="default"))


def test_who_may_only_look_at_pauses_has_no_button_in_a_row(as_user: As) -> None:
    django_jobs.pause(queue="mail")
    assert row_button(as_user("view_pause")) is None


def test_a_paused_schedule_is_resumed_from_the_list_of_pauses_by_who_may(site: Site, as_user: As) -> None:
    schedule = make(site, enabled=False)
    button = re.search(r'action="([^"]*/resume/)" class="dj-act"', site.client.get(LIST).content.decode())
    assert button is not None
    answer = site.client.post(button[1], {"next": LIST}, follow=True)
    assert answer.redirect_chain[-1][0] == LIST
    assert Schedule.objects.using(site.alias).get(pk=schedule.pk).enabled
    make(site, "off", enabled=False)
    looks = as_user("view_schedule", "view_pause")
    assert "/resume/" not in looks.client.get(LIST).content.decode()
