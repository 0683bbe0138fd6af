"""The overview as a person uses it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import django_jobs
from django_jobs.models import Job, Pause, Stat
from django_jobs.models.clock import database_now
from tests.browser.pages import Pages
from tests.browser.test_admin import make, worker
from tests.harness import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
OVERVIEW = "/admin/django_jobs/"
# So that a test need not wait for it: the page asks again at once.
AT_ONCE = "document.querySelector('[data-refresh]').dataset.refresh = 0"


def due(pages: Pages) -> str:
    return pages.texts("#tile-due strong")[0]


def test_the_page_shows_what_has_changed_without_being_loaded_again(admin: Pages) -> None:
    make()
    admin.open(OVERVIEW)
    assert due(admin) == "1"
    admin.driver.execute_script("document.body.dataset.same = 'yes'")
    make()
    admin.driver.execute_script(AT_ONCE)
    wait_for(lambda: due(admin) == "2")
    assert admin.driver.execute_script("return document.body.dataset.same") == "yes"


def test_a_page_that_is_paused_stays_as_it_is_until_it_goes_on(admin: Pages) -> None:
    make()
    admin.open(OVERVIEW)
    asked = "return performance.getEntriesByType('resource').filter(found => found.initiatorType === 'fetch').length"
    admin.one(".dj-refreshing").click()
    assert admin.texts(".dj-refreshing") == ["Go on refreshing"]
    admin.driver.execute_script(AT_ONCE)
    make()
    # Two of the looks of the page, told by its own clock, bring no question.
    admin.driver.execute_async_script("const done = arguments[0]; setTimeout(done, 1200)")
    assert (admin.driver.execute_script(asked), due(admin)) == (0, "1")
    admin.one(".dj-refreshing").click()
    wait_for(lambda: due(admin) == "2")


def test_a_page_that_cannot_be_refreshed_says_so_and_keeps_what_it_shows(admin: Pages) -> None:
    make()
    admin.open(OVERVIEW)
    admin.driver.execute_script("window.fetch = () => Promise.reject(new Error('no network'))")
    admin.driver.execute_script(AT_ONCE)
    wait_for(lambda: "could not be refreshed" in admin.one("#overview").text)
    assert due(admin) == "1"


def test_a_type_is_stopped_until_tomorrow_and_resumed(admin: Pages) -> None:
    minute = database_now("default").replace(second=0, microsecond=0) - timedelta(minutes=2)
    Stat.objects.create(minute=minute, queue="mail", type="shop.newsletter", done=5, dead=3, runs=[5], waits=[5])
    admin.open(OVERVIEW)
    admin.driver.find_element(By.CSS_SELECTOR, '[data-type="shop.newsletter"] .dj-pausing a').click()
    Select(admin.one("#id_lasts")).select_by_value("tomorrow")
    admin.one("#id_why").send_keys("complaints")
    admin.click('input[name="_save"]')
    assert admin.driver.current_url == f"{admin.url}{OVERVIEW}"
    (shown,) = admin.texts(".dj-pauses li")
    assert "Type shop.newsletter until" in shown
    assert "complaints" in shown
    assert Pause.objects.get().until is not None
    admin.click(".dj-pauses button")
    assert admin.messages == ["Resumed: type shop.newsletter."]
    assert admin.texts(".dj-pauses li") == []
    assert LogEntry.objects.filter(object_repr="type shop.newsletter", action_flag=3).exists()


def test_a_pause_is_seen_where_its_jobs_are_and_ended_there(admin: Pages) -> None:
    make(queue="mail")
    django_jobs.pause(queue="mail", why="it moves")
    admin.jobs(queue="mail")
    assert "it moves" in admin.texts(".dj-pauses li")[0]
    admin.click(".dj-pauses button")
    assert admin.driver.current_url.endswith("?queue=mail")
    assert Pause.objects.count() == 0


def test_a_viewer_sees_the_overview_and_can_pause_nothing(viewer: Pages) -> None:
    make(queue="mail")
    django_jobs.pause(queue="slow")
    viewer.open(OVERVIEW)
    assert due(viewer) == "1"
    assert viewer.all(".dj-pauses li")
    assert viewer.all(".dj-pauses button") == []
    assert viewer.all(".dj-pausing a") == []
    viewer.open(f"{OVERVIEW}pause/add/")
    assert "403" in viewer.driver.page_source


def test_a_narrow_window_shows_the_page_without_moving_it_sideways(admin: Pages) -> None:
    worker()
    make("running", last_started_at=Now())
    assert Job.objects.count() == 1
    admin.driver.set_window_size(480, 900)
    admin.open(OVERVIEW)
    wide = admin.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0
    # A shadow at the edge of a table that goes on behind it, which its rows let through.
    style = "return getComputedStyle(document.querySelector(arguments[0])).getPropertyValue(arguments[1])"
    assert (
        admin.driver.execute_script(style, "#workers .dj-wide", "background-attachment")
        == "local, local, scroll, scroll"
    )
    assert admin.driver.execute_script(style, "#workers .dj-wide tbody tr", "background-color") == "rgba(0, 0, 0, 0)"


def test_in_a_narrow_window_what_acts_is_reached_without_moving_a_table_sideways(admin: Pages) -> None:
    make("dead", last_error="boom", finished_at=Now())
    django_jobs.pause(queue="slow")
    admin.driver.set_window_size(480, 900)
    for address, acts in (
        (OVERVIEW, "#queues .dj-pausing a"),
        (f"{OVERVIEW}job/dead-letters/", "#dead-letters td:last-child a"),
        (f"{OVERVIEW}pause/", "#result_list .field-resume_ button"),
    ):
        admin.open(address)
        (act, *_others) = admin.all(acts)
        table = "return arguments[0].closest('table').parentElement.getBoundingClientRect().right"
        right = act.location["x"] + act.size["width"]
        assert right <= min(480, admin.driver.execute_script(table, act)), address
    # Each cell has its column's name, and the header is left to screen readers.
    named = "return getComputedStyle(document.querySelector('.field-ends [data-label]'), '::before').content"
    assert admin.driver.execute_script(named) == '"Ends"'
    assert admin.one("#result_list thead .column-ends").size["width"] <= 1
