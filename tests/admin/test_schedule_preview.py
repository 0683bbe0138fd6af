"""What the preview says of the form that is being edited, and of what is stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobs.admin import schedule_preview
from django_jobs.models import Job, Schedule, ScheduleState
from tests.admin.conftest import As
from tests.admin.schedules import (
    ADD,
    BLANK,
    PREVIEW,
    fresh,
    make,
    page,
    page_of,
    preview,
    save,
)
from tests.admin.site import Site, text

pytestmark = pytest.mark.django_db(databases="__all__")
INVALID = Path(__file__).parent.parent / "cron" / "invalid_given.jsonl"
# A day before the clock in Berlin jumps over 02:00 to 03:00, and one before it shows 02:00 to 03:00 twice.
SPRING, AUTUMN = datetime(2027, 3, 27, 0, tzinfo=UTC), datetime(2027, 10, 30, 0, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a setter of the time at which the preview begins; no database can be asked for that of a clock change."""
    return lambda moment: monkeypatch.setattr(schedule_preview, "database_now", lambda alias: moment)


def test_the_preview_is_that_of_the_form_and_writes_nothing(site: Site) -> None:
    found = make(site, timezone="Europe/Berlin")
    before = [list(rows.using(site.alias).values()) for rows in (Schedule.objects, ScheduleState.objects, Job.objects)]
    with CaptureQueriesContext(connections[site.alias]) as asked:
        for address in (PREVIEW, f"{page_of(found)[:-7]}preview/"):
            answer = site.client.post(address, BLANK | {"expression": "7 11 * * *", "timezone": "Asia/Tokyo"})
            assert "11:07 JST" in text(answer)
    assert {item["sql"].split()[0] for item in asked} - {"SAVEPOINT", "RELEASE"} == {"SELECT"}
    after = [list(rows.using(site.alias).values()) for rows in (Schedule.objects, ScheduleState.objects, Job.objects)]
    assert after == before


def test_the_preview_shows_both_clocks_and_how_far_it_is(site: Site, at: Any) -> None:
    at(datetime(2026, 12, 1, 0, tzinfo=UTC))
    answer = preview(site)
    read = text(answer)
    assert "Tue 2026-12-01 02:30 CET Tue 01:30 UTC in 90 min" in read
    assert read.count(" CET ") == 8
    assert "<html" not in answer.content.decode()
    with timezone.override("Africa/Lagos"):
        assert "For you" not in text(preview(site))


@pytest.mark.parametrize(
    ("moment", "policy", "fire", "change"),
    [
        (
            SPRING,
            {"nonexistent": "after_gap"},
            "Sun 2027-03-28 03:00 CEST moved: the clock jumps over 02:30 Sun 01:00 UTC in 25 h",
            "Sun 2027-03-28 02:00 → 03:00 forward by 1 h moved 02:30: run at 03:00",
        ),
        (
            SPRING,
            {"nonexistent": "skip"},
            "Sat 2027-03-27 02:30 CET Sat 01:30 UTC in 90 min Mon 2027-03-29",
            "skipped 02:30: not run",
        ),
        (
            AUTUMN,
            {"ambiguous": "first"},
            "Sun 2027-10-31 02:30 CEST the first of two times 02:30 Sun 00:30 UTC in 24 h Mon",
            "Sun 2027-10-31 03:00 → 02:00 back by 1 h first only 02:30: run the first time",
        ),
        (
            AUTUMN,
            {"ambiguous": "second"},
            "Sun 2027-10-31 02:30 CET the second of two times 02:30 Sun 01:30 UTC in 26 h Mon",
            "second only 02:30: run the second time",
        ),
        (
            AUTUMN,
            {"ambiguous": "both"},
            "the first of two times 02:30 Sun 00:30 UTC in 24 h Sun 2027-10-31 02:30 CET the second of two times 02:30 Sun",
            "doubled 02:30: run both times",
        ),
        (AUTUMN, {"expression": "0 12 * * *"}, "Sun 2027-10-31 12:00 CET", "back by 1 h unaffected"),
        (SPRING, {"expression": "*/5 2 * * *"}, "Sat 2027-03-27 02:00", "02:15, 02:20 … (12 in all): run at 03:00"),
    ],
)
def test_the_preview_marks_what_a_clock_change_does(
    site: Site, at: Any, moment: datetime, policy: dict[str, str], fire: str, change: str
) -> None:
    at(moment)
    read = text(preview(site, **policy))
    assert fire in read
    assert change in read


