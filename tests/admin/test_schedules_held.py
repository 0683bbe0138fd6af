"""What is said of schedules whose jobs a pause of their type or queue holds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

import django_jobs
from django_jobs import report_schedules
from django_jobs.models import Job, Pause, Schedule
from tests.admin.conftest import As
from tests.admin.front import front
from tests.admin.schedules import LIST, act, act_on_list, make, page, state
from tests.admin.site import Site, messages, text
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LATER = timedelta(hours=5)


def well(site: Site, name: str = "nightly", **values: Any) -> Schedule:
    found = make(site, name, **values)
    state(found, next_run_at=Now() + LATER, wake_at=Now() + LATER)
    return found


def read(page: Any, part: str = "content") -> str:
    """Return a part of a page as a person reads it."""
    shown = page if isinstance(page, str) else page.content.decode()
    end = "<footer" if part == "content" else "</table>"
    return text(shown.partition(f'id="{part}"')[2].partition(end)[0].replace("<wbr>", ""))


@pytest.mark.parametrize("paused", [{"type": nothing.name}, {"queue": "mail"}, {"queue": "default"}])
def test_a_schedule_whose_jobs_a_pause_holds_is_said_to_be_held_wherever_its_state_is(
    site: Site, paused: dict[str, str]
) -> None:
    found = well(site, queue="" if paused == {"queue": "default"} else "mail")
    django_jobs.pause(**paused, until=6 * 3600)
    ((kind, name),) = paused.items()
    link = f'href="/admin/django_jobs/pause/{Pause.objects.using(site.alias).get().pk}/change/"'
    for shown, part in (
        (site.client.get(LIST), "result_list"),
        (front(site), "schedules"),
        (page(site, found), "content"),
    ):
        held = rf"held Its jobs are made, and wait\. Paused: {kind} {name} until \d{{4}}-[^.]* \( in 6 h \) \."
        assert re.search(held, read(shown, part))
        assert link in (shown if isinstance(shown, str) else shown.content.decode())
    django_jobs.resume(**paused)
    assert "held" not in read(front(site), "schedules")


def test_a_pause_is_said_of_one_that_is_late_or_paused_too_and_of_no_other(site: Site) -> None:
    for name in ("late", "off", "other"):
        well(site, name, queue="mail" if name != "other" else "", enabled=name != "off")
    state(Schedule.objects.using(site.alias).get(name="late"), next_run_at=Now() - LATER)
    django_jobs.pause(queue="mail")
    lines = read(site.client.get(LIST), "result_list").split("30 2 * * * UTC ")
    late, off, other = lines[1:]
    assert late.startswith("overdue Its slot came")
    assert "Paused: queue mail until it is resumed." in late
    assert "It makes no jobs until it is resumed. Paused: queue mail until it is resumed." in off
    assert "queue mail" not in other


def test_who_may_not_see_pauses_is_told_of_them_without_a_link(as_user: As) -> None:
    site = as_user("view_schedule")
    well(site)
    django_jobs.pause(type=nothing, why="a reason")
    shown = site.client.get(LIST).content.decode()
    assert "until it is resumed" in text(shown)
    assert "/pause/" not in shown
    assert "a reason" not in shown


@pytest.mark.parametrize("do", [act, act_on_list])
def test_run_now_says_that_a_pause_holds_the_job_until_when_and_which(site: Site, do: Any) -> None:
    found = well(site, enabled=False)
    assert "It waits" not in messages(do(site, "run", found))[0]
    django_jobs.pause(type=nothing, until=1800)
    shown = do(site, "run", found)
    job = Job.objects.using(site.alias).latest("pk")
    (message,) = shown.context["messages"]
    assert f"Job {job.pk} of nightly was made. It waits for the end of a pause. Paused: type tests." in text(
        str(message)
    )
    assert "( in 30 min )" in text(str(message))
    assert f"/admin/django_jobs/pause/{Pause.objects.using(site.alias).get().pk}/change/" in str(message)


def test_a_pause_that_ends_before_the_next_run_holds_nothing_and_that_is_said(site: Site) -> None:
    found = well(site)
    django_jobs.pause(type=nothing, until=1800)
    for shown, part in ((site.client.get(LIST), "result_list"), (page(site, found), "content")):
        said = "ok The pause ends before its next run, and touches none. Paused: type tests."
        assert said in read(shown, part)
        assert "held" not in read(shown, part).partition("What it is going to do")[0]
    (row,) = report_schedules.schedules(limit=5)
    assert (row["state"], row["held_by"]) == ("ok", "")
    assert row["reason"].startswith("No run of it is touched, for this ends before the next one: the type")
    state(found, pending_slot=Now())
    assert "held Its jobs are made, and wait." in read(site.client.get(LIST), "result_list")
