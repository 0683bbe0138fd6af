"""Pause, resume, run now, take back and delete: who may, what becomes of it, and what is recorded."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections

from django_jobs.models import Job, Schedule, ScheduleState
from tests.admin.conftest import As
from tests.admin.schedules import (
    LIST,
    PREVIEW,
    act,
    act_on_list,
    add,
    fresh,
    from_code,
    make,
    page,
    page_of,
    save,
    write,
)
from tests.admin.site import Site, messages, text

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
MARKUP = "<script>alert(1)</script>"
SLOT = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("where", ["list", "page"])
def test_a_schedule_is_paused_and_resumed_with_a_record_of_why(site: Site, where: str) -> None:
    found = make(site)

    def do(name: str, why: str) -> Any:
        return act(site, name, found, why=why) if where == "page" else act_on_list(site, name, found, why=why)

    assert messages(do("pause", "the printer is out of paper")) == ["Schedule nightly was paused."]
    assert fresh(found).enabled is False
    assert messages(do("pause", "")) == ["Schedule nightly is paused already."]
    assert messages(do("resume", "")) == ["Schedule nightly was resumed; it makes jobs for the slots from now on."]
    assert fresh(found).enabled is True
    assert messages(do("resume", "")) == ["Schedule nightly is not paused."]
    expected = ["Paused: the printer is out of paper", "Resumed."]
    assert site.log() == [(str(found.pk), site.user, said) for said in expected]


@pytest.mark.parametrize("where", ["list", "page"])
def test_who_did_it_and_why_is_logged_and_shown(
    site: Site,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Any,
) -> None:
    found = from_code(site, monkeypatch)
    do = act if where == "page" else act_on_list
    caplog.set_level(logging.INFO, "django_jobs")

    def done(name: str, why: str) -> list[str]:
        caplog.clear()
        with django_capture_on_commit_callbacks(using=site.alias, execute=True):
            do(site, name, found, why=why)
        return [line for line in caplog.messages if line.startswith("Schedule ")]

    assert done("pause", "out of paper") == ["Schedule nightly is paused by ada: out of paper"]
    assert "Paused by ada" in text(page(site, found))
    assert "ago: out of paper. It makes no jobs until it is resumed." in text(page(site, found))
    assert done("pause", "again") == []
    assert done("resume", "paper is there") == ["Schedule nightly is resumed by ada: paper is there"]
    (said,) = done("run", "to see")
    job = Job.objects.using(site.alias).get()
    assert said == f"Schedule nightly is run now, as job {job.pk}, by ada: to see"
    if where == "page":
        save(site, found, spread="5m")
        assert done("as_code", "") == ["Schedule nightly is taken back to what the code says by ada"]


def test_a_form_that_was_opened_before_a_pause_does_not_resume_it(site: Site) -> None:
    found = make(site, timezone="Europe/Berlin")
    assert 'name="enabled"' not in page(site, found).content.decode()
    act(site, "pause", found, why="out of paper")
    assert save(site, found, enabled="on", queue="mail").status_code == 200
    now = fresh(found)
    assert (now.queue, now.enabled, now.state.wake_at) == ("mail", False, None)
    assert now.state.paused_why == "out of paper"
    act(site, "resume", found)
    save(site, found, enabled="", queue="post")
    assert (fresh(found).queue, fresh(found).enabled) == ("post", True)


@pytest.mark.parametrize("where", ["list", "page"])
def test_run_now_makes_a_job_and_says_which_and_leaves_the_next_slot(site: Site, where: str) -> None:
    found = make(site, payload={"args": [7], "kwargs": {}})
    before = ScheduleState.objects.using(site.alias).values().get()
    answer = act(site, "run", found, why="now") if where == "page" else act_on_list(site, "run", found, why="now")
    job = Job.objects.using(site.alias).get()
    assert (job.schedule, job.payload) == ("nightly", {"args": [7], "kwargs": {}})
    link = f'<a href="/admin/django_jobs/job/{job.pk}/change/">{job.pk}</a>'
    assert messages(answer) == [f"Job {link} of nightly was made."]
    assert site.log() == [(str(found.pk), site.user, f"Ran now, as job {job.pk}: now")]
    assert ScheduleState.objects.using(site.alias).values().get() == before


def test_what_cannot_be_run_says_so_and_its_neighbours_run(site: Site) -> None:
    gone, good = make(site, MARKUP), make(site, "good")
    write(gone, type="shop.gone")
    answer = act_on_list(site, "run", gone, good)
    refused, made = messages(answer)
    assert refused.startswith(
        f"The schedule {MARKUP!r} is broken, so nothing was made: type is 'shop.gone', and no job of that name is known"
    )
    assert "of good was made" in made
    assert MARKUP not in answer.content.decode()
    assert [job.schedule for job in Job.objects.using(site.alias)] == ["good"]


def test_one_that_is_not_there_any_more_is_named(site: Site) -> None:
    answer = site.client.post(LIST, {"action": "pause", "index": "0", "_selected_action": ["77"]}, follow=True)
    assert messages(answer) == ["There is no schedule 77."]
    assert site.client.post(f"/admin/django_jobs/schedule/{2**70}/pause/").status_code == 302


def test_who_may_only_view_can_do_nothing(as_user: As) -> None:
    site = as_user("view_schedule")
    found = make(site, every=timedelta(minutes=90), payload={"args": [MARKUP], "kwargs": {}})
    answer = page(site, found)
    read = text(answer)
    assert "90m" in read
    assert "What it is going to do" in read
    assert MARKUP not in answer.content.decode()
    assert 'id="jobs"' not in answer.content.decode()
    for name in ("pause", "resume", "run", "as_code"):
        assert act(site, name, found).status_code == 403
        act_on_list(site, name, found)
    assert save(site, found).status_code == 403
    assert add(site).status_code == 403
    assert site.client.post(f"{page_of(found)[:-7]}delete/", {"post": "yes"}).status_code == 403
    assert fresh(found).enabled is True
    assert not Job.objects.using(site.alias).exists()
    assert site.log() == []


@pytest.mark.parametrize(
    ("codename", "may"),
    [("change_schedule", {"pause", "resume", "as_code"}), ("run_schedule", {"run"}), ("view_job", set())],
)
def test_each_act_has_its_permission(as_user: As, codename: str, may: set[str]) -> None:
    site = as_user(codename, "view_schedule")
    found = make(site)
    for name in ("pause", "resume", "run", "as_code"):
        assert (act(site, name, found).status_code == 200) is (name in may), name


def test_run_now_needs_to_see_the_schedules_as_well(as_user: As) -> None:
    site = as_user("run_schedule")
    assert act(site, "run", make(site)).status_code == 403


def test_acts_are_asked_for_by_post_with_the_forms_token_only(site: Site, as_user: As) -> None:
    found = make(site)
    for name in ("pause", "resume", "run", "as_code"):
        assert site.client.get(f"/admin/django_jobs/schedule/{found.pk}/{name}/").status_code == 405
    assert site.client.get(PREVIEW).status_code == 405
    other = as_user("view_schedule", "change_schedule", enforce_csrf_checks=True)
    assert act(other, "pause", found).status_code == 403
    assert other.client.post(PREVIEW, {}).status_code == 403
    assert fresh(found).enabled is True


def test_not_all_that_a_filter_finds_is_acted_upon(site: Site) -> None:
    found = make(site)
    answer = act_on_list(site, "pause", found, select_across="1")
    assert messages(answer) == ["Tick the schedules: what a filter finds may be very many."]
    assert fresh(found).enabled is True


def test_schedules_are_deleted_and_their_jobs_stay(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found, other = from_code(site, monkeypatch), make(site, "other")
    job = site.make(schedule="nightly")
    first = act_on_list(site, "delete_selected", found, other)
    assert "nightly, which is made anew when a scheduler starts whose code has it" in text(first)
    assert "state of a schedule" not in text(first).lower()
    act_on_list(site, "delete_selected", found, other, post="yes")
    assert not Schedule.objects.using(site.alias).exists()
    assert not ScheduleState.objects.using(site.alias).exists()
    assert job.refresh().schedule == "nightly"


def test_what_is_kept_otherwise_than_the_code_says_is_shown_and_taken_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = from_code(site, monkeypatch, timezone="Europe/Berlin", spread=300.0)
    assert "It comes from the code." in text(page(site, found))
    assert 'id="overrides"' not in page(site, found).content.decode()
    assert messages(act(site, "as_code", found)) == ["Schedule nightly is as the code says."]
    answer = save(site, found, expression="31 2 * * *", spread="5m", _continue="")
    assert [field for field, _kept, _code in answer.context["panel"]["overrides"]] == ["cron expression"]
    save(site, found, expression="", every="90m", spread="10m")
    act(site, "pause", found)
    read = text(page(site, found))
    assert "Cron expression – 30 2 * * *" in read  # noqa: RUF001 - nothing, as the pages show it
    assert "Every 90m –" in read  # noqa: RUF001
    assert "Spread over 10m 5m" in read
    assert "Enabled no yes" in read
    answer = act(site, "as_code", found, why="a mistake")
    assert messages(answer) == [
        "Schedule nightly is as the code says again: cron expression, every, spread over, enabled."
    ]
    now = fresh(found)
    assert (now.expression, now.every, now.spread, now.enabled) == ("30 2 * * *", None, timedelta(minutes=5), True)
    assert 'id="overrides"' not in answer.content.decode()
    assert site.log()[-1][2].endswith("enabled): a mistake")


def test_what_the_code_said_and_cannot_be_used_is_not_taken_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = from_code(site, monkeypatch)
    write(found, code='{"timezone": "Mars"}')
    assert messages(act(site, "as_code", found))[0].startswith(
        "Schedule nightly stays as it is. timezone: Time zone 'Mars'"
    )
    write(found, code="5")
    assert "It comes from the code." in text(page(site, found))


UNREADABLE = {"default": "anchor = 'infinity'", "lite": "missed_grace = 'abc'"}


def test_one_whose_row_cannot_be_read_is_shown_as_broken_paused_and_deleted_and_the_others_are_as_they_were(
    site: Site,
) -> None:
    make(site, "fine")
    found = make(site, "odd")
    with connections[site.alias].cursor() as cursor:
        cursor.execute(f"UPDATE django_jobs_schedule SET {UNREADABLE[site.alias]} WHERE id = %s", [found.pk])
    read = text(site.client.get(LIST))
    assert "broken Its row cannot be read: " in read
    assert messages(site.client.get(page_of(found), follow=True))[0].startswith("Its row cannot be read: ")
    assert messages(act_on_list(site, "run", found))[0].startswith("Its row cannot be read: ")
    assert messages(act_on_list(site, "pause", found)) == ["Schedule odd was paused."]
    assert Schedule.objects.using(site.alias).filter(pk=found.pk, enabled=False).exists()
    assert "odd" in text(act_on_list(site, "delete_selected", found))
    act_on_list(site, "delete_selected", found, post="yes")
    assert list(Schedule.objects.using(site.alias).values_list("name", flat=True)) == ["fine"]
