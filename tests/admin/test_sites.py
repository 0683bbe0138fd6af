"""A project with two admin sites: the pages of each lead to its own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.urls import path

from django_jobs.admin import shown
from django_jobs.admin.addresses import within
from tests.admin import addresses
from tests.admin.site import Site

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]

another = AdminSite(name="another")
for _model, _admin in admin.site._registry.items():
    another.register(_model, type(_admin))
urlpatterns = [path("admin/", admin.site.urls), path("another/", another.urls)]


@pytest.fixture(autouse=True)
def both(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


def test_every_page_of_another_site_leads_to_pages_of_that_site(site: Site) -> None:
    rows = addresses.rows(site.alias)
    site.make("dead", queue="mail")
    seen: set[str] = set()
    for address in addresses.addresses():
        if address.namespaces == ("another",):
            answer = site.client.get(address.url(rows))
            page = f'"{answer.headers.get("Location")}"' + answer.content.decode()
            assert re.findall(r"[\"']/admin/[^\"']*", page) == [], str(address)
            seen.update(re.findall(r"/another/django_jobs/(\w+)/\d", page))
    assert seen >= {"job", "schedule", "bulkact", "effect"}


def test_what_is_done_on_another_site_leads_back_to_it(site: Site) -> None:
    job = site.make("dead")
    answer = site.client.post(f"/another/django_jobs/job/{job.pk}/requeue/")
    assert answer.headers["Location"] == f"/another/django_jobs/job/{job.pk}/change/"
    answer = site.client.get(f"/admin/django_jobs/job/{job.pk}/change/")
    assert "/another/" not in answer.content.decode()


def test_a_site_without_a_page_shows_the_name_that_would_lead_to_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with within("another"):
        assert shown.job_link(7) == '<a href="/another/django_jobs/job/7/change/">7</a>'
    monkeypatch.setattr(shown, "address", lambda *args: "")
    assert shown.job_link(7) == "7"
