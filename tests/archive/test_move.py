from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from django_jobs.conf import conf
from django_jobs.engines.archive import Ages, Part, archive
from django_jobs.engines.sql import statement
from django_jobs.models import ArchivedJob, Job
from django_jobs.models.clock import Clock
from django_jobs.queue import archive as rounds
from tests.acts import in_state
from tests.app.jobs import nothing
from tests.archive.common import DAY, archived, ended, go_round, here
from tests.engines.common import alone, alter, on_postgresql, on_sqlite

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone


@pytest.mark.parametrize("status", ["done", "cancelled"])
def test_a_job_goes_to_the_archive_when_it_was_kept_for_keep_done_after_its_end(engine: Engine, status: str) -> None:
    old, young = ended(engine, status, 1.01), ended(engine, status, 0.99)
    assert go_round(engine).archived == 1
    assert (here(engine), archived(engine)) == ([young.pk], [old.pk])


@pytest.mark.parametrize("status", ["dead", "failed"])
def test_a_job_that_wants_a_person_waits_for_dead_retention(engine: Engine, status: str) -> None:
    old, young = ended(engine, status, 30.01), ended(engine, status, 29.99)
    assert go_round(engine).archived == 1
    assert (here(engine), archived(engine)) == ([young.pk], [old.pk])


@pytest.mark.parametrize("status", ["ready", "parked", "scheduled", "running"])
def test_what_has_not_ended_stays_however_old_it_is(engine: Engine, status: str) -> None:
    job = in_state(engine, status)
    alter(engine, job.pk, created_at=Clock() - 400 * DAY, run_at=Clock() - 399 * DAY)
    assert go_round(engine).archived == 0
    assert here(engine) == [job.pk]


def test_the_age_counts_from_the_end_not_from_when_the_job_was_made(engine: Engine) -> None:
    late = ended(engine, "done", 0.5)
    alter(engine, late.pk, created_at=Clock() - 300 * DAY, last_started_at=Clock() - 2 * DAY)
    assert go_round(engine).archived == 0
    assert here(engine) == [late.pk]


def test_a_key_is_kept_for_its_window_after_the_end(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"IDEMPOTENCY_WINDOW": timedelta(days=3)}
    held = ended(engine, "done", 2.99, idempotency_key="held")
    over = ended(engine, "done", 3.01, idempotency_key="over")
    freed = ended(engine, "done", 1.5, idempotency_key="freed", unique="unfinished")
    assert go_round(engine).archived == 2
    assert (here(engine), archived(engine)) == ([held.pk], [over.pk, freed.pk])
    assert nothing.using(idempotency_key="held").enqueue(1).pk == held.pk
    assert nothing.using(idempotency_key="over").enqueue(1).pk not in (held.pk, over.pk)


def test_a_dead_job_with_a_key_keeps_it_for_the_window_as_well(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"IDEMPOTENCY_WINDOW": 3 * DAY, "DEAD_RETENTION": 2 * DAY}
    held, free = ended(engine, "dead", 2.5, idempotency_key="held"), ended(engine, "dead", 2.5)
    go_round(engine)
    assert (here(engine), archived(engine)) == ([held.pk], [free.pk])


def test_all_that_is_known_of_a_job_goes_with_it(engine: Engine) -> None:
    job = ended(engine, "dead", 31, priority=7, idempotency_key="key", max_attempts=3)
    alter(
        engine,
        job.pk,
        cancel_reason="by a person",
        progress={"done": 1, "total": 2, "note": ""},
        result={"big": 12345678901234567890},
        meta={"tags": ["a"]},
        schedule="nightly",
        slot=Clock(),
        expires_at=Clock(),
        started_at=Clock(),
        suspect=True,
        timeout=1.5,
    )
    job.refresh()
    go_round(engine)
    found = ArchivedJob.objects.using(engine.alias).get(pk=job.pk)
    kept = [
        field.attname for field in ArchivedJob._meta.concrete_fields if field.name not in ("archived_at", "requeued_as")
    ]
    assert {name: getattr(found, name) for name in kept} == {name: getattr(job, name) for name in kept}
    left_out = {field.attname for field in Job._meta.concrete_fields} - set(kept)
    assert left_out == {"parked", "locked_by", "locked_until"}
    assert found.requeued_as is None


@pytest.mark.fast
@on_postgresql
def test_the_statement_names_every_column_of_the_archive(engine: Engine) -> None:
    columns = [str(field.column) for field in ArchivedJob._meta.concrete_fields if field.name != "requeued_as"]
    lists = re.findall(r"(?:RETURNING|_archivedjob\s+\() *(id,[^)]*)\)", statement("archive"))
    taken, kept = (re.findall(r"\w+", found) for found in lists)
    assert sorted(kept) == sorted(columns)
    assert [*taken, "archived_at"] == kept


