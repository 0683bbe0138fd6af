"""What Prometheus reads, found out when it asks: true whichever process answers, and nothing is kept in any.

It needs the package prometheus_client. Add the collector to a registry of the project's own, or mount django_jobs.urls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from django.db import DatabaseError, InterfaceError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from django_jobs import report
from django_jobs.engines import engine, jobs_alias
from django_jobs.engines.base import Engine
from django_jobs.engines.bounded import TooSlow, bounded
from django_jobs.engines.depths import depths
from django_jobs.engines.health import health
from django_jobs.models import Alert, StatTotal
from django_jobs.models.stat import CLASSES
from django_jobs.queue.stat_totals import totals

SECONDS = 5.0
MOST = 10_000
ENDS = [*map(repr, CLASSES), "+Inf"]
LABELS = ("queue", "type")
COUNTERS = {
    "done": ("done", "Runs that were the end of a job, done."),
    "failed": ("failed", "Runs that were the end of a job, failed for good by its own word."),
    "dead": ("dead", "Jobs that ended because their attempts, or losses, were used up."),
    "cancelled": ("cancelled", "Runs after which a job was cancelled."),
    "retried": ("retries", "Runs after which a job is to run again."),
    "stopped": ("stopped", "Runs that were stopped by a deploy or a person, and go on later."),
    "repeats": ("repeats", "Runs after one that was lost."),
    "lost_leases": ("lost_leases", "Runs whose outcome was refused, because the job was no longer theirs."),
    "lease_expirations": ("lease_expirations", "Runs that were taken back because their lease ran out."),
    "slots_missed": ("slots_missed", "Slots of schedules for which no job was made, because they came too late."),
}


class JobsCollector:
    """Asks a few bounded questions at each scrape. When they cannot be answered, `django_jobs_up` is 0 and alone."""

    def describe(self) -> list[Metric]:
        return []  # or it would be asked while it is registered

    def collect(self) -> Iterator[Metric]:
        try:
            with bounded(jobs_alias(), SECONDS):
                found = list(_metrics(engine(jobs_alias())))
        except (DatabaseError, InterfaceError, TooSlow):
            found = []
        yield GaugeMetricFamily("django_jobs_up", "Whether the jobs' database answered.", value=float(bool(found)))
        yield from found


def _metrics(engine: Engine) -> Iterator[Metric]:
    yield from _depths(engine)
    yield _gauge("running", "Jobs that run, by type.", ["type"], _running(engine))
    yield from _workers(engine)
    yield from _ended(totals(engine))
    yield from _for_people(engine)
    yield from _tables(engine)


def _gauge(name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    found = GaugeMetricFamily(f"django_jobs_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        found.add_metric(list(key), value)
    return found


def _depths(engine: Engine) -> Iterator[Metric]:
    found = depths(engine, MOST)
    states = ("due", "later", "parked", "suspects", "running")
    of_queues = {(queue.queue, state): getattr(queue, state) for queue in found.queues for state in states}
    yield _gauge(
        "depth", f"Jobs of a queue by state; {MOST} stands for that many or more.", ["queue", "state"], of_queues
    )
    ages = {(queue.queue,): queue.oldest or 0.0 for queue in found.queues}
    yield _gauge("oldest_due_seconds", "For how long the oldest due job of a queue waits.", ["queue"], ages)
    ended = {("dead",): found.dead, ("failed",): found.failed}
    yield _gauge("dead_letters", f"Jobs that want a person; {MOST} stands for that many or more.", ["status"], ended)


def _running(engine: Engine) -> dict[tuple[str], int]:
    with engine.connection.cursor() as cursor:
        cursor.execute(
            "SELECT type, count(*) FROM (SELECT type FROM django_jobs_job WHERE status = 'running' LIMIT %s) found GROUP BY type",
            [MOST],
        )
        return {(name,): number for name, number in cursor.fetchall()}


def _workers(engine: Engine) -> Iterator[Metric]:
    rows = report.workers(engine.alias)
    live = [row for row in rows if row["live"]]
    states = {("live",): len(live), ("silent",): len(rows) - len(live)}
    yield _gauge("workers", "Worker processes, by whether their heartbeat comes.", ["state"], states)
    yield _gauge(
        "worker_threads", "Threads of the live worker processes.", [], {(): sum(row["threads"] for row in live)}
    )


def _ended(sums: Sequence[StatTotal]) -> Iterator[Metric]:
    for field, (name, text) in COUNTERS.items():
        counter = CounterMetricFamily(f"django_jobs_{name}", text, labels=LABELS)
        for row in sums:
            counter.add_metric([row.queue, row.type], getattr(row, field))
        yield counter
    yield _histogram("run_seconds", "How long runs took.", sums, "runs", "run_seconds")
    yield _histogram(
        "wait_seconds", "How long jobs that were due waited until they were claimed.", sums, "waits", "wait_seconds"
    )


def _histogram(name: str, text: str, sums: Sequence[StatTotal], classes: str, total: str) -> Metric:
    found = HistogramMetricFamily(f"django_jobs_{name}", text, labels=LABELS)
    for row in sums:
        counts = [*getattr(row, classes), *[0] * len(ENDS)][: len(ENDS)]
        buckets: list[Any] = list(zip(ENDS, accumulate(counts), strict=True))
        found.add_metric([row.queue, row.type], buckets=buckets, sum_value=getattr(row, total))
    return found


def _for_people(engine: Engine) -> Iterator[Metric]:
    pauses = [row["kind"] for row in report.pauses()]
    in_force = {("queue",): pauses.count("queue"), ("type",): pauses.count("type")}
    yield _gauge("pauses", "Pauses in force.", ["kind"], in_force)
    states = {(state,): number for state, number in report.schedule_counts(engine.alias).items()}
    yield _gauge("schedules", "Schedules, by what a person should know of them.", ["state"], states)
    unanswered = report.may_have_happened(engine.alias)["effects"]
    yield _gauge("effects_may_have_happened", "Effects outside the database without an answer.", [], {(): unanswered})
    alerts = list(Alert.objects.using(engine.alias).open().values_list("kind", flat=True))
    kinds = {(str(kind),): alerts.count(kind) for kind in Alert.Kind.values}
    yield _gauge("alerts_open", "Alerts that were raised and not cleared yet.", ["kind"], kinds)


def _tables(engine: Engine) -> Iterator[Metric]:
    found = health(engine)
    if found is None:
        return
    rows = {("live",): found.live_rows, ("dead",): found.dead_rows}
    yield _gauge("table_rows", "Rows of the table of jobs, as the database estimates.", ["state"], rows)
    yield _gauge("table_bytes", "Size of the table of jobs, with its indexes.", [], {(): found.size})
    held = 0.0 if found.snapshot is None else found.snapshot.seconds
    if held is not None:
        yield _gauge("oldest_snapshot_seconds", "How old the snapshot is that keeps dead rows.", [], {(): held})
    yield _gauge("archive_partitions", "Partitions of the archive.", [], {(): len(found.partitions)})
    yield _gauge("archive_bytes", "Size of the archive.", [], {(): sum(part.size for part in found.partitions)})
