"""Who is let in where, by every address of our pages: also by those that somebody adds later."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from django_jobs.engines.base import Engine
from django_jobs.models import Job
from tests.admin import addresses
from tests.admin.addresses import INDEX, Address
from tests.admin.conftest import As
from tests.admin.site import Site

pytestmark = [pytest.mark.django_db(databases="__all__")]
ALL = addresses.addresses()
# Pages that only ask whether, or how, something is to be done: who may not do it does not get them.
FORMS = ("_add", "_delete", "_cancel", "_edit", "_requeue", "_did_not_happen", "_preview")
REFUSED = (403, 405)
# What is made on another page, to which everybody is led who asks for a form; and what leads to the index of the app.
ELSEWHERE = ("bulkact_add", "overview_changelist")


def answers(client: Client, rows: dict[str, Any], method: str = "get", **form: Any) -> dict[str, Any]:
    """Return what each address answers, by its name."""
    return {str(address): getattr(client, method)(address.url(rows), form) for address in ALL}


def statuses(given: dict[str, Any]) -> dict[str, int]:
    return {name: answer.status_code for name, answer in given.items() if name not in ELSEWHERE}


def is_form(address: Address) -> bool:
    return address.name.endswith(FORMS)


@pytest.fixture
def viewer(as_user: As) -> Site:
    """Return the site as somebody sees it who may look at everything of ours and do nothing."""
    every = Permission.objects.filter(content_type__app_label="django_jobs", codename__startswith="view_")
    return as_user(*every.values_list("codename", flat=True))


def test_every_page_is_there_for_who_may_do_everything(site: Site) -> None:
    found = statuses(answers(site.client, addresses.rows(site.alias)))
    # Nobody adds or deletes a row of the queue by a form, and what is archived does not run as it is.
    never = {name for name, status in found.items() if status == 403}
    assert {name for name in never if not re.search("_(add|delete)( |$)|^archivedjob_run", name)} == set()
    assert {name: status for name, status in found.items() if status not in (200, 403, 405)} == {}


def test_who_has_not_logged_in_is_sent_to_do_so_from_every_address(engine: Engine) -> None:
    rows, client = addresses.rows(engine.alias), Client()
    before = addresses.stored(engine.alias)
    for method in ("get", "post"):
        for name, answer in answers(client, rows, method).items():
            assert (answer.status_code, str(answer.get("Location", "")).partition("?")[0]) == (302, "/admin/login/"), (
                name
            )
    assert addresses.stored(engine.alias) == before


def test_who_is_of_the_staff_and_may_nothing_gets_no_page(as_user: As) -> None:
    site = as_user()
    rows = addresses.rows(site.alias)
    before = addresses.stored(site.alias)
    for method in ("get", "post"):
        found = statuses(answers(site.client, rows, method))
        assert found.pop(f"{INDEX} app_label") in (403, 404)
        assert {name: status for name, status in found.items() if status != 403 and status != 405} == {}
    assert "django_jobs" not in site.client.get("/admin/").content.decode()
    assert addresses.stored(site.alias) == before


def test_who_may_view_sees_every_page_that_shows_something(viewer: Site) -> None:
    rows, ada = addresses.rows(viewer.alias), Client()
    ada.force_login(User.objects.create_superuser("ada"))
    before = addresses.stored(viewer.alias)
    wrong = {}
    for address in ALL:
        not_shown = ada.get(address.url(rows)).status_code in REFUSED
        status = viewer.client.get(address.url(rows)).status_code
        if status not in (REFUSED if not_shown or is_form(address) else (200,)) and str(address) not in ELSEWHERE:
            wrong[str(address)] = status
    assert wrong == {}
    assert addresses.stored(viewer.alias) == before


def test_the_acts_of_lists_are_known() -> None:
    of_jobs = next(address for address in ALL if address.name == "django_jobs_job_changelist")
    assert {"requeue", "cancel", "delete_selected"} <= set(addresses.acts(of_jobs))


def test_who_may_only_view_is_refused_every_act_by_its_address(viewer: Site) -> None:
    rows = addresses.rows(viewer.alias)
    before = addresses.stored(viewer.alias)
    wrong = {}
    for address in ALL[1:]:  # the index takes no POST for what it is
        for act in addresses.acts(address):
            status = viewer.client.post(address.url(rows), addresses.form(act, address, rows)).status_code
            if status not in REFUSED:
                wrong[f"{address} {act}"] = status
    assert wrong == {}
    assert addresses.stored(viewer.alias) == before


def test_who_may_do_another_thing_does_nothing_by_any_address(as_user: As) -> None:
    """What refuses who may only look is not what each act relies on."""
    Permission.objects.create(codename="nothing_job", content_type=ContentType.objects.get_for_model(Job))
    every = Permission.objects.filter(content_type__app_label="django_jobs", codename__startswith="view_")
    site = as_user("nothing_job", *every.values_list("codename", flat=True))
    rows = addresses.rows(site.alias)
    before = addresses.stored(site.alias)
    wrong = {}
    for address in ALL:
        for act in addresses.acts(address):
            status = site.client.post(address.url(rows), addresses.form(act, address, rows)).status_code
            if status not in (*REFUSED, 200) and str(address) not in ELSEWHERE:
                wrong[f"{address} {act}"] = status
    assert addresses.stored(site.alias) == before
    assert wrong == {}


def test_the_same_requests_of_who_may_do_everything_are_not_refused(site: Site) -> None:
    """What is refused to others is not refused for another reason."""
    rows = addresses.rows(site.alias)
    before = addresses.stored(site.alias)
    for act in ("requeue", "cancel", "pause", "happened"):
        for address in ALL:
            if address.name.endswith(f"_{act}"):
                answer = site.client.post(address.url(rows), addresses.form(act, address, rows))
                assert answer.status_code in (200, 302), str(address)
    after = addresses.stored(site.alias)
    assert {name for name in after if after[name] != before[name]} >= {"log", "job", "schedule", "effect"}


def test_no_post_is_taken_that_another_site_could_have_made(engine: Engine) -> None:
    site = Site(User.objects.create_superuser("ada"), engine.alias, Client(enforce_csrf_checks=True))
    rows = addresses.rows(site.alias)
    before = addresses.stored(site.alias)
    wrong = {}
    for address in ALL:
        for act in addresses.acts(address):
            answer = site.client.post(address.url(rows), addresses.form(act, address, rows))
            if answer.status_code != 403:
                wrong[f"{address} {act}"] = answer.status_code
    assert wrong == {}
    assert addresses.stored(site.alias) == before


def test_a_superuser_may_act_where_no_permission_has_been_made(site: Site) -> None:
    Permission.objects.all().delete()
    job = site.make("dead")
    site.act_on_page("requeue", job)
    assert job.refresh().status == "ready"
