"""The admin's pages of effects as a person drives them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from selenium.webdriver.support.ui import Select

from django_jobs.models import Effect, Job
from django_jobs.models.clock import Clock
from tests.app.jobs import nothing
from tests.browser.pages import Pages

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
LIST = reverse("admin:django_jobs_effect_changelist")
MARKUP = "<script>document.title = 'owned'</script>"
LONG = "charge:" + "order-of-a-shop-with-very-long-numbers-" * 6


def make(key: str, minutes: float = 1, **values: Any) -> Effect:
    given = {"kind": "outside", "key": key, "asked_at": Clock() - timedelta(minutes=minutes), **values}
    made: Effect = Effect.objects.create(**given)
    return made


def open_page(admin: Pages, effect: Effect) -> None:
    admin.open(reverse("admin:django_jobs_effect_change", args=[effect.pk]))


def some() -> Effect:
    job = Job.objects.create(type=nothing.name, payload={"args": [], "kwargs": {}}, status="dead", finished_at=Clock())
    make("receipt:1-001", 20, answered_at=Clock(), note="2026-11-30 03:50:12 UTC, ada: it happened: in their list")
    make(MARKUP, 5, kind="once", result={"said": MARKUP})
    make(LONG, 3, answered_at=Clock(), result={"charge": "ch_00017", "lines": ["a long result"] * 30})
    return make("charge:1-041", 2, job_id=job.pk, asks=3)


def test_what_may_have_happened_is_found_and_settled(admin: Pages) -> None:
    some()
    admin.open("/admin/")
    admin.click_link("Effects")
    assert admin.texts("#result_list .dj-state") == ["may have happened", "answered", "took place", "answered"]
    admin.click_link("may have happened")
    admin.click_link("charge:1-041")
    assert "no answer was seen" in admin.one("#explanation").text
    admin.one("#why").send_keys("it is in their list, ch_00099")
    admin.click("#happened")
    assert admin.messages == ["Recorded that 'charge:1-041' happened: no run of its job asks again."]
    assert "it is in their list, ch_00099" in admin.page
    assert admin.all("#happened") == []
    assert LogEntry.objects.get().change_message == "It happened: it is in their list, ch_00099"


def test_what_did_not_happen_is_said_on_the_list_after_a_question(admin: Pages) -> None:
    effect = some()
    admin.open(LIST)
    admin.one(f"input.action-select[value='{effect.pk}']").click()
    Select(admin.one("select[name=action]")).select_by_value("did_not_happen")
    admin.one("input[name=why]").send_keys("not there")
    admin.click("button[name=index]")
    assert "it happens twice" in admin.page
    admin.click("#confirm")
    assert "Deleted the record of 'charge:1-041'" in admin.messages[0]
    assert not Effect.objects.filter(pk=effect.pk).exists()
    assert LogEntry.objects.get().change_message == "It did not happen: not there"


def test_what_is_in_a_record_is_text_and_no_page(admin: Pages) -> None:
    some()
    admin.open(LIST)
    open_page(admin, Effect.objects.get(key=MARKUP))
    assert MARKUP in admin.page
    assert admin.driver.title != "owned"


@pytest.mark.parametrize("width", [1280, 480])
def test_the_pages_fit_the_window(admin: Pages, width: int) -> None:
    effect = some()
    admin.driver.set_window_size(width, 900)
    for shown in (effect, Effect.objects.get(key=LONG)):
        open_page(admin, shown)
        assert _too_wide(admin) <= 0
    admin.open(LIST)
    assert _too_wide(admin) <= 0


@pytest.mark.parametrize("width", [1280, 480])
def test_the_page_of_a_job_leads_to_its_effects_and_fits_the_window(admin: Pages, width: int) -> None:
    effect = some()
    make(LONG + "2", 1, job_id=effect.job_id)
    admin.driver.set_window_size(width, 900)
    admin.open(reverse("admin:django_jobs_job_change", args=[effect.job_id]))
    assert admin.texts("#effects td a") == [LONG + "2", "charge:1-041"]
    assert _too_wide(admin) <= 0
    admin.click_link("charge:1-041")
    assert "if somebody requeues it" in admin.one("#explanation").text


def _too_wide(pages: Pages) -> Any:
    return pages.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
