"""The line of a job's time: what is told of it from the row, and how it is drawn."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import django_jobs
from django_jobs.admin import timeline
from django_jobs.models import Job, Pause
from tests.admin.site import Site, text

pytestmark = pytest.mark.fast
T = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T + timedelta(minutes=minutes)


def line(run: int, cause: str, minutes: float, seconds: float = 0.0, error: str = "") -> dict[str, Any]:
    moment = at(minutes).isoformat().replace("+00:00", "Z")
    return {"run": run, "cause": cause, "error": error, "worker": "w:1", "seconds": seconds, "at": moment}


def job(status: str, history: Any = (), clock: float = 60, **values: Any) -> Any:
    given = {"created_at": T, "run_at": T, "token": 0, "history": list(history) if history != 3 else 3, **values}
    found: Any = Job(status=status, **given)
    found.clock = at(clock)
    return found


def told(found: Any) -> list[tuple[str, float, float]]:
    """Return the stretches of a job's time, in minutes."""
    stretches = timeline.told(found, found.history).stretches
    minutes = [[(moment - T).total_seconds() / 60 for moment in (item.start, item.end)] for item in stretches]
    return [(item.kind, start, end) for item, (start, end) in zip(stretches, minutes, strict=True)]


def test_a_job_that_waits_for_its_time_is_drawn_until_then_and_what_is_still_to_come_apart() -> None:
    found = job("ready", run_at=at(90))
    assert told(found) == [("scheduled", 0, 60), ("ahead", 60, 90)]
    drawn = timeline.drawn(found, [])
    assert drawn is not None
    assert [item["length"] for item in drawn["legend"]] == ["waited for its time, 60 min", "until its time, 30 min"]


def test_a_job_that_is_due_waits_for_a_worker_from_then_on() -> None:
    assert told(job("ready", run_at=at(45))) == [("scheduled", 0, 45), ("due", 45, 60)]


def test_runs_that_failed_or_were_lost_are_as_long_as_they_ran() -> None:
    lines = [line(1, "raised", 10, 120), line(2, "died", 30, 600), line(3, "snoozed", 40, 60)]
    assert told(job("ready", lines, token=3, run_at=at(50))) == [
        ("waiting", 0, 8), ("failed", 8, 10), ("waiting", 10, 20), ("lost", 20, 30), ("waiting", 30, 39),
        ("back", 39, 40), ("scheduled", 40, 50), ("due", 50, 60),
    ]  # fmt: skip


def test_a_run_goes_on_until_now_and_a_request_to_stop_is_a_mark_upon_it() -> None:
    found = job("running", [line(1, "asked to stop", 55)], token=1, last_started_at=at(50))
    assert told(found) == [("waiting", 0, 50), ("running", 50, 60)]
    (act,) = timeline.told(found, found.history).acts
    assert act.at == at(55)


@pytest.mark.parametrize(("status", "kind"), [("done", "done"), ("cancelled", "cancelled"), ("failed", "failed")])
def test_the_last_run_is_drawn_to_the_end_of_the_job(status: str, kind: str) -> None:
    found = job(status, [line(1, "raised", 10, 60)], token=2, last_started_at=at(20), finished_at=at(25))
    assert told(found)[-2:] == [("waiting", 10, 20), (kind, 20, 25)]


def test_a_dead_jobs_last_run_is_drawn_once() -> None:
    found = job("dead", [line(1, "raised", 25, 300)], token=1, last_started_at=at(20), finished_at=at(25))
    assert told(found) == [("waiting", 0, 20), ("failed", 20, 25)]


@pytest.mark.parametrize("cause", ["called off", "expired"])
def test_a_job_that_ended_while_it_waited_has_no_run_though_a_claim_was_given_back(cause: str) -> None:
    found = job("cancelled", [line(0, cause, 30)], token=1, last_started_at=at(10), finished_at=at(30))
    assert told(found) == [("waiting", 0, 30)]


def test_between_its_end_and_a_requeue_it_did_not_wait() -> None:
    lines = [line(1, "raised", 10, 60), line(1, "requeued", 40)]
    assert told(job("ready", lines, token=1, run_at=at(40)))[1:] == [
        ("failed", 9, 10), ("ended", 10, 40), ("due", 40, 60)
    ]  # fmt: skip


def test_of_a_run_that_succeeded_before_a_requeue_nothing_is_kept() -> None:
    assert told(job("ready", [line(1, "requeued", 40)], token=1, run_at=at(40))) == [("gap", 0, 40), ("due", 40, 60)]


