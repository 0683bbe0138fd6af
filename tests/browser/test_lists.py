"""The lists of jobs as a person goes through them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.urls import reverse

from tests.browser.pages import Pages
from tests.browser.test_admin import make

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def fill(number: int = 120) -> list[int]:
    """Make dead letters in two queues; return them in the order of their list."""
    made = [
        make(
            "dead",
            queue=("mail", "default")[place % 2],
            type="shop.jobs.send_receipt",
            payload={"args": [place], "kwargs": {"order_id": place}},
            last_error=f"Traceback\n  File\nOrderGone: order {place} is gone",
            finished_at=Now() - timedelta(minutes=place),
            attempts=3,
            max_attempts=3,
        )
        for place in range(number)
    ]
    return [job.pk for job in made]


def test_pages_are_gone_through_to_the_last_and_back_with_the_filter_kept(admin: Pages) -> None:
    made = fill()
    admin.jobs()
    admin.click_link("dead letters (dead or failed)")
    assert admin.ids == made[:50]
    assert "120 jobs" in admin.page
    admin.click("#page-next")
    assert admin.ids == made[50:100]
    admin.click("#page-next")
    assert admin.ids == made[100:]
    assert not admin.all("#page-next")
    admin.click("#page-previous")
    assert admin.ids == made[50:100]
    admin.click("#page-last")
    assert admin.ids == made[-50:]
    admin.click("#page-first")
    assert admin.ids == made[:50]
    admin.click("#page-last")
    admin.driver.back()
    assert admin.ids == made[:50]
    admin.driver.forward()
    assert admin.ids == made[-50:]


def test_jobs_are_found_by_an_argument_by_an_error_and_by_the_fields_beside_them(admin: Pages) -> None:
    made = fill(10)
    admin.jobs()
    admin.search("kwargs.order_id=7")
    assert admin.ids == [made[7]]
    admin.search("order 3 is")
    assert admin.ids == [made[3]]
    admin.one("#free-since").send_keys("5m")
    admin.one("#free-error").send_keys("Gone")
    admin.one("#searchbar").clear()
    admin.jobs(state="dead")
    admin.one("#free-until").send_keys("5m")
    admin.one("#free-argument").send_keys("args.0=8")
    admin.click("#free-apply")
    assert admin.ids == [made[8]]
    assert admin.one("#free-until").get_attribute("value") == "5m"
    admin.click_link("Clear")
    assert len(admin.ids) == 10


def test_what_cannot_be_looked_for_is_said_above_the_list(admin: Pages) -> None:
    fill(3)
    admin.jobs(priority="abc")
    assert admin.ids == []
    assert "priority is 'abc'; give a whole number from -100 to 100." in admin.one(".errornote").text


def test_dead_letters_lead_to_their_jobs_and_one_list_to_the_others(admin: Pages) -> None:
    made = fill(5)
    make("failed", last_error="OSError: disk")
    admin.jobs()
    admin.click_link("Dead letters")
    assert [line.text for line in admin.all("#dead-letters .dj-last-line")] == [
        "OrderGone: order # is gone",
        "OSError: disk",
    ]
    admin.click("#dead-letters .dj-number a")
    assert admin.ids == made
    retry = make(attempts=1, run_at=Now() + timedelta(minutes=5), last_error="OSError: mail server")
    admin.click_link("Retries")
    assert admin.ids == [retry.pk]
    assert "OSError: mail server" in admin.page


@pytest.mark.parametrize("width", [480, 1280])
@pytest.mark.parametrize("name", ["changelist", "retries", "dead_letters"])
def test_no_list_is_wider_than_its_window(admin: Pages, name: str, width: int) -> None:
    fill(3)
    make(attempts=1, last_error="x" * 400, type="shop." + "long." * 30 + "name")
    make("dead", last_error="x" * 400, type="shop." + "long." * 30 + "name")
    admin.driver.set_window_size(width, 900)
    admin.open(reverse(f"admin:django_jobs_job_{name}"))
    script = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    wide, window = admin.driver.execute_script(script)
    assert wide <= window


def test_who_may_only_look_goes_through_the_same_lists(viewer: Pages) -> None:
    fill(60)
    viewer.open(reverse("admin:django_jobs_job_dead_letters"))
    viewer.click("#dead-letters .dj-number a")
    viewer.click("#page-last")
    assert len(viewer.ids) == 50