def test_the_preview_of_an_interval_counts_from_where_the_row_does(site: Site, at: Any) -> None:
    found = make(site, every=timedelta(hours=1))
    Schedule.objects.using(site.alias).filter(pk=found.pk).update(anchor=SPRING + timedelta(minutes=17))
    at(SPRING + timedelta(days=1))
    answer = site.client.post(
        f"{page_of(found)[:-7]}preview/", BLANK | {"expression": "", "every": "6h", "timezone": "UTC"}
    )
    assert "Sun 2027-03-28 00:17 UTC in 17 min Sun 2027-03-28 06:17 UTC" in text(answer)


def test_the_preview_tells_of_the_spread_and_of_a_pause(site: Site) -> None:
    read = text(preview(site, spread="1h", enabled=""))
    assert "It is paused: these are its times once it is resumed." in read
    assert "after these times, by the spread." in read
    assert "spread" not in text(preview(site, spread="1y"))


def test_the_page_has_the_preview_of_the_stored_values_without_a_script(site: Site, at: Any) -> None:
    at(SPRING)
    found = make(site, timezone="Europe/Berlin")
    assert "moved: the clock jumps over 02:30" in text(page(site, found))
    assert "<html" in page(site, found).content.decode()
    refused = save(site, found, expression="45 4 * * *", priority="x")
    assert "2027-03-27 04:45 CET" in text(refused)
    assert fresh(found).expression == "30 2 * * *"
    assert "Time zone &#x27;Mars&#x27; is not known here" in text(save(site, found, timezone="Mars"))


def given() -> list[str]:
    return [json.loads(line)["expr"] for line in INVALID.read_text().splitlines()]


def test_whatever_is_written_the_preview_says_it_in_words(site: Site) -> None:
    assert "to see its times" in text(preview(site, expression=""))
    assert "to see its times" in text(site.client.get(ADD))
    for expression in [*filter(str.strip, given()), "<script>", "\x00", "* " * 5000, "9" * 5000 + " * * * *"]:
        answer = preview(site, expression=expression)
        assert "errorlist" in answer.content.decode(), expression
        assert "<script>" not in answer.content.decode()
    for zone in ("", "Mars", "../x", "America", "\x00", "x" * 300):
        assert "Time zone" in text(preview(site, timezone=zone))
    odd = {"name": "\x00", "type": "\x00", "args": "[" * 100_000, "kwargs": "5", "priority": "9" * 5000, "spread": "-"}
    assert "2 * * *" not in text(preview(site, **odd))
    assert "errorlist" not in preview(site, **odd).content.decode()
    assert site.client.post(PREVIEW, {}).status_code == 200


def test_the_preview_is_for_who_may_see_or_change_or_add(as_user: As, site: Site) -> None:
    found = make(site)
    stored = f"{page_of(found)[:-7]}preview/"
    assert site.client.post(f"/admin/django_jobs/schedule/{found.pk + 1}/preview/").status_code == 404
    assert site.client.get(stored).status_code == 405
    other = as_user("view_job")
    assert [other.client.post(address).status_code for address in (stored, PREVIEW)] == [403, 403]


@pytest.mark.parametrize(
    ("codename", "expected"),
    # Who may only look has no form to edit, and is refused every POST; the page has the preview of what is stored.
    [("view_schedule", [403, 403]), ("change_schedule", [200, 200]), ("add_schedule", [403, 200])],
)
def test_the_preview_of_a_form_is_for_who_may_send_one(as_user: As, codename: str, expected: list[int]) -> None:
    site = as_user(codename)
    stored = f"{page_of(make(site))[:-7]}preview/"
    assert [site.client.post(address).status_code for address in (stored, PREVIEW)] == expected
