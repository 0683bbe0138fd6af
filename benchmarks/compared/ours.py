"""Trials of django_jobs alone, with rows made where the database is."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.compared.peer import listed
from benchmarks.compared.servers import Servers
from benchmarks.compared.trial import Trial

PEER = listed()["django_jobs"]

# Finished within the last day, which is as long as they stay in this table by default.
FINISH = """
INSERT INTO django_jobs_job (type, payload, status, token, created_at, run_at, started_at, last_started_at, finished_at)
SELECT 'benchmarks.peers.django_jobs.jobs.counted', '{"args": [0], "kwargs": {}}', 'done', 1, at, at, at, at, at
  FROM (SELECT now() - n * interval '20 hours' / %(rows)s AS at FROM generate_series(%(rows)s::int, 1, -1) n) past
"""
# The number of a job follows from its id, so that no two that wait have the same.
WAIT = """
INSERT INTO django_jobs_job (id, type, payload)
SELECT id, 'benchmarks.peers.django_jobs.jobs.counted',
       jsonb_build_object('args', jsonb_build_array(%(first)s + id %% %(numbers)s), 'kwargs', '{}'::jsonb)
  FROM (SELECT nextval(pg_get_serial_sequence('django_jobs_job', 'id')) AS id FROM generate_series(1, %(rows)s)) waiting
"""
READY = "SELECT count(*) FROM django_jobs_job WHERE status = 'ready' AND parked IS NULL"
WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"
DEAD = (
    "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables WHERE relname LIKE 'django_jobs_%'"
)
FORGET = "SELECT pg_stat_reset()"
CHUNK = 1_000_000


def trial(servers: Servers, jobs: int, handler: str = "nothing", keep: str = "") -> Trial:
    return Trial(PEER, Path(sys.executable), servers, jobs, handler=handler, keep=keep)


def finish(here: Trial, rows: int) -> None:
    for first in range(0, rows, CHUNK):
        here.connection.execute(FINISH, {"rows": min(CHUNK, rows - first)})


def wait(here: Trial, rows: int, first: int = 0) -> None:
    """Have so many jobs wait, with numbers from `first` on."""
    here.connection.execute(WAIT, {"rows": rows, "first": first, "numbers": here.jobs - first})
    here.connection.execute(FORGET)


def ready(here: Trial) -> int:
    return int(_value(here, READY))


def wal(here: Trial) -> float:
    return _value(here, WAL)


def dead(here: Trial) -> float:
    """Return how many rows were left dead since jobs were last made to wait."""
    return _value(here, DEAD)


def _value(here: Trial, statement: str) -> float:
    row = here.connection.execute(statement.encode()).fetchone()
    assert row is not None
    return float(row[0])
