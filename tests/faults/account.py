"""What became of the jobs of a storm, counted in plain SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connections

from django_jobs.engines.causes import LOSSES, OUTCOME_LOST
from tests.app.storm_jobs import book, pay, send_receipt

# Whose effects are to be there exactly once.
EXACT = (pay, book)

_STORED = "SELECT type, count(*), count(*) FILTER (WHERE status = 'done') FROM django_jobs_job GROUP BY type"
_RUNS = "SELECT COALESCE(sum(token), 0)::bigint FROM django_jobs_job"
# Each was a run whose return or raise, if there was one, is not known; another came after it.
_REPEATS = """
    SELECT line ->> 'cause', count(*) FROM django_jobs_job job, jsonb_array_elements(job.history) AS line
     WHERE line ->> 'cause' = ANY (%s) AND (line ->> 'run')::bigint < job.token GROUP BY 1 ORDER BY 1"""
_EFFECTS = "SELECT split_part(key, ':', 1), count(*), count(DISTINCT key) FROM app_effect GROUP BY 1"
# Jobs that are stored, or whose enqueue returned, and that are not done.
_MISSING = """
    SELECT count(*) FROM (SELECT unnest(%s::bigint[]) AS id UNION SELECT id FROM django_jobs_job) AS given
     WHERE NOT EXISTS (SELECT 1 FROM django_jobs_job job WHERE job.id = given.id AND job.status = 'done')"""
_UNDONE = """
    SELECT id, type, status, parked, (run_at - clock_timestamp())::text AS due_in, attempts, losses, token, locked_by,
           (locked_until - clock_timestamp())::text AS lease_left, last_started_at::text, history
      FROM django_jobs_job WHERE status <> 'done' ORDER BY id LIMIT 5"""
_BUSY = """
    SELECT pid, application_name, state, (clock_timestamp() - xact_start)::text AS since, query
      FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()"""
# Jobs that are done and left no effect.
_WITHOUT = """
    SELECT count(*) FROM django_jobs_job job WHERE status = 'done' AND NOT EXISTS (
        SELECT 1 FROM app_effect effect
         WHERE key = concat(reverse(split_part(reverse(job.type), '.', 1)), ':', job.payload -> 'args' ->> 0))"""
# Jobs of a type beyond the first with the same number.
_TWICE = """
    SELECT COALESCE(sum(jobs - 1), 0)::bigint FROM (
        SELECT count(*) AS jobs FROM django_jobs_job GROUP BY type, payload -> 'args' ->> 0) AS counted"""
# Numbers with a job of the first type that is done, and with none of the second.
_WITHOUT_OTHER = """
    SELECT count(DISTINCT payload -> 'args' ->> 0) FROM django_jobs_job job
     WHERE type = %s AND status = 'done' AND NOT EXISTS (
        SELECT 1 FROM django_jobs_job other
         WHERE other.type = %s AND other.payload -> 'args' ->> 0 = job.payload -> 'args' ->> 0)"""
# Numbers with a job of the first type, and with none of the second that is done: what rolled back left something.
_WITHOUT_DONE = """
    SELECT count(DISTINCT payload -> 'args' ->> 0) FROM django_jobs_job job
     WHERE type = %s AND NOT EXISTS (
        SELECT 1 FROM django_jobs_job other
         WHERE other.type = %s AND other.status = 'done' AND other.payload -> 'args' ->> 0 = job.payload -> 'args' ->> 0)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    jobs: int
    done: int
    runs: int
    repeats: dict[str, int]
    effects: int
    lost: int
    doubled: int

    @classmethod
    def of(cls, alias: str, stored: list[int]) -> Account:
        """Count; `stored` are the ids of the jobs whose enqueue returned."""
        jobs = {row[0]: row for row in _ask(alias, _STORED)}
        kinds = {row[0]: row for row in _ask(alias, _EFFECTS)}
        count, done = sum(row[1] for row in jobs.values()), sum(row[2] for row in jobs.values())
        exact = [kinds.get(_short(job.name), ("", 0, 0)) for job in EXACT]
        without_receipt = _ask(alias, _WITHOUT_OTHER, pay.name, send_receipt.name)[0][0]
        without_payment = _ask(alias, _WITHOUT_DONE, send_receipt.name, pay.name)[0][0]
        return cls(
            jobs=count,
            done=done,
            runs=_ask(alias, _RUNS)[0][0],
            repeats=dict(_ask(alias, _REPEATS, [*LOSSES, OUTCOME_LOST])),
            effects=sum(row[1] for row in kinds.values()),
            lost=_ask(alias, _MISSING, stored)[0][0] + _ask(alias, _WITHOUT)[0][0] + without_receipt,
            doubled=sum(row[1] - row[2] for row in exact) + _ask(alias, _TWICE)[0][0] + without_payment,
        )

    @property
    def at_least_once(self) -> int:
        """How many more than one a job were left by those that promise no more than that."""
        return self.effects - self.done


def undone(alias: str) -> list[tuple[Any, ...]]:
    """Return something of the first few jobs that are not done, and of the sessions that are in a transaction."""
    found = _ask(alias, _UNDONE)
    return found + (_ask(alias, _BUSY) if found else [])


def _short(name: str) -> str:
    return name.rsplit(".", 1)[1]


def _ask(alias: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return list(cursor.fetchall())
