"""What other programs are told over HTTP: whether jobs are run, and the numbers that Prometheus keeps."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobs import pause
from django_jobs.models import Effect, Job, Stat
from django_jobs.models.clock import Clock, database_now, for_row
from django_jobs.models.stat import CLASSES
from django_jobs.queue import stats
from tests.acts import dead
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, alter, claim, enqueue, on_postgresql, sql
from tests.monitoring.common import due, silence, worker
from tests.test_docs import ROOT, blocks
from tests.test_stats import make

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone
SECRET = "hunter2-of-a-payload"


def health(query: str = "") -> tuple[int, Any]:
    found = Client().get(f"/jobs/health/{query}")
    assert found["Cache-Control"].startswith("max-age=0")
    return found.status_code, json.loads(found.content)


def test_health_is_well_with_a_live_worker_and_says_how_long_the_oldest_job_waits(engine: Engine) -> None:
    worker(engine)
    due(engine, 5)
    code, found = health()
    assert (code, found["ok"], found["problems"], found["live_workers"]) == (200, True, [], 1)
    assert 5 <= found["oldest_due_seconds"] < 60


def test_health_is_unwell_without_a_worker_or_with_one_that_is_silent(engine: Engine) -> None:
    assert health() == (
        503,
        {"ok": False, "problems": ["no live worker that claims jobs"], "live_workers": 0, "oldest_due_seconds": 0.0},
    )
    silence(engine, worker(engine))
    assert health()[0] == 503
    worker(engine, id="w2", asked="quiet")
    assert health()[0] == 503


def test_health_is_unwell_when_a_job_waits_too_long_unless_its_queue_is_paused(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"QUEUE_AGE_ALERT": 50}
    worker(engine)
    due(engine, 60, queue="mail")
    code, found = health()
    assert (code, found["problems"]) == (503, ["the oldest due job of the queue mail waits for more than 50 s"])
    pause(queue="mail")
    assert health()[0] == 200


def test_health_can_be_asked_of_some_queues(engine: Engine) -> None:
    worker(engine, queues=["default"])
    due(engine, 5, queue="mail")
    assert health()[1]["problems"] == ["no live worker serves the queue mail, where jobs are due"]
    assert health("?queues=default")[0] == 200
    assert health("?queues=mail,default")[0] == 503
    assert health("?queues=mail")[1]["problems"] == ["no live worker that claims jobs"]
    assert health("?queues=a%20b")[0] == 400


def test_health_takes_few_questions(engine: Engine) -> None:
    worker(engine)
    enqueue(3)
    with CaptureQueriesContext(connections[engine.alias]) as queries:
        assert health()[0] == 200
    assert len(queries) < 10


def test_neither_view_is_changed_by_anybody(engine: Engine) -> None:
    assert Client().post("/jobs/health/").status_code == 405
    assert Client().post("/jobs/metrics/").status_code == 405


@on_postgresql
def test_a_database_that_does_not_answer_is_unwell_and_its_words_are_left_out(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(engine, "ALTER TABLE django_jobs_worker RENAME TO gone")
    assert health() == (503, {"ok": False, "problems": ["the jobs' database does not answer"]})
    pytest.importorskip("prometheus_client")
    assert metrics() == {"django_jobs_up": {(): 0.0}}


def metrics() -> dict[str, dict[tuple[str, ...], float]]:
    """Return what Prometheus would read: by name of the sample, its values by those of its labels."""
    from prometheus_client.parser import text_string_to_metric_families

    found = Client().get("/jobs/metrics/")
    assert found.status_code == 200
    assert found["Content-Type"].startswith("text/plain")
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(found.content.decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(value for _name, value in sorted(sample.labels.items()))] = (
                sample.value
            )
    return samples


def test_without_the_package_prometheus_is_told_what_is_missing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = Client().get("/jobs/metrics/")
    assert (found.status_code, b'pip install "django_jobs[prometheus]"' in found.content) == (501, True)


def test_gauges_are_what_the_tables_hold(engine: Engine) -> None:
    pytest.importorskip("prometheus_client")
    worker(engine, threads=4)
    silence(engine, worker(engine, id="w2", threads=8))
    dead(engine, 2)
    enqueue(3)
    claim(engine, 2)
    nothing.using(queue="mail", delay=60).enqueue()
    alter(
        engine, Job.objects.using(engine.alias).ready().get(queue="default").pk, run_at=Clock() - timedelta(seconds=30)
    )
    pause(queue="mail")
    Effect.objects.using(engine.alias).create(kind="outside", key="charge:1")
    found = metrics()
    assert found["django_jobs_up"] == {(): 1.0}
    expected = {("default", "due"): 1, ("default", "running"): 2, ("mail", "later"): 1}
    assert {key: value for key, value in found["django_jobs_depth"].items() if value} == expected
    assert 30 <= found["django_jobs_oldest_due_seconds"]["default",] < 60
    assert found["django_jobs_oldest_due_seconds"]["mail",] == 0
    assert found["django_jobs_running"] == {(nothing.name,): 2}
    assert found["django_jobs_dead_letters"] == {("dead",): 2, ("failed",): 0}
    assert found["django_jobs_workers"] == {("live",): 1, ("silent",): 1}
    assert found["django_jobs_worker_threads"] == {(): 4}
    assert found["django_jobs_pauses"] == {("queue",): 1, ("type",): 0}
    assert found["django_jobs_effects_may_have_happened"] == {(): 1}
    assert ("django_jobs_table_bytes" in found) == (engine.name == "postgresql")


def test_counters_and_histograms_are_the_sums_of_the_statistics_and_stay_when_those_are_deleted(engine: Engine) -> None:
    pytest.importorskip("prometheus_client")
    counted = {
        "done": 3,
        "retried": 2,
        "slots_missed": 1,
        "run_seconds": 1.5,
        "runs": [1, 2, *[0] * (len(CLASSES) - 2), 4],
    }
    make(engine, 40, **counted)
    make(engine, 0.01, incarnation="b2", **counted)
    before = metrics()
    assert before["django_jobs_done_total"] == {("default", "t"): 6}
    assert before["django_jobs_retries_total"] == {("default", "t"): 4}
    assert before["django_jobs_slots_missed_total"] == {("default", "t"): 2}
    buckets = before["django_jobs_run_seconds_bucket"]
    assert [buckets[end, "default", "t"] for end in ("0.001", "0.0025", "3600.0", "+Inf")] == [2, 6, 6, 14]
    assert before["django_jobs_run_seconds_count"] == {("default", "t"): 14}
    assert before["django_jobs_run_seconds_sum"] == {("default", "t"): 3}
    assert before["django_jobs_wait_seconds_count"] == {("default", "t"): 6}
    while stats.fold(engine):
        pass
    assert stats.forget(engine, 30 * 86400.0) == 1
    after = metrics()
    for name in before:
        if name.endswith(("_total", "_bucket", "_sum", "_count")):
            assert after[name] == before[name], name


def test_names_are_escaped_and_nothing_secret_is_told(engine: Engine) -> None:
    pytest.importorskip("prometheus_client")
    odd = 'a"b\\c\nd{}'
    minute = for_row(database_now(engine.alias).replace(second=0, microsecond=0), engine.alias)
    Stat.objects.using(engine.alias).create(minute=minute, queue="q", type=odd, done=7, runs=[], waits=[])
    job = leave_effect.using(idempotency_key=SECRET).enqueue(SECRET)
    alter(engine, job.pk, last_error=SECRET, result=SECRET)
    pause(type=nothing, why=SECRET, by=SECRET)
    worker(engine, host=SECRET)
    assert metrics()["django_jobs_done_total"] == {("q", odd): 7}
    assert SECRET not in Client().get("/jobs/metrics/").content.decode()
    assert SECRET not in str(health())


def test_a_scrape_takes_few_questions(engine: Engine) -> None:
    pytest.importorskip("prometheus_client")
    worker(engine)
    enqueue(3)
    with CaptureQueriesContext(connections[engine.alias]) as queries:
        metrics()
    assert len(queries) < 25


@on_postgresql
def test_a_scrape_that_takes_too_long_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client")
    from django_jobs.monitoring import metrics as collected

    monkeypatch.setattr(collected, "SECONDS", 0.05)
    monkeypatch.setattr(collected, "totals", lambda engine: sql(engine, "SELECT pg_sleep(30)"))
    assert metrics() == {"django_jobs_up": {(): 0.0}}
    with pytest.raises(OperationalError):
        sql(engine, "SET LOCAL statement_timeout = 1; SELECT pg_sleep(1)")


@on_postgresql
def test_every_metric_is_documented_and_the_rules_of_the_page_ask_for_those_that_are_there(engine: Engine) -> None:
    pytest.importorskip("prometheus_client")
    from django_jobs.monitoring.metrics import JobsCollector

    families = {found.name: found.type for found in JobsCollector().collect()}
    there = {f"{name}_total" if kind == "counter" else name for name, kind in families.items()}
    with_snapshot = "django_jobs_oldest_snapshot_seconds"  # only while somebody holds one
    page = (ROOT / "docs" / "monitoring.md").read_text()
    documented = set()
    for cell in re.findall(r"^\| (`django_jobs_.*?) \|", page, re.M):
        for before, choices, after in re.findall(r"`(django_jobs_\w*)(?:\{([\w,]+)\})?(\w*)`", cell):
            documented |= {before + choice + after for choice in choices.split(",")}
    assert documented == there | {with_snapshot}
    (rules,) = blocks("docs/monitoring.md", "yaml")
    asked = set(re.findall(r"django_jobs_\w+", rules))
    assert (asked - there, len(asked)) == (set(), 3)
