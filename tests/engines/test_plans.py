"""What PostgreSQL does for each hot statement when nearly all rows are finished: no statement reads the table."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.db import connections, transaction

from django_jobs import deployment, resume
from django_jobs.engines.postgresql_prepared import AFTER
from django_jobs.engines.values import Done, Lane, Run
from django_jobs.workers.lanes import Lanes
from tests.app.jobs import report
from tests.engines import common
from tests.engines.common import TYPES, beside_others, on_postgresql, settled, sql
from tests.plans import explained
from tests.threads import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_jobs.engines.base import Engine
    from tests.threads import Session

pytestmark = [on_postgresql, beside_others]

# As workers ask.
order = partial(common.order, deployment="production")

FILL = """
INSERT INTO django_jobs_job (type, queue, priority, payload, status, parked, run_at, finished_at, token, locked_by,
                             locked_until, idempotency_key, expires_at)
SELECT 'tests.app.jobs.nothing', 'q' || n %% 3, n %% 5, '{{"args": [], "kwargs": {{}}}}', kind.status, kind.parked,
       statement_timestamp() + (n - kind.past) * interval '1 second',
       CASE WHEN kind.status IN ('done', 'dead') THEN statement_timestamp() END, 1,
       CASE WHEN kind.status = 'running' THEN 'w' || n %% 7 || ':' || n END,
       CASE WHEN kind.status = 'running' THEN statement_timestamp() + (n %% 2 - 0.5) * interval '1 hour' END,
       CASE WHEN n %% 10 = 0 THEN kind.status || n || coalesce(kind.parked, '') END,
       CASE WHEN n %% 100 = 0 THEN statement_timestamp() + (n %% 200 - 50) * interval '1 hour' END
  FROM (VALUES {}) kind (status, parked, total, past), generate_series(1, kind.total) n
"""
# How many of each kind, and how many of those are due.
FINISHED = FILL.format("('done', NULL, 100000, 100000), ('dead', NULL, 2000, 2000)")
UNFINISHED = FILL.format(
    "('ready', NULL, 10000, 6000), ('ready', 'type', 5000, 4000), ('running', NULL, 500, 500), "
    "('ready', 'suspect', 100, 80)"
)
# Jobs that wait in a paused queue, met by a claim of those who know them or not, and jobs of a paused type.
PAUSED = """
INSERT INTO django_jobs_job (type, queue, priority, payload, parked, run_at)
SELECT kind.type, kind.queue, n %% 5, '{"args": [], "kwargs": {}}', kind.parked,
       statement_timestamp() - n * interval '1 second'
  FROM (VALUES ('tests.app.jobs.nothing', 'shut', NULL, 20000), ('tests.app.jobs.nothing', 'shut', 'type', 20000),
               ('tests.app.jobs.report', 'q1', 'pause', 20000), ('tests.app.jobs.report', 'q9', 'type', 20000),
               ('tests.app.jobs.nothing', 'q9', 'pause', 30))
       kind (type, queue, parked, total), generate_series(1, kind.total) n
