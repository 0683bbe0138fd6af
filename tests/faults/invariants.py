"""What must be true of the jobs' tables whatever was done to the workers: looked at in plain SQL."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db import connections
from django.test import RequestFactory

from django_jobs.admin.listing import COUNT_LIMIT
from django_jobs.models import Job
from tests.harness import Tree, wait_for

# Each finds rows that must not be; a name, what to show of them, and the condition. Also true in the middle of a storm.
_ALWAYS = {
    "a status that does not fit the columns": """
        SELECT id, status, locked_by, locked_until, finished_at FROM django_jobs_job WHERE NOT CASE status
          WHEN 'ready' THEN locked_by IS NULL AND locked_until IS NULL AND finished_at IS NULL
          WHEN 'running' THEN locked_by IS NOT NULL AND locked_until IS NOT NULL AND finished_at IS NULL
                              AND started_at IS NOT NULL AND token > 0
          WHEN 'done' THEN locked_by IS NULL AND locked_until IS NULL AND finished_at IS NOT NULL AND token > 0
                           AND losses = 0 AND NOT suspect
          WHEN 'failed' THEN locked_by IS NULL AND finished_at IS NOT NULL AND last_error <> ''
          WHEN 'dead' THEN locked_by IS NULL AND finished_at IS NOT NULL AND last_error <> ''
          WHEN 'cancelled' THEN locked_by IS NULL AND finished_at IS NOT NULL
          ELSE false END""",
    "more attempts than are allowed, or than there were runs": """
        SELECT id, attempts, max_attempts, token FROM django_jobs_job
         WHERE attempts > max_attempts OR attempts + losses > token
            OR attempts = max_attempts AND status IN ('ready', 'running')""",
    "a run that ended twice": """
        SELECT id, history FROM django_jobs_job, LATERAL (
            SELECT count(*) AS lines, count(DISTINCT line ->> 'run') AS runs, max((line ->> 'run')::bigint) AS last
              FROM jsonb_array_elements(history) AS line
             WHERE line ->> 'cause' NOT IN ('requeued', 'called off', 'asked to stop')) AS found
         WHERE lines > runs OR last > token OR (status = 'done' AND last = token)""",
    "parked and not waiting, or a suspect that waits and is not parked": """
        SELECT id, status, parked, suspect FROM django_jobs_job
         WHERE parked IS NOT NULL AND status <> 'ready'
            OR COALESCE(parked = 'suspect', false) <> (suspect AND status = 'ready')""",
}
# True as soon as what is alive has had the time that it may take.
_SOON = {
    "a lease that is older than its limit": """
        SELECT id, locked_by, clock_timestamp() - locked_until AS late FROM django_jobs_job
         WHERE status = 'running' AND locked_until < clock_timestamp()""",
    "parked for a pause that is over, or a type that somebody knows": """
        SELECT job.id, job.parked, job.type FROM django_jobs_job job
         WHERE job.parked IN ('pause', 'type') AND job.run_at <= clock_timestamp() AND EXISTS (
               SELECT 1 FROM django_jobs_worker worker WHERE worker.types ? job.type
                  AND (worker.queues IS NULL OR worker.queues = 'null'::jsonb OR worker.queues ? job.queue)
                  AND worker.heartbeat_at > clock_timestamp() - interval '5 s')
           AND NOT EXISTS (SELECT 1 FROM django_jobs_pause pause
                            WHERE (kind, name) IN (('type', job.type), ('queue', job.queue))
                              AND (pause.until IS NULL OR pause.until > clock_timestamp()))""",
}

# The states that the admin's list is narrowed to, each with the statuses that it shows.
_ON_PAGE = {"done": ["done"], "running": ["running"], "dead-letters": ["dead", "failed"], "cancelled": ["cancelled"]}


def assert_invariants(tree: Tree, timeout: float = 30.0) -> None:
    """Assert that the tables are in order now, and within `timeout` seconds what takes time; and that we count right."""
    for name, statement in _ALWAYS.items():
        found = _ask(tree.alias, statement)
        assert not found, f"{name}: {found[:5]}"
    for name, statement in _SOON.items():
        wait_for(lambda: not _ask(tree.alias, statement), timeout, name)  # noqa: B023
    wait_for(lambda: not _miscounted(tree), timeout, f"counters that equal SQL: {_miscounted(tree)}")


def _miscounted(tree: Tree) -> dict[str, Any]:
    """Return what `jobs status --json` or the admin says another number of than SQL does, each with both."""
    said = tree.run("jobs", "status", "--json")
    assert said.returncode == 0, said.stderr
    state = json.loads(said.stdout)
    counted = dict(_ask(tree.alias, "SELECT status, count(*) FROM django_jobs_job GROUP BY status"))
    ours = {
        "running": sum(row["running"] for row in state["queues"]),
        "ready": sum(row["due"] + row["later"] + row["parked"] for row in state["queues"]),
        **state["finished"],
    }
    wrong = {name: (number, counted.get(name, 0)) for name, number in ours.items() if number != counted.get(name, 0)}
    for name, statuses in _ON_PAGE.items():
        number = min(sum(counted.get(status, 0) for status in statuses), COUNT_LIMIT)
        if (shown := _shown(name)) != number:
            wrong[f"the page of {name}"] = (shown, number)
    return wrong


def _shown(state: str) -> int:
    """Return how many jobs the admin's list says to be in a state."""
    request = RequestFactory().get("/", {"state": state})
    request.user = User(is_superuser=True, is_staff=True, is_active=True)
    answer: Any = site.get_model_admin(Job).changelist_view(request)
    return int(answer.context_data["cl"].result_count)


def _ask(alias: str, statement: str) -> list[tuple[Any, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
