"""The admin's pages as a person drives them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now
from selenium.webdriver.remote.webelement import WebElement

from django_jobs.models import Job, Pause, Worker
from tests.app.jobs import nothing
from tests.browser.pages import Pages

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
MARKUP = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"


def make(status: str = "ready", **values: Any) -> Job:
    given: dict[str, Any] = {"type": nothing.name, "payload": {"args": [], "kwargs": {}}}
    if status == "running":
        given |= {
            "locked_by": "w:1",
            "locked_until": Now() + timedelta(minutes=1),
            "token": 1,
            "last_started_at": Now(),
        }
    if status in ("done", "failed", "dead", "cancelled"):
        given |= {"finished_at": Now()}
    made: Job = Job.objects.create(status=status, **given | values)
    return made


def worker() -> Worker:
    types = [nothing.name]
    found: Worker = Worker.objects.create(id="w", host="web-1", pid=7, supervisor_pid=6, types=types, threads=4)
    return found


def test_jobs_are_found_by_filters_and_by_search_and_lead_to_their_page(admin: Pages) -> None:
    dead = make("dead", last_error="ValueError: no such order", attempts=3, max_attempts=3, queue="mail")
    keyed, _done = make(idempotency_key="order:17"), make("done")
    admin.open("/admin/")
    admin.click_link("Jobs")
    assert len(admin.ids) == 3
    admin.click_link("dead letters (dead or failed)")
    assert admin.ids == [dead.pk]
    admin.click_link("mail")
    assert admin.ids == [dead.pk]
    admin.click_link("default")
    assert admin.ids == []
    admin.jobs()
    admin.search("order:")
    assert admin.ids == [keyed.pk]
    admin.search(str(dead.pk))
    admin.click_link(str(dead.pk))
    assert "Dead after 3 of 3 attempts" in admin.one("#explanation").text


def test_a_dead_job_is_requeued_from_its_page(admin: Pages) -> None:
    dead = make("dead")
    admin.job(dead)
    admin.one("#why").send_keys("the service is back")
    admin.click("#requeue")
    assert admin.messages == [f"Job {dead.pk} was requeued."]
    assert dead.refresh().status == "ready"
    assert LogEntry.objects.get().change_message == "Requeued: the service is back"
    admin.click_link("What people did".upper())
    assert "the service is back" in admin.page


def test_of_two_clicks_on_an_act_one_is_sent(admin: Pages) -> None:
    admin.job(make("dead"))
    sent = """
    let sent = 0;
    window.addEventListener('submit', event => { sent += !event.defaultPrevented; event.preventDefault(); });
    document.getElementById('requeue').click();
    document.getElementById('requeue').click();
    return sent;
    """
    assert admin.driver.execute_script(sent) == 1


def test_selected_jobs_are_requeued_and_conflicts_named(admin: Pages) -> None:
    dead, running = make("dead"), make("running")
    admin.jobs()
    admin.act_on([dead, running], "requeue", "try again")
    assert admin.messages == [
        f"Job {dead.pk} was requeued.",
        f"Job {running.pk} runs; it can be requeued when it has ended.",
    ]


def test_a_job_is_cancelled_only_after_the_second_page(admin: Pages) -> None:
    job = make()
    admin.job(job)
    admin.click("#cancel")
    admin.click_link("No, go back")
    assert job.refresh().status == "ready"
    admin.click("#cancel")
    admin.one("#why").send_keys("a double")
    admin.click("#confirm")
    assert admin.messages == [f"Job {job.pk} was cancelled."]
    assert "by ada: a double" in admin.page
    assert job.refresh().status == "cancelled"


def test_selected_jobs_are_cancelled_after_the_second_page(admin: Pages) -> None:
    jobs = [make(), make("running"), make()]
    admin.jobs()
    admin.act_on(jobs, "cancel", "wrong price")
    assert "Cancel 3 jobs?" in admin.page
    assert admin.one("#why").get_attribute("value") == "wrong price"
    admin.click("#confirm")
    assert admin.messages == [
        "2 jobs were cancelled.",
        f"Job {jobs[1].pk} runs; its handler is told to stop within a heartbeat.",
    ]
    assert [job.refresh().status for job in jobs] == ["cancelled", "running", "cancelled"]


def test_who_may_only_view_sees_all_and_can_do_nothing(viewer: Pages) -> None:
    dead, ready = make("dead"), make()
    viewer.jobs()
    assert len(viewer.ids) == 2
    assert viewer.all("select[name=action]") == []
    for job in (dead, ready):
        viewer.job(job)
        assert viewer.one("#explanation").text
        assert viewer.all("#requeue, #cancel, form.dj-act") == []
    viewer.open(f"/admin/django_jobs/job/{ready.pk}/cancel/")
    assert "403" in viewer.one("body").text
    viewer.open("/admin/django_jobs/pause/")
    assert viewer.all(".addlink[href*='pause/add']") == []


def test_markup_in_a_row_is_shown_and_never_run(admin: Pages) -> None:
    worker()
    line = {"run": 1, "cause": MARKUP, "error": MARKUP, "worker": MARKUP, "seconds": 1, "at": MARKUP}
    arguments = {"args": [MARKUP], "kwargs": {MARKUP: MARKUP}}
    values = {"type": MARKUP, "queue": MARKUP, "payload": arguments, "last_error": MARKUP, "history": [line]}
    progress = {"done": 1, "total": 2, "note": MARKUP}
    job = make("running", idempotency_key=MARKUP, progress=progress, result=MARKUP, **values)
    for address in ("job/", f"job/{job.pk}/change/", f"job/{job.pk}/cancel/", "worker/w/change/"):
        admin.open(f"/admin/django_jobs/{address}")
        assert MARKUP in admin.page, address
        assert admin.driver.title != "owned", address


def test_a_huge_row_and_a_renamed_type_have_their_pages(admin: Pages) -> None:
    huge = make("done", payload={"args": ["x" * (2**20 - 100)], "kwargs": {}}, result="y" * 2**20)
    gone = make("dead", type="shop.renamed", last_error="Traceback\nValueError: at last")
    admin.job(huge)
    (argument, _result) = admin.all("details.dj-folded")
    assert "1,048,478 characters" in argument.text
    assert argument.find_element("tag name", "pre").is_displayed() is False
    argument.find_element("tag name", "summary").click()
    assert argument.find_element("tag name", "pre").is_displayed() is True
    admin.job(gone)
    assert "not known to this web process" in admin.page
    assert "ValueError: at last" in admin.one("#last-error pre").text
    admin.click_link("shop.renamed")
    assert admin.ids == [gone.pk]


def test_a_worker_shows_what_runs_on_it(admin: Pages) -> None:
    web = worker()
    job = make("running", progress={"done": 3, "total": 16, "note": "half"})
    admin.open("/admin/django_jobs/worker/")
    state, runs = admin.texts(".field-state, .field-runs_now")
    assert state == "live"
    assert re.fullmatch(rf"{job.pk} tests\.app\.jobs\.nothing \d+\.\d s ago", runs)
    admin.click_link(str(web))
    assert "1 job runs here now." in admin.page
    admin.click_link(str(job.pk))
    assert "Runs for" in admin.one("#explanation").text
    admin.click_link(str(web))


def test_a_queue_is_paused_and_resumed(admin: Pages) -> None:
    admin.open("/admin/django_jobs/pause/")
    admin.click_link("ADD PAUSE")
    admin.one("#id_kind option[value=queue]").click()
    admin.one("#id_called").send_keys("default")
    admin.one("#id_why").send_keys("the printer is out of paper")
    admin.click("input[name=_save]")
    assert "default" in admin.one("#result_list").text
    assert [(pause.name, pause.by) for pause in Pause.objects.all()] == [("default", "ada")]
    admin.one("#action-toggle").click()
    admin.one("select[name=action] option[value=delete_selected]").click()
    admin.click("button[name=index]")
    assert admin.messages == ["Resumed: queue default."]
    assert not Pause.objects.exists()


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_the_window_in_both_themes(admin: Pages, theme: str, width: int) -> None:
    worker()
    line = {"run": 1, "cause": "raised", "error": "ValueError: " + "x" * 900, "worker": "web-1:7", "seconds": 1}
    long_name = "a_package.of_some_app.with_a_rather_long_name." + "nightly_summary_" * 5
    job = make("running", type=long_name, history=[line], last_error="x" * 3_000, meta={"tags": ["x" * 200]})
    admin.driver.set_window_size(width, 900)
    admin.open("/admin/")
    admin.driver.execute_script("localStorage.setItem('theme', arguments[0])", theme)
    pages = ("job/", f"job/{job.pk}/change/", f"job/{job.pk}/cancel/", "worker/", "worker/w/change/", "pause/add/")
    for address in pages:
        admin.open(f"/admin/django_jobs/{address}")
        wide = admin.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, address
        assert admin.background() == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 18, 18)"}[theme]
        for text, ground in map(colours, admin.all(".dj-state")):
            assert contrast(text, ground) >= 4.5, address
            assert (text > ground) == (theme == "dark"), address


def colours(found: WebElement) -> tuple[float, float]:
    """Return the luminance of an element's text and of its background, as WCAG has it."""

    def luminance(colour: str) -> float:
        channels = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    names = ("color", "background-color")
    text, ground = (luminance(found.value_of_css_property(name)) for name in names)
    return text, ground


def contrast(first: float, second: float) -> float:
    """Return the ratio that WCAG asks to be at least 4.5 for text."""
    dark, light = sorted((first, second))
    return (light + 0.05) / (dark + 0.05)


def test_short_values_and_errors_on_a_jobs_page_do_not_scroll(admin: Pages) -> None:
    line = {"run": 1, "cause": "raised", "error": "ValueError: no", "worker": "h:1", "seconds": 1, "at": None}
    admin.job(make("dead", payload={"args": [17, "x" * 3000], "kwargs": {"name": "ada"}}, history=[line], result=[1]))
    scrolling = "return Array.from(document.querySelectorAll('#content code, #content pre.dj-text'))"
    scrolling += ".filter(found => !found.closest('.dj-folded > pre') && getComputedStyle(found).overflowY == 'auto')"
    assert admin.driver.execute_script(f"{scrolling}.length") == 0
    # What is long and unfolded still does.
    folded = "return getComputedStyle(document.querySelector('.dj-folded > pre')).overflowY"
    assert admin.driver.execute_script(folded) == "auto"
