from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from django_jobs.engines.archive import archive
from tests.acts import Ran
from tests.archive.common import age_archive, archived, ended, here, partitions
from tests.engines.common import alone, beside_others, claim, enqueue, on_postgresql, on_sqlite, sql
from tests.threads import Session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

NOTHING = {
    "archived": 0,
    "deleted": 0,
    "forgotten": 0,
    "dropped": [],
    "in_use": {},
    "stuck": 0,
    "reasons": [],
    "refused": "",
    "elsewhere": False,
}


@alone
def test_the_command_says_what_it_did(engine: Engine) -> None:
    for _ in range(2):
        ended(engine, "done", 2)
    ran = Ran("archive")
    assert (ran.code, ran.out, ran.err) == (0, "2 jobs archived, 0 deleted.\n", "")
    assert len(archived(engine)) == 2
    assert Ran("archive", "--json").data == NOTHING


@on_postgresql
@alone
def test_the_command_names_the_partitions_that_it_dropped(engine: Engine) -> None:
    ended(engine, "done", 2)
    Ran("archive")
    age_archive(engine, 9)
    assert Ran("archive", "--dry-run").out.endswith("Partitions to be dropped: aged_9.\n")
    assert partitions(engine) == ["aged_9"]
    assert Ran("archive", "--json").data == {**NOTHING, "dropped": ["aged_9"]}
    assert "aged_9" not in partitions(engine)


@on_sqlite
@alone
def test_the_command_counts_the_rows_that_it_deleted_where_there_are_no_partitions(engine: Engine) -> None:
    ended(engine, "done", 2)
    Ran("archive")
    age_archive(engine, 9)
    assert Ran("archive", "--json").data == {**NOTHING, "forgotten": 1}


@alone
def test_a_dry_run_says_what_would_be_done(engine: Engine) -> None:
    job = ended(engine, "done", 2)
    ran = Ran("archive", "--dry-run")
    assert (ran.code, ran.out) == (0, "1 jobs to be archived, 0 to be deleted.\n")
    assert here(engine) == [job.pk]


@on_postgresql
@beside_others
def test_while_another_process_is_at_it_nothing_is_done_and_it_says_so(engine: Engine, other: Session) -> None:
    job = ended(engine, "done", 2)
    turn = archive(engine.alias).turn()
    other.do(turn.__enter__)
    ran = Ran("archive")
    assert (ran.code, ran.out) == (0, "Another process is at the archive; nothing was done.\n")
    assert here(engine) == [job.pk]
    other.do(partial(turn.__exit__, None, None, None))


@on_postgresql
@beside_others
def test_the_command_makes_the_partition_of_the_day_for_those_who_may_not_also_while_they_are_at_it(
    engine: Engine, other: Session
) -> None:
    for name in partitions(engine):
        sql(engine, f"DROP TABLE {name}")  # that others have made today
    turn = archive(engine.alias).turn()
    other.do(turn.__enter__)
    Ran("archive", "--dry-run")
    assert partitions(engine) == []
    Ran("archive")
    assert len(partitions(engine)) == 1
    other.do(partial(turn.__exit__, None, None, None))


@on_postgresql
@beside_others
def test_a_partition_that_somebody_reads_is_named_and_is_no_failure(engine: Engine, other: Session) -> None:
    ended(engine, "done", 2)
    Ran("archive")
    age_archive(engine, 9)
    other.begin()
    other.sql("SELECT 1 FROM django_jobs_archivedjob")
    ran = Ran("archive")
    assert ran.code == 0
    assert ran.err == "The partition aged_9 cannot be dropped now: somebody has the archive open\n"
    other.rollback()


@pytest.mark.parametrize("given", [["--dry-runs"], ["5"], ["--no-pause", "x"]])
@alone
def test_what_it_does_not_know_is_refused(engine: Engine, given: list[str]) -> None:
    ran = Ran("archive", *given)
    assert (ran.code, "unrecognized arguments" in ran.error) == (2, True) or ran.code == 1


@on_postgresql
@alone
def test_the_table_of_jobs_has_settings_of_its_own(engine: Engine) -> None:
    ((options,),) = sql(engine, "SELECT reloptions FROM pg_class WHERE oid = 'django_jobs_job'::regclass")
    found = dict(option.split("=") for option in options)
    assert found["fillfactor"] == "50"
    assert (found["autovacuum_vacuum_scale_factor"], found["autovacuum_vacuum_threshold"]) == ("0.01", "5000")


@on_postgresql
@beside_others
def test_a_heartbeat_stays_on_its_page(engine: Engine) -> None:
    """With room on each page, and `locked_until` in no index, the row's new version needs no entry anywhere."""
    enqueue(50)
    claimed = claim(engine, 50)
    before = dict(sql(engine, "SELECT id, (ctid::text::point)[0]::int FROM django_jobs_job"))
    engine.extend([found.run for found in claimed], 30.0)
    after = dict(sql(engine, "SELECT id, (ctid::text::point)[0]::int FROM django_jobs_job"))
    assert sum(before[job_id] == after[job_id] for job_id in before) >= 45
