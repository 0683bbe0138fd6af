"""The list of schedules, and what their page says of the stored row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from django_jobs.models import Job
from django_jobs.models.schedule import ScheduleState
from tests.admin.conftest import As
from tests.admin.schedules import (
    ADD,
    LIST,
    five,
    from_code,
    make,
    page,
    page_of,
    state,
    write,
)
from tests.admin.site import Site, text
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
    assert "orphaned The code that runs here no longer has it; it goes on until it is paused or deleted." in orphaned


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


@pytest.mark.parametrize("sees_jobs", [True, False])
def test_a_last_job_is_a_link_for_who_may_see_jobs_only(as_user: As, sees_jobs: bool) -> None:
    site = as_user("view_schedule", *(["view_job"] if sees_jobs else []))
    found, job = make(site), site.make()
    state(found, last_job=job.pk, last_fired_at=Now(), last_fired_slot=SLOT)
    (line,) = rows(site)
    assert f"job {job.pk}" in line
    assert f"Last job {job.pk} (" in text(page(site, found))
    for answer in (site.client.get(LIST), page(site, found)):
        assert ("/admin/django_jobs/job/" in answer.content.decode()) is sees_jobs


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
