"""What the overview says somebody should look at."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

import django_jobs
from django_jobs.admin.overview import health, workers
from django_jobs.engines.health import Health, Snapshot
from django_jobs.models import ScheduleState, Worker
from tests.admin.conftest import As
from tests.admin.front import front, stat, tile
from tests.admin.schedules import make
from tests.admin.site import Site, text
from tests.admin.test_overview import worker
from tests.engines.common import on_postgresql

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep other tests' sessions and dead rows out of it."""
    monkeypatch.setattr(health, "_kept", {})
    monkeypatch.setattr(health, "health", lambda engine: Health(1, 0, 8192, None, []))


def concerns(site: Site, **query: str) -> str:
    """Return what is said, without the sentence on where more is found."""
    said = text(front(site, **query).partition('id="concerns"')[2].partition('id="queues"')[0])
    return said.partition(" manage.py jobs doctor")[0].removeprefix("> ").strip()


def test_where_nothing_is_wrong_it_says_so_and_what_was_looked_at(site: Site) -> None:
    worker(site)
    site.make("done")
    site.make(run_at=Now() - timedelta(minutes=5))
    stat(site, 1, done=90, dead=2)
    stat(site, 2, done=90, dead=2)
    make(site, name="weekly")
    said = concerns(site)
    assert "nothing is about to break" in said
    assert "Workers: 1 live, and none is silent; one serves each queue where jobs are due." in said
    assert "the oldest due job waits for 5 min; more than 8 min would be named here." in said
    assert "jobs of a type that no worker knows: none." in said
    assert re.search("Failures: (2 of the 92|0 of the 0) jobs that ended in a minute.", said)
    assert "Dead letters: none." in said
    assert "Schedules: 1, and none is overdue or cannot fire." in said
    assert "few dead rows" in said
    site.make("dead")
    assert "nothing is about to break" not in concerns(site)


