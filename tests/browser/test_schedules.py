"""The pages of schedules as a person drives them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from django_jobs.models import Job, Schedule, ScheduleState
from tests.admin.schedules import ADD, LIST, page_of
from tests.app.jobs import nothing
from tests.browser.conftest import PASSWORD
from tests.browser.pages import Pages

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
MARKUP = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"


def make(name: str = "nightly", **values: Any) -> Schedule:
    values = {"type": nothing.name, "expression": "30 2 * * *", "timezone": "Europe/Berlin", **values}
    found: Schedule = Schedule.objects.create(name=name, **values)
    return found


def write(admin: Pages, field: str, value: str) -> None:
    admin.one(f"#id_{field}").clear()
    admin.one(f"#id_{field}").send_keys(value)


def previewed(admin: Pages, text: str) -> str:
    """Return the preview when it says this, waiting for it."""
    preview = admin.one("#preview")
    WebDriverWait(admin.driver, 10).until(lambda _: text in preview.text and "dj-waits" not in classes(admin), text)
    return str(preview.text)


def classes(admin: Pages) -> str:
    return str(admin.one("#preview").get_attribute("class"))


def test_the_preview_follows_the_form_and_nothing_is_saved(admin: Pages) -> None:
    found = make()
    admin.open(page_of(found))
    assert "02:30 CE" in previewed(admin, "02:30 CE")
    write(admin, "expression", "45 11 * * *")
    assert "02:30" not in previewed(admin, "11:45 CE")
    write(admin, "timezone", "Asia/Tokyo")
    assert "none in the next three years" in previewed(admin, "11:45 JST")
    write(admin, "expression", "")
    write(admin, "every", "90m")
    assert "11:45" not in previewed(admin, "in 3 h")
    write(admin, "timezone", "Europe/Berlin")
    write(admin, "every", "")
    write(admin, "expression", "30 2 * * *")
    previewed(admin, "02:30: run at 03:00")
    Select(admin.one("#id_nonexistent")).select_by_value("skip")
    previewed(admin, "02:30: not run")
    kept = Schedule.objects.get()
    assert (kept.expression, kept.every, kept.nonexistent, kept.enabled) == ("30 2 * * *", None, "after_gap", True)
    assert not LogEntry.objects.exists()


def test_what_cannot_be_used_is_said_in_the_preview_and_at_the_field(admin: Pages) -> None:
    admin.open(ADD)
    assert "Give a cron expression or an interval to see its times." in previewed(admin, "to see its times")
    write(admin, "expression", MARKUP)
    assert "<script>" in previewed(admin, "Cron expression")
    write(admin, "expression", "0 4 * * *")
    write(admin, "timezone", "Europe/Berlni")
    assert "is not known here; give a name of the IANA database" in previewed(admin, "Time zone 'Europe/Berlni'")
    assert "owned" not in admin.driver.title
    write(admin, "name", "nightly")
    write(admin, "type", nothing.name)
    admin.click("input[name=_save]")
    assert admin.texts(".field-timezone .errorlist li") == [
        "Time zone 'Europe/Berlni' is not known here; give a name of the IANA database, such as 'Europe/Berlin' or 'UTC'."
    ]
    assert not Schedule.objects.exists()


def test_a_schedule_is_added_and_edited(admin: Pages) -> None:
    admin.open(LIST)
    admin.click_link("ADD SCHEDULE")
    write(admin, "name", "nightly")
    write(admin, "type", nothing.name)
    write(admin, "args", "[7]")
    write(admin, "every", "12h")
    admin.click("input[name=_continue]")
    found = Schedule.objects.get()
    assert (found.every, found.payload) == (timedelta(hours=12), {"args": [7], "kwargs": {}})
    assert admin.one("#id_every").get_attribute("value") == "12h"
    assert admin.one(".field-name .readonly").text == "nightly"
    write(admin, "every", "")
    write(admin, "expression", "15 3 * * mon-fri")
    admin.click("input[name=_save]")
    found.refresh_from_db()
    assert (found.every, found.expression) == (None, "15 3 * * mon-fri")


def test_a_schedule_is_paused_resumed_and_run_from_its_page(admin: Pages) -> None:
    found = make()
    admin.open(page_of(found))
    admin.one("#why").send_keys("out of paper")
    admin.click("#pause")
    assert admin.messages == ["Schedule nightly was paused."]
    said = admin.one("#reason").text
    assert said.startswith("Paused by ada ")
    assert said.endswith("ago: out of paper. It makes no jobs until it is resumed.")
    admin.click("#resume")
    assert admin.messages == ["Schedule nightly was resumed; it makes jobs for the slots from now on."]
    admin.click("#run")
    job = Job.objects.get()
    assert admin.messages == [f"Job {job.pk} of nightly was made."]
    admin.click_link(str(job.pk))
    admin.click_link("nightly")
    admin.click_link("WHAT PEOPLE DID")
    assert "Paused: out of paper" in admin.page


def test_ticked_schedules_are_paused_and_deleted(admin: Pages) -> None:
    schedules = [make(name) for name in ("a", "b", "c")]
    admin.open(LIST)
    for action, ticked in (("pause", schedules[:2]), ("delete_selected", schedules[1:])):
        for found in ticked:
            admin.one(f"input.action-select[value='{found.pk}']").click()
        Select(admin.one("select[name=action]")).select_by_value(action)
        admin.click("button[name=index]")
    assert "a, b" not in admin.page
    admin.click("#content input[type=submit]")
    assert [(found.name, found.enabled) for found in Schedule.objects.all()] == [("a", False)]


def test_the_list_shows_the_schedules_clock_and_the_viewers(admin: Pages) -> None:
    for name, zone in (("berlin", "Europe/Berlin"), ("here", "UTC")):
        state = ScheduleState.objects.filter(schedule=make(name, timezone=zone))
        state.update(next_run_at=Now() + timedelta(hours=5), wake_at=Now() + timedelta(hours=5))
    admin.open(LIST)
    berlin, here = admin.texts(".field-times")
    assert "CE" in berlin.partition("for you")[0]
    assert "UTC (in 5 h)" in berlin.partition("for you")[2]
    assert "UTC (in 5 h)" in here
    assert "for you" not in here
    assert admin.texts(".dj-state") == ["ok", "ok"]


def test_who_may_only_view_sees_the_preview_and_no_button(pages: Pages) -> None:
    user = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_schedule"))
    pages.log_in("vera", PASSWORD)
    pages.open(page_of(make()))
    assert "02:30: run at 03:00" in pages.one("#preview").text
    assert pages.all("form.dj-act, .submit-row input, #id_expression") == []


@pytest.mark.parametrize("cookie", ["sessionid", "csrftoken"])
def test_who_is_not_logged_in_any_more_is_told_so_in_place_of_the_preview(admin: Pages, cookie: str) -> None:
    admin.open(page_of(make()))
    admin.driver.delete_cookie(cookie)
    write(admin, "expression", "45 11 * * *")
    assert "11:45" not in previewed(admin, "are you still logged in?")


@pytest.mark.parametrize("width", [1280, 480])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_the_window_in_both_themes(admin: Pages, theme: str, width: int) -> None:
    found = make("a.rather_long_name." + "nightly_summary_" * 8, expression="", every=timedelta(minutes=90))
    ScheduleState.objects.update(error="x" * 900, looked_at=Now(), looked_by="web-1:7" * 30, last_slot=Now())
    admin.driver.set_window_size(width, 900)
    admin.open("/admin/")
    admin.driver.execute_script("localStorage.setItem('theme', arguments[0])", theme)
    backgrounds = set()
    for address in (LIST, ADD, page_of(found)):
        admin.open(address)
        wide = admin.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, address
        backgrounds.add(admin.background())
    assert len(backgrounds) == 1
    assert admin.driver.find_element(By.CSS_SELECTOR, "html").get_attribute("data-theme") == theme