def test_a_gap_is_where_the_history_has_dropped_runs() -> None:
    kept = [line(1, "raised", 1), *(line(run, "raised", run) for run in range(14, 23))]
    found = timeline.told(job("dead", kept, token=22, finished_at=at(22)), kept).stretches
    (gap,) = [item for item in found if item.kind == "gap"]
    assert (gap.start, gap.end, gap.text) == (at(1), at(14), "12 runs of which nothing is kept")
    assert sum(item.kind == "failed" for item in found) == 10


def test_a_full_history_that_dropped_no_run_has_no_gap() -> None:
    kept = [line(run, "raised", run) for run in range(1, 11)]
    assert "gap" not in {kind for kind, _start, _end in told(job("dead", kept, token=10, finished_at=at(10)))}


def bars(found: Any) -> list[tuple[str, float, float]]:
    drawn = timeline.drawn(found, found.history)
    assert drawn is not None
    return [(bar["kind"], float(bar["x"]), float(bar["width"])) for bar in drawn["bars"]]


def test_it_is_drawn_to_scale_and_a_short_run_can_be_seen() -> None:
    lines = [line(1, "raised", 15, 15 * 60), line(2, "died", 45, 0.001)]
    assert bars(job("ready", lines, token=2, run_at=at(45))) == [
        ("waiting", 250, 500), ("due", 750, 250), ("failed", 0, 250), ("lost", 750, 4),
    ]  # fmt: skip


def test_the_legend_says_how_often_and_how_long() -> None:
    lines = [line(1, "raised", 15, 60), line(2, "raised", 45, 120)]
    drawn = timeline.drawn(job("ready", lines, token=2, run_at=at(45)), lines)
    assert drawn is not None
    assert [item["length"] for item in drawn["legend"]] == [
        "due, waits for a worker, 15 min", "waited, 42 min", "2 × failed, 3 min"  # noqa: RUF001 - times
    ]  # fmt: skip


def test_what_it_waits_for_is_what_its_sentence_says() -> None:
    found = job("ready", run_at=at(45), suspect=True, parked="suspect")
    assert told(found)[-1] == ("alone", 45, 60)
    found.held = True
    assert told(found)[-1] == ("held", 45, 60)
    drawn = timeline.drawn(found, [])
    assert drawn is not None
    assert drawn["legend"][-1]["length"] == "due, held by a pause, 15 min"


@pytest.mark.django_db(databases="__all__")
def test_the_page_of_a_paused_job_leads_to_the_pause(site: Site) -> None:
    django_jobs.pause(queue="default")
    page = site.page(site.make(created_at=T, run_at=at(1)))
    assert "due, held by a pause" in text(page)
    assert "Paused: queue default" in text(page)
    assert f"/admin/django_jobs/pause/{Pause.objects.using(site.alias).get().pk}/change/" in page
    assert "/pause/" not in site.page(site.make("done")).partition('id="content-main"')[2]


@pytest.mark.parametrize(
    "history",
    [3, [3, None, "x"], [{}], [{"at": "x"}], [{"at": "2026-13-01T00:00:00Z"}], [line(1, "raised", 10, 1e300)],
     [{**line(1, "raised", 10), "run": "x", "seconds": "y"}], [line(5, "raised", -100, 3)], [line(1, "raised", 10**6, -3)]],
)  # fmt: skip
@pytest.mark.parametrize("status", ["ready", "running", "dead"])
def test_a_history_that_was_written_by_hand_is_drawn_as_far_as_it_can_be(history: Any, status: str) -> None:
    found = job(status, history, token=2, last_started_at=None, finished_at=at(50) if status == "dead" else None)
    drawn = timeline.drawn(found, found.history)
    assert drawn is None or all(float(bar["width"]) >= 0 and 0 <= float(bar["x"]) <= 1000 for bar in drawn["bars"])


@pytest.mark.django_db(databases="__all__")
def test_the_page_draws_it_without_script_or_another_host(site: Site) -> None:
    marked = "<script>alert(1)</script>"
    kept = [line(1, "raised", 1, 5, marked), line(1, "requeued", 10, 0, marked)]
    found = site.make("dead", history=kept, token=2, created_at=T, last_started_at=at(20), finished_at=at(25))
    page = site.page(found)
    svg = page.partition('<svg class="dj-tl"')[2].partition("</svg>")[0]
    assert [kind for kind in re.findall(r'rect class="dj-tl-(\w+)"', svg) if kind != "lost"] != []
    assert "run 1, 5.0 s, ended as raised: &lt;script&gt;" in svg
    assert marked not in page
    assert "http" not in svg
    assert "2 × failed" in text(page)  # noqa: RUF001 - times