"""
PAUSES = "INSERT INTO django_jobs_pause (kind, name) VALUES ('queue', 'shut'), ('type', 'tests.app.jobs.report')"
RUNNING = "SELECT id, token, locked_by FROM django_jobs_job WHERE status = 'running' ORDER BY run_at LIMIT 100"


def plans(engine: Engine, call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return every node of the plan of every statement of `call`, each run under EXPLAIN ANALYZE and undone."""
    nodes: list[dict[str, Any]] = []

    def explain(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        nodes.extend(explained(statement, parameters, context))
        return execute(_NOTHING, None, many, context)

    with transaction.atomic(using=engine.alias):
        with connections[engine.alias].execute_wrapper(explain), suppress(IndexError, TypeError, FieldDoesNotExist):
            call()  # which is given no rows, and may ask for one
        transaction.set_rollback(True, using=engine.alias)
    assert nodes, "no statement was sent"
    return nodes


_NOTHING = "SELECT 1 WHERE false"


def read(nodes: list[dict[str, Any]]) -> int:
    """Return how many rows of the table were read, those thrown away included."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0))
        * node["Actual Loops"]
        for node in nodes
        if node.get("Relation Name") == "django_jobs_job" and "Scan" in node["Node Type"]
    )


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


LANES = tuple(Lane(f"q{queue}", priority, 0.0, 0) for queue in range(3) for priority in reversed(range(5)))
SHUT = (*LANES, *(Lane("shut", priority, 0.0, 0) for priority in reversed(range(5))))
# A thousand seconds of what was claimed are left out.
PLACED = tuple(lane._replace(due=time.time() - 1000.0) for lane in LANES)
HOT: dict[str, tuple[Callable[[Engine, list[Run]], Any], set[str], int]] = {
    "claim": (lambda engine, runs: engine.claim(order(20, lanes=LANES)), {"django_jobs_claim"}, 60),
    "claim of one": (lambda engine, runs: engine.claim(order(1, lanes=LANES)), {"django_jobs_claim"}, 10),
    "claim of the oldest": (
        lambda engine, runs: engine.claim(order(20, lanes=LANES, oldest=5)),
        {"django_jobs_claim"},
        150,
    ),
    "claim from a place on": (lambda engine, runs: engine.claim(order(20, lanes=PLACED)), {"django_jobs_claim"}, 60),
    "claim of unknown types": (
        lambda engine, runs: engine.claim(order(20, types=(), lanes=LANES)),
        {"django_jobs_claim"},
        60,
    ),
    "next_due": (lambda engine, runs: engine.next_due(LANES), {"django_jobs_claim"}, 20),
    "claim_parked": (lambda engine, runs: engine.claim_parked(order(20)), {"django_jobs_parked"}, 80),
    "claim_suspect": (lambda engine, runs: engine.claim_suspect(order()), {"django_jobs_suspects"}, 220),
    "suspects_due": (lambda engine, runs: engine.suspects_due(None, TYPES, 2), {"django_jobs_suspects"}, 20),
    "look": (lambda engine, runs: engine.look(None, TYPES), {"django_jobs_claim", "django_jobs_parked"}, 40),
    "look for unknown types": (lambda engine, runs: engine.look(None, ("none",)), {"django_jobs_claim"}, 40),
    "complete": (lambda engine, runs: engine.complete([Done(run, None) for run in runs]), set(), 2_200),
    "settle": (lambda engine, runs: engine.settle([settled(run) for run in runs], 10), set(), 2_200),
    "extend": (lambda engine, runs: engine.extend(runs, 30), set(), 2_200),
    "progress": (lambda engine, runs: engine.store_progress([(run, "{}") for run in runs]), set(), 2_200),
    "ended_by": (lambda engine, runs: engine.ended_by(runs), set(), 2_200),
    "expired": (lambda engine, runs: engine.expired(500), {"django_jobs_running"}, 700),
    "expired_exist": (lambda engine, runs: engine.expired_exist(), {"django_jobs_running"}, 600),
    "held_by": (lambda engine, runs: engine.held_by("w3"), {"django_jobs_running"}, 200),
    "cancel_expired": (lambda engine, runs: engine.cancel_expired(500), {"django_jobs_expiring"}, 250),
    "holders": (lambda engine, runs: engine.holders([f"done{n}0" for n in range(100)]), {"django_jobs_key"}, 110),
    "holder": (lambda engine, runs: engine.holder("done10"), {"django_jobs_key"}, 5),
}


KNOWN = (report.name, *TYPES)
PARKED: dict[str, tuple[Callable[[Engine], Any], int]] = {
    "claim": (lambda engine: engine.claim(order(20, types=KNOWN, lanes=SHUT, oldest=5)), 150),
    "claim_parked": (lambda engine: engine.claim_parked(order(20, types=KNOWN)), 80),
    "claim_parked of what is paused": (
        lambda engine: engine.claim_parked(order(20, types=KNOWN, queues=("shut",))),
        40,
    ),
    "claim_parked of a paused type": (lambda engine: engine.claim_parked(order(20, types=(report.name,))), 0),
    "look": (lambda engine: engine.look(None, KNOWN), 60),
    "look at what is paused": (lambda engine: engine.look(("shut",), KNOWN), 60),
    "look for a paused type": (lambda engine: engine.look(("none",), (report.name,)), 60),
}


@pytest.fixture
def worker(engine: Engine) -> Iterator[Session]:
    """Return a session as workers have it, in a transaction that is undone: on a table of which nothing is known."""
    with session(engine.alias) as found:
        found.do(lambda: engine.prepare(30))
        found.begin()
        found.sql("TRUNCATE django_jobs_job, django_jobs_pause")
        found.do(lambda: deployment.begin(engine, "production"))
        yield found


STATISTICS = ["fresh", "of an empty table", "of an emptied table", "of finished jobs only", "none"]


@pytest.mark.parametrize("statistics", STATISTICS)
def test_no_hot_statement_reads_the_table_or_the_backlog(engine: Engine, worker: Session, statistics: str) -> None:
    if statistics == "of an emptied table":
        worker.sql(FINISHED)
        worker.sql("DELETE FROM django_jobs_job")
    if statistics.startswith("of an empt"):
        worker.sql("ANALYZE django_jobs_job")
    worker.sql(FINISHED)
    if statistics == "of finished jobs only":
        worker.sql("ANALYZE django_jobs_job")
    worker.sql(UNFINISHED)
    if statistics == "fresh":
        worker.sql("ANALYZE django_jobs_job")
    runs = [Run(*found) for found in worker.sql(RUNNING)]
    for name, (call, expected, most) in HOT.items():
        nodes = worker.do(partial(plans, engine, partial(call, engine, runs)))
        kinds = {node["Node Type"] for node in nodes if node.get("Relation Name") == "django_jobs_job"}
        assert "Seq Scan" not in kinds, name
        assert expected <= indexes(nodes), name
        assert 0 < read(nodes) <= most, name


READ = "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'django_jobs_job'"


@pytest.mark.parametrize(
    "small", ["", "('running', NULL, 3000, 3000), ('done', NULL, 50, 50)", "('ready', NULL, 3000, 3000)"]
)
def test_a_plan_kept_since_the_table_was_small_reads_no_more_when_it_has_grown(
    engine: Engine, worker: Session, small: str
) -> None:
    if small:
        worker.sql(FILL.format(small))
        worker.sql("ANALYZE django_jobs_job")
    nobody = [Run(job_id, 1, "w1:1") for job_id in range(1, 101)]
    for _ in range(AFTER + 2):
        for call, *_ in HOT.values():
            worker.sql("SAVEPOINT before")
            with suppress(FieldDoesNotExist):
                worker.do(partial(call, engine, nobody))
            worker.sql("ROLLBACK TO SAVEPOINT before")
    worker.sql("DELETE FROM django_jobs_job")
    worker.sql(FINISHED)
    worker.sql(UNFINISHED)
    runs = [Run(*found) for found in worker.sql(RUNNING)]
    for name, (call, _, most) in HOT.items():
        worker.sql("SAVEPOINT before")
        (before,) = worker.sql(READ)
        worker.do(partial(call, engine, runs))
        (after,) = worker.sql(READ)
        worker.sql("ROLLBACK TO SAVEPOINT before")
        assert after[0] == before[0], f"{name} read the whole table"
        assert after[1] - before[1] <= 2 * most, name


@pytest.mark.parametrize("statistics", ["fresh", "of finished jobs only", "none"])
def test_nothing_that_a_pause_holds_back_is_read(engine: Engine, worker: Session, statistics: str) -> None:
    worker.sql(FINISHED)
    if statistics == "of finished jobs only":
        worker.sql("ANALYZE django_jobs_job")
    worker.sql(UNFINISHED)
    worker.sql(PAUSED)
    worker.sql(PAUSES)
    if statistics == "fresh":
        worker.sql("ANALYZE django_jobs_job, django_jobs_pause")
    for name, (call, most) in PARKED.items():
        nodes = worker.do(partial(plans, engine, partial(call, engine)))
        assert "Seq Scan" not in {n["Node Type"] for n in nodes if n.get("Relation Name") == "django_jobs_job"}, name
        assert read(nodes) <= most, name


# Of rows: a write makes others.
VERSIONS = "SELECT count(*), sum(hashtext(concat(ctid, xmin, xmax))) FROM django_jobs_job"


def test_the_end_of_a_pause_writes_no_job_and_200000_of_its_jobs_are_claimed_by_reading_few(
    engine: Engine, worker: Session
) -> None:
    worker.sql(PAUSED.replace("'pause', 20000", "'pause', 200000"))
    worker.sql(PAUSES)
    before = worker.sql(VERSIONS)
    assert worker.do(lambda: resume(type=report))
    assert worker.sql(VERSIONS) == before
    nodes = worker.do(partial(plans, engine, lambda: engine.claim_parked(order(20, types=(report.name,)))))
    assert 0 < read(nodes) <= 80
    assert worker.do(lambda: len(engine.claim_parked(order(20, types=(report.name,))).jobs)) == 20


BACKLOG = """
INSERT INTO django_jobs_job (type, queue, priority, payload, run_at)
SELECT 'tests.app.jobs.nothing', 'default', n %% 2, '{"args": [], "kwargs": {}}',
       statement_timestamp() - n * interval '1 millisecond'
  FROM generate_series(1, %s) n
"""
TWO = (Lane("default", 1, 0.0, 0), Lane("default", 0, 0.0, 0))
CLAIMS: dict[str, Callable[[Engine], Any]] = {
    "claim": lambda engine: engine.claim(order(100, lanes=TWO, oldest=25)),
    "claim of one": lambda engine: engine.claim(order(1, lanes=TWO)),
    "look": lambda engine: engine.look(None, TYPES),
    "next_due": lambda engine: engine.next_due(TWO),
}


@pytest.mark.parametrize("waiting", [10, 1_000_000])
def test_a_claim_reads_the_index_and_sorts_no_backlog_whether_10_wait_or_a_million(
    engine: Engine, worker: Session, waiting: int
) -> None:
    worker.sql(FINISHED)
    worker.sql(BACKLOG, waiting)
    worker.sql("ANALYZE django_jobs_job")
    for name, call in CLAIMS.items():
        nodes = worker.do(partial(plans, engine, partial(call, engine)))
        scans = {n["Node Type"] for n in nodes if n.get("Relation Name") == "django_jobs_job"}
        assert not scans & {"Seq Scan", "Bitmap Heap Scan"}, (name, scans)
        assert "django_jobs_claim" in indexes(nodes), name
        assert read(nodes) <= 700, name
        assert max((n["Actual Rows"] for n in nodes if "Sort" in n["Node Type"]), default=0) <= 50, name


def test_an_old_snapshot_makes_no_claim_read_again_what_was_claimed(engine: Engine) -> None:
    deployment.begin(engine, "production")
    sql(engine, BACKLOG, 20_000)
    lanes = Lanes(0.25)
    with session(engine.alias) as other:
        other.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.sql("SELECT 1 FROM django_jobs_job LIMIT 1")
        lanes.look(engine.look(None, TYPES))
        while found := engine.claim(order(500, lanes=lanes.in_turn(), oldest=lanes.oldest_of(500))).jobs:
            lanes.claimed(found, lanes.oldest_of(500))
        sql(engine, BACKLOG.replace("'1 millisecond'", "'1 microsecond'"), 10)
        from_the_beginning = blocks(engine, TWO)
        from_its_place = blocks(engine, lanes.in_turn())
    assert from_the_beginning > 400
    assert from_its_place < from_the_beginning / 4


def blocks(engine: Engine, lanes: Sequence[Lane]) -> int:
    """Return how many pages a claim of one job touches."""
    nodes = plans(engine, lambda: engine.claim(order(1, lanes=tuple(lanes))))
    return int(nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"])
