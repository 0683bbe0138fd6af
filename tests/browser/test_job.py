"""One job's page as a person drives it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now
from selenium.webdriver.common.keys import Keys

from django_jobs.models import Job
from django_jobs.redact import MARK
from tests.app.jobs import log_in
from tests.browser.pages import Pages
from tests.browser.test_admin import make

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
PAYLOAD = {"args": ["eva", "s3cret"], "kwargs": {"tries": 3}}


def write(admin: Pages, field: str, text: str) -> None:
    found = admin.one(f"#id_{field}")
    found.send_keys(Keys.CONTROL, "a")
    found.send_keys(text)


def dead() -> Job:
    error = (
        'Traceback (most recent call last):\n  File "/srv/shop/jobs.py", line 7, in log_in\nValueError: s3cret refused'
    )
    times = {"created_at": Now() - timedelta(minutes=5), "last_started_at": Now() - timedelta(minutes=1)}
    return make("dead", type=log_in.name, payload=PAYLOAD, last_error=error, token=1, **times)


def test_a_dead_job_is_requeued_with_other_arguments_once_they_fit(admin: Pages) -> None:
    job = dead()
    admin.job(job)
    assert "s3cret" not in admin.driver.page_source
    assert admin.texts(".dj-said") == [f"ValueError: {MARK} refused"]
    admin.click("#requeue_edited")
    assert json.loads(str(admin.one("#id_args").get_attribute("value"))) == ["eva", MARK]
    write(admin, "args", "[]")
    admin.click("#save")
    assert "missing a required argument: 'user'. Nothing was changed." in admin.texts(".errorlist")[0]
    assert job.refresh().status == "dead"
    write(admin, "args", f'["bob", "{MARK}"]')
    write(admin, "why", "wrong user")
    admin.click("#save")
    assert admin.messages == [f"Job {job.pk} was requeued."]
    job.refresh()
    assert (job.status, job.args, job.kwargs) == ("ready", ["bob", "s3cret"], {"tries": 3})
    assert LogEntry.objects.get().change_message == "Requeued with other arguments 1: wrong user"


def test_a_job_for_later_is_run_now(admin: Pages) -> None:
    job = make(run_at=Now() + timedelta(hours=3))
    admin.job(job)
    assert "due in 3 h" in admin.one("#explanation").text
    admin.one("#why").send_keys("customer waits")
    admin.click("#run_now")
    assert admin.messages == [f"Job {job.pk} is due now."]
    assert admin.one("#explanation").text.startswith("Due for 0.")
    assert LogEntry.objects.get().change_message == "Made due at once: customer waits"


def test_the_priority_and_the_due_time_of_a_job_that_waits_are_changed(admin: Pages) -> None:
    job = make()
    admin.job(job)
    admin.click("#edit")
    write(admin, "priority", "50")
    admin.click("#save")
    assert admin.messages == [f"Job {job.pk} was edited: priority."]
    assert job.refresh().priority == 50
    before = job.run_at
    admin.click("#edit")
    admin.click("#save")
    assert admin.messages == [f"Nothing of job {job.pk} was changed."]
    assert job.refresh().run_at == before, "the field has whole seconds, the job has more"
    admin.click("#edit")
    admin.driver.execute_script("document.getElementById('id_run_at').value = '2030-01-02T03:04:05'")
    admin.click("#save")
    assert f"{job.refresh().run_at:%Y-%m-%d %H:%M:%S}" == "2030-01-02 03:04:05"


def test_an_edit_of_what_another_edited_meanwhile_changes_nothing(admin: Pages) -> None:
    job = make()
    admin.job(job)
    admin.click("#edit")
    Job.objects.filter(pk=job.pk).update(priority=7)
    write(admin, "priority", "50")
    admin.click("#save")
    assert "was changed since it was shown" in admin.messages[0]
    assert job.refresh().priority == 7


def test_the_line_of_a_jobs_time_can_be_seen_and_the_viewer_has_no_act(viewer: Pages) -> None:
    job = dead()
    viewer.job(job)
    assert viewer.one("svg.dj-tl").size["width"] > 500
    assert viewer.all(".dj-act .button") == []
    viewer.open(f"/admin/django_jobs/job/{job.pk}/edit/")
    assert "403" in viewer.driver.title or "Forbidden" in viewer.driver.page_source
