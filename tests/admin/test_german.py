"""The pages in German, as the proof that they can be had in another language."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from django_jobs.engines.base import Engine
from tests.admin import addresses
from tests.admin.site import Site, messages, text

GERMAN = {"Accept-Language": "de"}
pytestmark = [pytest.mark.django_db(databases="__all__")]


@pytest.fixture(autouse=True)
def as_the_browser_asks(settings: Settings) -> None:
    place = settings.MIDDLEWARE.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    between = ["django.middleware.locale.LocaleMiddleware"]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:place], *between, *settings.MIDDLEWARE[place:]]


def test_every_page_can_be_had_in_german(site: Site) -> None:
    rows = addresses.rows(site.alias)
    for address in addresses.addresses():
        answer = site.client.get(address.url(rows), headers=GERMAN)
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            assert 'lang="de"' in answer.content.decode() or "<html" not in answer.content.decode(), str(address)


def test_a_jobs_page_and_what_is_said_of_an_act_are_german(site: Site) -> None:
    job = site.make("dead", last_error="ValueError: no such order")
    page = text(site.client.get(f"/admin/django_jobs/job/{job.pk}/change/", headers=GERMAN))
    for words in ("Job", "aufgegeben", "Letzter Fehler", "Neu einreihen", "Warteschlange"):
        assert words in page
    assert "Requeue" not in page
    asked = {"why": "der Dienst ist wieder da"}
    answer = site.client.post(f"/admin/django_jobs/job/{job.pk}/requeue/", asked, follow=True, headers=GERMAN)
    assert messages(answer) == [f"Job {job.pk} wurde neu eingereiht."]


def test_numbers_and_plurals_of_lists_are_german(site: Site, engine: Engine) -> None:
    for _number in range(2):
        site.make("dead")
    page = text(site.client.get("/admin/django_jobs/job/?state=dead-letters", headers=GERMAN))
    assert "2 Jobs" in page
    assert "gescheitert" in page