def test_with_an_archive_of_no_time_jobs_are_deleted(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"ARCHIVE_FOR": 0}
    ended(engine, "done", 1.01)
    young = ended(engine, "done", 0.99)
    came = go_round(engine)
    assert (came.archived, came.deleted) == (0, 1)
    assert (here(engine), archived(engine)) == ([young.pk], [])


def test_many_are_taken_in_batches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [ended(engine, "done", 2) for _ in range(7)]
    found = archive(engine.alias)
    monkeypatch.setattr(found, "most", 3)
    steps = rounds.Round(found, rest=0.0).steps()
    counts = []
    for _ in steps:
        counts.append(len(archived(engine)))
    assert counts[:3] == [3, 6, 7]
    assert archived(engine) == [job.pk for job in jobs]


def test_the_pause_after_a_step_is_in_proportion_to_it(engine: Engine) -> None:
    pauses = []
    for rest in (0.0, 1000.0):
        ended(engine, "done", 2)
        pauses.append(next(rounds.Round(archive(engine.alias), rest=rest).steps()))
    assert pauses[0] == 0.0
    assert pauses[1] > 0.1  # of a step that took more than 0.1 ms


def test_a_round_ends_where_jobs_are_too_young_to_have_ended_long_ago(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = archive(engine.alias)
    monkeypatch.setattr(found, "most", 1)
    old = [ended(engine, "done", 2).pk for _ in range(2)]
    young = [ended(engine, "done", 0.1).pk for _ in range(40)]
    looked: list[Part] = []
    move = found.move

    def moved(part: Part, ages: Ages, keep: bool) -> Any:
        looked.append(part)
        return move(part, ages, keep)

    monkeypatch.setattr(found, "move", moved)
    for _ in rounds.Round(found, rest=0.0).steps():
        pass
    assert archived(engine) == old
    assert looked[-1].upto < young[-1]


def test_rows_that_stay_for_long_are_no_end_of_a_round(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = archive(engine.alias)
    monkeypatch.setattr(found, "most", 2)
    waiting = [in_state(engine, "scheduled").pk for _ in range(30)]
    Job.objects.using(engine.alias).update(created_at=Clock() - 40 * DAY)
    late = ended(engine, "done", 2)  # made long ago, ended lately, in between
    alter(engine, late.pk, created_at=Clock() - 40 * DAY)
    waiting += [in_state(engine, "scheduled").pk for _ in range(30)]
    Job.objects.using(engine.alias).filter(pk__in=waiting).update(created_at=Clock() - 40 * DAY)
    old = ended(engine, "done", 2)
    for _ in rounds.Round(found, rest=0.0).steps():
        pass
    assert archived(engine) == [late.pk, old.pk]


def test_ids_that_were_never_given_cost_few_steps(engine: Engine) -> None:
    low, high = ended(engine, "done", 2), ended(engine, "done", 2)
    alter(engine, high.pk, id=high.pk + 10**8)
    steps = list(rounds.Round(archive(engine.alias), rest=0.0).steps())
    assert archived(engine) == [low.pk, high.pk + 10**8]
    assert len(steps) < 150


def test_a_dry_run_counts_and_changes_nothing(engine: Engine) -> None:
    jobs = [ended(engine, "done", 2) for _ in range(3)]
    came = go_round(engine, dry_run=True)
    assert (came.archived, came.deleted) == (3, 0)
    assert (here(engine), archived(engine)) == ([job.pk for job in jobs], [])


@on_postgresql
def test_among_many_rows_only_those_between_the_ends_of_a_step_are_read(engine: Engine) -> None:
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_job (type, payload, status, finished_at, created_at) "
            "SELECT 'x', '{\"args\": [], \"kwargs\": {}}', 'done', now() - interval '2 days', now() - interval '2 days' "
            "FROM generate_series(1, 20000)"
        )
        cursor.execute("ANALYZE django_jobs_job")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
    found = archive(engine.alias)
    found.prepare()
    plans: list[str] = []

    def wrapper(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if "WITH held" in sql and "EXPLAIN" not in sql:
            with connections[engine.alias].cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}", parameters)
                plans.append("\n".join(row[0] for row in cursor.fetchall()))
        return execute(sql, parameters, many, context)

    first = Job.objects.using(engine.alias).order_by("pk").values_list("pk", flat=True)[0]
    with connections[engine.alias].execute_wrapper(wrapper):
        found.move(Part(first + 9999, first + 11999, 500), rounds.ages(conf()), True)
    assert "Seq Scan" not in plans[0]
    assert "Sort" not in plans[0]


@on_sqlite
def test_the_file_is_locked_for_a_batch_at_a_time(engine: Engine) -> None:
    assert archive(engine.alias).most == 200