def test_nothing_is_said_to_be_well_that_was_not_looked_at(
    site: Site, as_user: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(site)
    assert "no job is due" in concerns(site)
    assert "Schedules:" not in concerns(as_user("view_job", "view_worker"))
    worker(site, "w2")
    monkeypatch.setattr(workers, "WORKERS_SHOWN", 1)
    assert "Workers: 2 live, and none is silent. " in concerns(site)
    django_jobs.pause(queue="elsewhere")
    assert "no worker knows" not in concerns(site), "a job may be parked by a pause"


def test_what_is_well_is_named_below_what_is_not(site: Site, as_user: As) -> None:
    worker(site)
    site.make("dead")
    stat(site, 1, done=90)
    well = re.search("Looked at too, and well: (.*?)[.]", concerns(site))
    assert well
    assert well[1].startswith("workers, lost runs, what waits, failures, schedules")
    seen = concerns(as_user("view_job"))
    assert "well: lost runs, what waits, failures" in seen
    assert "workers" not in seen
    assert "schedules" not in seen


@pytest.mark.parametrize("span", ["1h", "today", "7d"])
def test_runs_that_were_lost_in_the_last_hour_are_named_whatever_the_span(site: Site, span: str) -> None:
    worker(site)
    stat(site, 70, repeats=5)
    assert "Lost runs: none was begun anew in the last hour." in concerns(site, span=span)
    stat(site, 50, repeats=1)
    assert "In the last hour one run ended that had begun anew" in concerns(site, span=span)
    stat(site, 3, repeats=2)
    assert "In the last hour 3 runs ended that had begun anew" in concerns(site, span=span)


def test_many_failures_in_a_minute_are_named(site: Site) -> None:
    worker(site)
    for minutes in (1, 2):
        stat(site, minutes, done=90, dead=10)
    assert "Many jobs fail: 10 of the 100 that ended in a minute." in concerns(site)


@pytest.mark.parametrize(("done", "is_many"), [(8, False), (9, True)])
def test_of_fewer_than_ten_jobs_that_ended_in_a_minute_none_that_failed_is_an_alarm(
    site: Site, done: int, is_many: bool
) -> None:
    worker(site)
    for minutes in (1, 2):
        stat(site, minutes, done=done, dead=1)
    shown = front(site)
    assert ("Many jobs fail" in text(shown)) == is_many
    assert ("dj-tile-bad" in shown.partition('id="tile-failed"')[0].rpartition("<li")[2]) == is_many


def test_workers_that_were_asked_to_claim_nothing_are_not_shown_as_working(site: Site) -> None:
    worker(site, asked=Worker.Asked.QUIET)
    shown = front(site)
    assert '<span class="dj-state dj-state-quiet">quiet</span>' in shown
    assert "dj-tile-bad" in shown.partition('id="tile-workers"')[0].rpartition("<li")[2]
    assert tile(shown, "workers") == "1"
    assert "asked to claim nothing more: 1" in shown
    assert "All live workers were asked to claim nothing more: no job is started." in concerns(site)
    worker(site, "w2")
    assert "All live workers" not in concerns(site)


def test_no_worker_and_silent_workers_are_named(site: Site) -> None:
    assert "No worker is live" in concerns(site)
    worker(site, heartbeat_at=Now() - timedelta(minutes=5))
    assert "No worker is live" in concerns(site)
    assert "One worker is silent" in concerns(site)
    worker(site, "w2", heartbeat_at=Now() - timedelta(minutes=5))
    assert "2 workers are silent" in concerns(site)


def test_a_queue_with_due_jobs_that_no_claiming_worker_serves_is_named_unless_it_is_paused(site: Site) -> None:
    worker(site, queues=["mail"])
    worker(site, "w2", queues=["labels"], asked=Worker.Asked.QUIET)
    for queue in ("mail", "labels"):
        site.make(queue=queue)
    site.make(queue="later", run_at=Now() + timedelta(hours=1))
    assert "No live worker that claims jobs serves: labels, where jobs are due." in concerns(site)
    django_jobs.pause(queue="labels")
    assert "serves:" not in concerns(site)


def test_a_queue_whose_oldest_job_waits_for_long_is_named_unless_it_is_paused(site: Site, settings: Any) -> None:
    worker(site)
    site.make(queue="mail", run_at=Now() - timedelta(minutes=5))
    assert "is due for" not in concerns(site)
    settings.DJANGO_JOBS = {"QUEUE_AGE_ALERT": 400}
    assert "In the queue mail a job is due for 5 min." in concerns(site)
    django_jobs.pause(queue="mail")
    assert "is due for" not in concerns(site)


def test_dead_letters_suspects_and_jobs_of_unknown_types_are_counted(site: Site) -> None:
    worker(site)
    site.make("dead")
    site.make("failed")
    site.make(parked="suspect", suspect=True)
    site.make(parked="type")
    said = concerns(site)
    assert "Dead letters, which run again only when a person says so: 2." in said
    assert "Suspects, which may have killed their process, wait to be run alone: 1." in said
    assert "no worker that met them knows their type: 1." in said
    django_jobs.pause(queue="elsewhere")
    assert "knows their type" not in concerns(site), "they may be what a pause holds"


def test_schedules_that_are_overdue_or_broken_are_named(site: Site) -> None:
    worker(site)
    late = make(site, name="weekly")
    wrong = make(site, name="zebra")
    ScheduleState.objects.using(site.alias).filter(schedule=late).update(
        next_run_at=Now() - timedelta(minutes=2), wake_at=Now() - timedelta(minutes=2)
    )
    ScheduleState.objects.using(site.alias).filter(schedule=wrong).update(error="it cannot be")
    said = concerns(site)
    assert "Schedules that should have fired and have not: weekly." in said
    assert "Schedules that cannot fire: zebra." in said


@on_postgresql
def test_many_dead_rows_and_an_old_snapshot_are_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(site)
    holder = Snapshot("session", 3600.0, 7, "psql", "ada", "idle in transaction", "shop")
    monkeypatch.setattr(health, "health", lambda engine: Health(1_000, 60_000, 8192, holder, []))
    said = concerns(site)
    assert "Dead rows: about 60,000." in said
    assert "Oldest snapshot: 60 min (psql, user ada, process 7, database shop, idle in transaction)." in said
