"""The list of schedules, the acts upon them, and what their page says of the stored row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from django_jobs.models import Job
from django_jobs.models.schedule import Schedule, ScheduleState
from tests.admin.conftest import As
from tests.admin.schedules import (
    ADD,
    LIST,
    PREVIEW,
    act,
    act_on_list,
    add,
    five,
    fresh,
    from_code,
    make,
    page,
    page_of,
    save,
    state,
    write,
)
from tests.admin.site import Site, messages, text
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
MARKUP = "<script>alert(1)</script>"
SLOT = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def shown(site: Site, **query: str) -> list[str]:
    answer = site.client.get(LIST, query)
    assert answer.status_code == 200
    return [found.name for found in answer.context["cl"].result_list]


def rows(site: Site) -> list[str]:
    """Return what is read in each line of the list."""
    page = site.client.get(LIST).content.decode()
    body = page.partition('id="result_list"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    return [text(line) for line in body.split("</tr>") if line.strip()]


def test_the_list_says_of_each_schedule_its_state_and_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    five(site, monkeypatch)
    ok, overdue, paused, broken, orphaned = rows(site)
    assert "30 2 * * * UTC ok " in ok
    assert "overdue Its slot came 5 min ago, and no scheduler that knows its job has looked" in overdue
    assert "paused It makes no jobs until it is resumed." in paused
    assert "broken timezone: Time zone &#x27;Mars&#x27; is not known here" in broken
    assert "orphaned The code no longer has it; it goes on until it is paused or deleted." in orphaned


def test_times_are_those_of_the_schedules_zone_and_of_the_viewers_unless_they_show_the_same(site: Site) -> None:
    found = make(site, timezone="Europe/Berlin")
    same = make(site, "same", timezone="Etc/UTC")
    for schedule in (found, same):
        state(schedule, next_run_at=Now() + timedelta(hours=1), last_fired_slot=SLOT)
    berlin, utc = rows(site)
    assert "Sun 2026-10-25 02:30 CEST for you Sun 00:30 UTC" in berlin
    assert "Sun 2026-10-25 00:30 UTC" in utc
    assert "for you" not in utc
    with timezone.override("America/New_York"):
        assert "Sun 2026-10-25 02:30 CEST for you Sat 20:30 EDT" in rows(site)[0]


def test_intervals_counts_and_the_last_job_are_in_the_list(site: Site) -> None:
    found = make(site, every=timedelta(minutes=90))
    job = site.make("done")
    state(found, last_job=job.pk, last_fired_slot=SLOT, missed=1234, dropped=5)
    (line,) = rows(site)
    assert "every 90 min UTC" in line
    assert "last Sun 2026-10-25 00:30 UTC (" in line
    assert f" ago ) job {job.pk} missed 1,234, dropped 5" in line
    assert "skipped" not in line
    assert f'href="/admin/django_jobs/job/{job.pk}/change/"' in site.client.get(LIST).content.decode()
    job.delete()
    assert "job" not in rows(site)[0].rpartition("nothing")[2]


def test_the_list_is_narrowed_by_pause_origin_type_and_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [found.name for found in five(site, monkeypatch).values()]
    assert shown(site) == names
    assert shown(site, enabled="no") == ["c paused"]
    assert shown(site, enabled="yes") == [name for name in names if name != "c paused"]
    assert shown(site, code="yes") == ["e orphaned"]
    assert shown(site, code="no") == names[:4]
    assert shown(site, type=nothing.name) == names
    assert shown(site, type="other") == []
    assert shown(site, q="RDUE") == ["b overdue"]
    assert shown(site, q="%") == []
    assert shown(site, q="\x00") in ([], names)
    assert site.client.get(LIST, {"payload__args__0": "x"}).status_code == 400


def test_a_page_of_the_list_asks_as_many_questions_for_one_schedule_as_for_fifty(site: Site) -> None:
    def questions() -> int:
        with CaptureQueriesContext(connections[site.alias]) as asked:
            assert site.client.get(LIST).status_code == 200
        return len(asked)

    state(make(site, "first"), last_job=site.make().pk)
    one = questions()
    for number in range(60):
        state(make(site, f"n{number:02}"), last_job=site.make().pk)
    ScheduleState.objects.using(site.alias).filter(schedule__name="n07").delete()
    assert questions() == one
    assert len(rows(site)) == 50


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
        f"Schedule {MARKUP} was not run. type is 'shop.gone', and no job of that name is known here"
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


def test_the_page_shows_the_state_row_and_the_jobs_of_the_latest_slots(site: Site) -> None:
    found = make(site, "a%_b", timezone="Europe/Berlin")

    def made(day: int) -> Job:
        key = f"schedule:a%_b:2026-10-{day}T00:30:00Z"
        return site.make("done", schedule="a%_b", slot=SLOT, idempotency_key=key)

    jobs = [made(day) for day in range(10, 22)]
    others = ("a%_b:2026", "axxb", "a%_")
    for number, name in enumerate(others):
        site.make(schedule=name, idempotency_key=f"schedule:{name}:x{number}")
    state(
        found,
        last_job=jobs[-1].pk,
        last_fired_at=Now(),
        last_slot=SLOT,
        pending_slot=SLOT,
        looked_at=Now(),
        looked_by="web-1:77",
        missed=3,
    )
    answer = page(site, found)
    assert [line["job"] for line in answer.context["jobs"]] == [
        f'<a href="/admin/django_jobs/job/{job.pk}/change/">{job.pk}</a>' for job in jobs[:1:-1]
    ]
    read = text(answer)
    assert "Last slot Sun 2026-10-25 02:30 CEST for you Sun 00:30 UTC" in read
    assert "This slot waits until the job before it has ended." in read
    assert "web-1:77" in read
    assert "Missed 3 slots that no scheduler came to in time" in read


def test_a_last_job_that_is_gone_is_named_without_a_link(site: Site) -> None:
    found = make(site)
    state(found, last_job=77, last_fired_at=Now())
    assert "77, no longer there" in text(page(site, found))


def test_what_is_kept_otherwise_than_the_code_says_is_shown_and_taken_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = from_code(site, monkeypatch, timezone="Europe/Berlin", spread=300.0)
    assert "It comes from the code." in text(page(site, found))
    assert 'id="overrides"' not in page(site, found).content.decode()
    assert messages(act(site, "as_code", found)) == ["Schedule nightly is as the code says."]
    save(site, found, expression="", every="90m", spread="10m", enabled="")
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
    write(found, code="[5]")
    assert "It comes from the code." in text(page(site, found))


def test_a_job_leads_to_its_schedule_while_that_is_there(site: Site) -> None:
    found = make(site, MARKUP, timezone="Europe/Berlin")
    job = site.make(schedule=MARKUP, slot=SLOT)
    read = site.page(job)
    assert f'href="{page_of(found)}"' in read
    assert "Sun 2026-10-25 02:30 CEST" in read
    assert MARKUP not in read
    found.delete()
    read = site.page(job)
    assert "django_jobs/schedule/1" not in read
    assert "&lt;script&gt;" in read


def test_markup_in_a_row_is_shown_and_never_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = from_code(site, monkeypatch, name=MARKUP, payload={"args": [MARKUP], "kwargs": {}})
    state(found, error=MARKUP, looked_by=MARKUP, looked_at=Now())
    write(found, timezone=MARKUP, expression=MARKUP, queue=MARKUP, type=MARKUP)
    for address in (LIST, page_of(found), f"{page_of(found)[:-7]}delete/", f"{page_of(found)[:-7]}history/"):
        answer = site.client.get(address)
        assert answer.status_code == 200
        assert MARKUP not in answer.content.decode(), address
        assert "&lt;script&gt;" in answer.content.decode(), address


@override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo")
def test_without_time_zones_in_django_all_pages_are_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = five(site, monkeypatch)
    state(found["ok"], last_slot=Now(), last_fired_slot=Now(), last_fired_at=Now(), looked_at=Now(), last_job=1)
    ok = rows(site)[0]
    assert "JST ( in 5 h )" in ok
    assert "for you" not in ok
    assert " s ago )" in ok
    for schedule in found.values():
        assert "What it is going to do" in text(page(site, schedule))
    assert site.client.get(ADD).status_code == 200
