"""Whether a job that runs more than once has its effect once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.core import mail
from django.db import connections, router

from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.models import Job
from django_jobs.models.clock import for_row
from django_jobs.testing.driver import Driver
from django_jobs.testing.faults import Fault
from django_jobs.testing.given import TaskResult, Type, job_of
from django_jobs.testing.guard import refuse_outside_of_tests
from django_jobs.testing.ran import LOST, Ran
from django_jobs.testing.transactions import refuse_open_transaction

MOST_SHOWN = 5
# No clock of a test comes here.
FAR = datetime(9000, 1, 1, tzinfo=UTC)
Seen = dict[str, Any]


def assert_takes_effect_once(
    job: Job | TaskResult | Type, effect: Callable[[], Any] | None = None, *, replays: int = 2
) -> Ran:
    """Run a job that waits, `replays` times more than once, and raise AssertionError unless it has one effect.

    `job` is what `enqueue` returned, or a type of which one job waits. Of each run but the last the end cannot be stored, as its
    database is away when the function has returned; of an atomic job all is rolled back with it, what another one has
    committed stays.

    What `effect` returns, as `lambda: Order.objects.filter(paid=True).count()`, has to change in one of the runs and to
    stay as it is in all others. Without it that is looked at in all rows of the project's models on the jobs' database,
    the jobs that were enqueued, and `mail.outbox`: then the message says what came twice.

    Other jobs wait meanwhile, also those that it enqueues. Returns the last run, which must have ended as done.
    """
    if isinstance(replays, bool) or not isinstance(replays, int) or replays < 1:
        raise InvalidJob(f"assert_takes_effect_once(replays={shown(replays)}): give a whole number from 1 on.")
    refuse_outside_of_tests(jobs_alias(), "assert_takes_effect_once()")
    refuse_open_transaction(jobs_alias(), "assert_takes_effect_once()")
    if effect is not None and not callable(effect):
        raise InvalidJobType(
            f"assert_takes_effect_once(effect={shown(effect)}): give a function, as lambda: len(mail.outbox)."
        )
    return _run_again(job_of(job, "assert_takes_effect_once()"), effect, replays)


def _run_again(job: Job, effect: Callable[[], Any] | None, replays: int) -> Ran:
    looked: Callable[[], Any] = effect or (lambda: _all_there_is(job))
    with _alone(job) as driver:
        seen = [looked()]
        for _ in range(replays):
            ran = driver.run_next(job.pk, Fault("database away", None, 1))
            if ran is None or ran.status != LOST or ran.exception is not None:
                raise AssertionError(f"Job {job.pk} ({job.type}) did not run to its end: {_why_not(job, ran)}")
            seen.append(looked())
        last = driver.run_next(job.pk)
        seen.append(looked())
    if last is None or last.status != "done":
        raise AssertionError(f"Job {job.pk} ({job.type}) is not done by its last run: {_why_not(job, last)}")
    changes = [number for number in range(1, len(seen)) if seen[number] != seen[number - 1]]
    if not changes:
        raise AssertionError(f"Job {job.pk} ({job.type}) had no effect in {len(seen) - 1} runs.")
    if len(changes) > 1:
        again = changes[1]
        raise AssertionError(
            f"Job {job.pk} ({job.type}) had an effect in the runs {', '.join(map(str, changes))} of {len(seen) - 1}. "
            f"Run {again} came after one whose end was not stored, and changed {_changed(seen[again - 1], seen[again])}."
        )
    return last


@contextmanager
def _alone(job: Job) -> Iterator[Driver]:
    """Give a driver that meets this job only: no other one is due, parked or not, until the block ends."""
    alias = jobs_alias()
    rows, far = Job.objects.using(alias), for_row(FAR, alias)
    aside: dict[int, datetime] = {}

    def put_aside() -> None:
        others = dict(rows.ready().exclude(pk=job.pk).exclude(run_at=far).values_list("pk", "run_at"))
        rows.filter(pk__in=others).update(run_at=far)
        aside.update(others)

    driver = Driver(types=(job.type,), before_claim=put_aside)
    with driver.working():
        try:
            yield driver
        finally:
            for pk, run_at in aside.items():
                rows.filter(pk=pk, run_at=far).update(run_at=run_at)


def _why_not(job: Job, ran: Ran | None) -> str:
    if ran is None:
        return job.refresh().explain()
    return f"it is {ran.status} ({ran.cause}): {ran.exception or ran.error!r}"


def _all_there_is(job: Job) -> Seen:
    alias = job._state.db or jobs_alias()
    tables = connections[alias].introspection.table_names()
    found: Seen = {
        model._meta.label: Counter(map(repr, model._base_manager.using(alias).values_list()))
        for model in apps.get_models()
        if model._meta.app_label not in ("django_jobs", "sessions", "contenttypes")
        and model._meta.db_table in tables
        and router.allow_migrate_model(alias, model)
    }
    calls = Job.objects.using(alias).exclude(pk=job.pk).values_list("type", "payload", "idempotency_key")
    found["jobs"] = Counter(map(repr, calls))
    found["mails"] = Counter(f"{message.subject} to {message.to}" for message in getattr(mail, "outbox", []))
    return found


def _changed(before: Any, after: Any) -> str:
    if not isinstance(before, dict) or "mails" not in before:
        return f"{before!r} to {after!r}"
    return "; ".join(
        f"{name}: {_listed(after[name] - before[name])}" + (f" instead of {_listed(gone)}" if gone else "")
        for name in after
        if after[name] != before[name]
        for gone in [before[name] - after[name]]
    )


def _listed(rows: Counter[str]) -> str:
    found = list(rows.elements())
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return ", ".join(found[:MOST_SHOWN]) + more or "nothing"
