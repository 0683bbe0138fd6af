"""The example's page that enqueues, as a visitor sees it."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now
from pytest_django.fixtures import Settings

from django_jobs.models import Job
from example_project.shop.models import DemoRun, Product, Vendor
from tests.browser.pages import Pages
from tests.harness import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def shop(pages: Pages, settings: Settings) -> Pages:
    settings.ROOT_URLCONF = "example_project.urls"
    DemoRun.objects.create()
    vendor = Vendor.objects.create(code="046d", name="Logitech")
    for number in range(3):
        name = f"Unifying Receiver, the one of long name and number {number} " * (number + 1)
        Product.objects.create(vendor=vendor, code=f"c52{number}", name=name[:255], price_cents=990)
    return pages


def test_a_visitor_enqueues_and_sees_the_job_end_without_loading_the_page_again(shop: Pages) -> None:
    shop.open("/")
    shop.click("#label button")
    job = Job.objects.get()
    assert shop.one("h1").text == f"Job {job.pk}: shop.draw_label"
    assert shop.one(".state").text == "ready"
    shop.driver.execute_script("window.same = true")
    progress = {"done": 1, "total": 2, "note": "half"}
    locked = {"status": "running", "locked_by": "w:1", "locked_until": Now(), "last_started_at": Now(), "token": 1}
    Job.objects.update(progress=progress, **locked)
    wait_for(lambda: shop.texts(".state") == ["running"], what="the state running")
    assert "half" in shop.one("#state").text
    Job.objects.update(status="done", finished_at=Now(), locked_by=None, locked_until=None, result="labels/none.png")
    wait_for(lambda: shop.texts(".state") == ["done"], what="the state done")
    assert shop.driver.execute_script("return window.same") is True
    shop.click_link("Back to the shop")
    assert "Enqueued here" in shop.one("main").text


def test_a_failed_job_shows_its_error_once(shop: Pages) -> None:
    shop.open("/")
    shop.click("#broken button")
    error = "Traceback\nValueError: <b>line 63</b>"
    line = {
        "run": 1,
        "cause": "raised",
        "error": "ValueError: <b>line 63</b>",
        "worker": "h:1",
        "seconds": 1,
        "at": None,
    }
    Job.objects.update(
        status="dead", attempts=3, max_attempts=3, last_error=error, finished_at=Now(), token=1, history=[line]
    )
    wait_for(lambda: shop.texts(".state") == ["dead"], what="the state dead")
    assert shop.one("#state").text.count("ValueError: <b>line 63</b>") == 1


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_fits_the_window(shop: Pages, width: int) -> None:
    shop.driver.set_window_size(width, 900)
    shop.open("/")
    assert shop.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
