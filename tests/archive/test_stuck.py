"""A row that cannot be taken is in nobody's way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.db import DatabaseError

from django_jobs.engines.archive import archive
from django_jobs.models import Job
from django_jobs.queue import archive_log
from django_jobs.queue.archive import Round
from tests.acts import Ran
from tests.archive.common import archived, ended, go_round, here
from tests.engines.common import beside_others, on_postgresql, sql

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = beside_others


@pytest.fixture(autouse=True)
def nothing_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_log, "_named", set())


@pytest.fixture
def receipts(engine: Engine) -> Iterator[list[Job]]:
    """A table of a project that points at jobs, as Django makes it: its constraint is tested at the COMMIT."""
    sql(
        engine,
        "CREATE TABLE receipt (id bigint PRIMARY KEY, job_id bigint NOT NULL "
        "REFERENCES django_jobs_job (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    jobs = [ended(engine, "done", 2) for _ in range(9)]
    for job in (jobs[2], jobs[3], jobs[7]):
        sql(engine, "INSERT INTO receipt VALUES (%s, %s)", job.pk, job.pk)
    yield jobs
    sql(engine, "DROP TABLE receipt")


def test_the_rows_that_a_foreign_key_holds_are_passed_over_and_named_and_all_others_go(
    engine: Engine, receipts: list[Job], caplog: pytest.LogCaptureFixture
) -> None:
    came = go_round(engine)
    stuck = [receipts[number].pk for number in (2, 3, 7)]
    assert (came.archived, came.stuck, list(came.reasons)) == (6, 3, stuck)
    assert all("foreign key" in why.lower() for why in came.reasons.values())
    assert here(engine) == stuck
    assert archived(engine) == [job.pk for job in receipts if job.pk not in stuck]
    assert [record.args[0] for record in caplog.records if record.levelname == "WARNING"] == stuck  # type: ignore[index]
    go_round(engine)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 3  # said once


def test_they_go_when_nothing_holds_them_any_more(engine: Engine, receipts: list[Job]) -> None:
    go_round(engine)
    sql(engine, "DELETE FROM receipt")
    assert go_round(engine).archived == 3
    assert here(engine) == []


def test_the_command_names_them_and_ends_with_1(engine: Engine, receipts: list[Job]) -> None:
    ran = Ran("archive", "--no-pause")
    assert (ran.code, ran.error) == (1, "3 jobs were left as they are, for the reasons above.")
    assert ran.err.count("cannot be taken out of the table of jobs") == 3
    assert ran.out == "6 jobs archived, 0 deleted.\n"


@on_postgresql
def test_one_row_that_is_broken_among_many_costs_few_more_statements(engine: Engine) -> None:
    jobs = [ended(engine, "done", 2).pk for _ in range(100)]
    sql(
        engine,
        "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$",
    )
    when = f"BEFORE DELETE ON django_jobs_job FOR EACH ROW WHEN (OLD.id = {jobs[57]})"
    sql(engine, f"CREATE TRIGGER refuses {when} EXECUTE FUNCTION refuses()")
    try:
        made = Round(archive(engine.alias), rest=0.0)
        steps = len(list(made.steps()))
        assert (made.came.archived, made.came.reasons) == (99, {jobs[57]: "not this one"})
        assert steps < 40
    finally:
        sql(engine, "DROP TRIGGER refuses ON django_jobs_job")
        sql(engine, "DROP FUNCTION refuses()")


def test_an_error_that_is_no_rows_ends_the_round(engine: Engine) -> None:
    ended(engine, "done", 2)
    sql(engine, "ALTER TABLE django_jobs_archivedjob RENAME TO elsewhere")
    try:
        made = Round(archive(engine.alias), rest=0.0)
        with pytest.raises(DatabaseError, match="django_jobs_archivedjob"):
            list(made.steps())
        assert made.came.stuck == 0
    finally:
        sql(engine, "ALTER TABLE elsewhere RENAME TO django_jobs_archivedjob")
    assert len(here(engine)) == 1
