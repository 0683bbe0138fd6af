"""What is archived is forgotten in the end, and neither that nor making room for more holds anybody up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from django_jobs.engines.archive import archive
from django_jobs.models import ArchivedJob
from django_jobs.queue import archive as rounds
from tests.archive.common import DAY, age_archive, archived, ended, go_round, here, partitions
from tests.engines.common import alone, beside_others, on_postgresql, sql
from tests.engines.test_plans import plans
from tests.harness import wait_for
from tests.threads import Session, session, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@alone
def test_what_was_archived_is_kept_for_archive_for_at_least_and_forgotten_then(engine: Engine) -> None:
    job = ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 6.9)
    go_round(engine)
    assert archived(engine) == [job.pk]
    age_archive(engine, 8.1)
    came = go_round(engine)
    assert archived(engine) == []
    if engine.name == "postgresql":
        assert (came.dropped, came.forgotten) == (["aged_8_1"], 0)
    else:
        assert (came.dropped, came.forgotten) == ([], 1)


@on_postgresql
@alone
def test_a_partition_goes_as_a_whole_once_all_of_it_is_old(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"ARCHIVE_FOR": 2 * DAY}
    ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 2)  # the first hours of that day are older, its end is not
    go_round(engine)
    assert partitions(engine) == ["aged_2"]
    age_archive(engine, 3.01)
    go_round(engine)
    assert partitions(engine) == []


@on_postgresql
@alone
def test_a_partition_is_made_by_the_first_that_needs_it_and_no_other(engine: Engine) -> None:
    assert partitions(engine) == []
    go_round(engine)
    assert partitions(engine) == []  # there was nothing to archive
    job = ended(engine, "done", 2)
    go_round(engine)
    (made,) = partitions(engine)
    ended(engine, "done", 2)
    go_round(engine)
    assert partitions(engine) == [made]
    ((today,),) = sql(engine, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    assert made == f"django_jobs_archivedjob_{today}"
    ((name,),) = sql(engine, "SELECT tableoid::regclass::text FROM django_jobs_archivedjob WHERE id = %s", job.pk)
    assert name == made


@on_postgresql
@alone
# One of which has another day than UTC now.
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_days_are_those_of_utc_whatever_the_session_says(engine: Engine, zone: str) -> None:
    sql(engine, "SELECT set_config('TimeZone', %s, true)", zone)
    job = ended(engine, "done", 2)
    go_round(engine)
    assert archived(engine) == [job.pk]
    sql(engine, "SELECT set_config('TimeZone', 'UTC', true)")
    ((since, today),) = sql(
        engine,
        "SELECT substring(pg_get_expr(relpartbound, oid) FROM 'FROM .''([^'']+)'), "
        "date_trunc('day', now() AT TIME ZONE 'UTC')::text || '+00' FROM pg_class WHERE relname = %s",
        partitions(engine)[0],
    )
    assert since == today


@on_postgresql
@alone
def test_after_days_without_anybody_at_the_archive_it_goes_on(engine: Engine) -> None:
    first = ended(engine, "done", 9)
    go_round(engine)
    age_archive(engine, 5)  # and no partition was made since
    second = ended(engine, "done", 3)
    assert go_round(engine).archived == 1
    assert archived(engine) == [first.pk, second.pk]
    assert len(partitions(engine)) == 2


@on_postgresql
@alone
def test_a_wider_partition_that_somebody_made_by_hand_is_used(engine: Engine) -> None:
    sql(
        engine,
        "CREATE TABLE by_hand PARTITION OF django_jobs_archivedjob FOR VALUES FROM ('2020-01-01') TO ('2999-01-01')",
    )
    job = ended(engine, "done", 2)
    go_round(engine)
    assert (partitions(engine), archived(engine)) == (["by_hand"], [job.pk])


@on_postgresql
@alone
def test_there_is_no_partition_for_what_fits_in_no_other(engine: Engine) -> None:
    ended(engine, "done", 2)
    go_round(engine)
    rows = sql(
        engine,
        "SELECT count(*) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'django_jobs_archivedjob'::regclass AND pg_get_expr(relpartbound, pg_class.oid) = 'DEFAULT'",
    )
    assert rows == [(0,)]


# Beside others.


@on_postgresql
@beside_others
def test_while_somebody_reads_the_archive_nothing_is_dropped_and_nobody_waits(engine: Engine, other: Session) -> None:
    job = ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 9)
    other.begin()
    other.sql("SELECT count(*) FROM django_jobs_archivedjob")  # a page that is open, or a dump that takes hours
    over = threading.Event()

    def read_on(reader: Session) -> int:
        times = 0
        while not over.is_set():
            assert reader.sql("SELECT id FROM django_jobs_archivedjob WHERE id = %s", job.pk) == [(job.pk,)]
            times += 1
        return times

    with session(engine.alias) as reader, ThreadPoolExecutor(1) as pool:
        reader.sql("SET lock_timeout = '200ms'")  # whoever waits for a lock is told
        reading = pool.submit(read_on, reader)
        made = rounds.Round(archive(engine.alias), rest=0.0)
        for pause in made.steps():
            threading.Event().wait(pause)
        over.set()
        assert reading.result(10) > 0
    assert (list(made.came.in_use), made.came.dropped) == (partitions(engine), [])
    assert archived(engine) == [job.pk]
    other.rollback()
    assert len(go_round(engine).dropped) == 1


@on_postgresql
@beside_others
def test_making_a_partition_waits_for_nobody_who_reads_the_archive_and_holds_none_up(
    engine: Engine, other: Session
) -> None:
    ended(engine, "done", 2)
    other.begin()
    other.sql("SELECT count(*) FROM django_jobs_archivedjob")
    sql(engine, "SET lock_timeout = '200ms'")
    try:
        archive(engine.alias).prepare()
    finally:
        sql(engine, "RESET lock_timeout")
    assert len(partitions(engine)) == 1


@on_postgresql
@beside_others
def test_two_that_need_a_partition_at_once_make_one(engine: Engine) -> None:
    found = archive(engine.alias)
    with session(engine.alias) as first, session(engine.alias) as second:
        first.begin()
        first.do(found.prepare)
        late = second.start(found.prepare)
        wait_for_blocked()
        first.commit()
        late.result(10)
    assert len(partitions(engine)) == 1


@on_postgresql
@beside_others
def test_one_works_at_the_archive_at_a_time(engine: Engine, other: Session) -> None:
    job = ended(engine, "done", 2)
    found = archive(engine.alias)
    turn = found.turn()
    assert other.do(turn.__enter__) is True
    came = go_round(engine)
    assert (came.elsewhere, came.archived, here(engine)) == (True, 0, [job.pk])
    other.do(partial(turn.__exit__, None, None, None))
    assert go_round(engine).archived == 1


@on_postgresql
@beside_others
def test_one_that_died_at_the_archive_is_in_nobodys_way(engine: Engine) -> None:
    ended(engine, "done", 2)
    with session(engine.alias) as gone:
        turn = archive(engine.alias).turn()
        assert gone.do(turn.__enter__) is True
        gone.do(lambda: connections[engine.alias].close())
        wait_for(lambda: go_round(engine).archived == 1, 10.0, "the server has noticed")
        gone.do(partial(turn.__exit__, None, None, None))


# Without the right to make tables.


@pytest.fixture
def without_rights(engine: Engine) -> Iterator[Session]:
    """Return a session of a user who may read and write rows and make no tables."""
    sql(engine, "CREATE ROLE mere_user")
    sql(engine, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO mere_user")
    sql(engine, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with session(engine.alias) as found:
        found.sql("SET ROLE mere_user")
        yield found
        found.sql("RESET ROLE")
    sql(engine, "DROP OWNED BY mere_user")
    sql(engine, "DROP ROLE mere_user")


@on_postgresql
@beside_others
def test_without_the_right_to_make_a_partition_jobs_stay_as_long_as_both_and_are_deleted_then(
    engine: Engine, without_rights: Session, caplog: pytest.LogCaptureFixture
) -> None:
    ended(engine, "done", 8.1)
    kept = ended(engine, "done", 7.9)
    came = without_rights.do(partial(go_round, engine))
    assert (came.archived, came.deleted) == (0, 1)
    assert came.refused.startswith("permission denied for schema public")
    assert (here(engine), archived(engine)) == ([kept.pk], [])
    without_rights.do(partial(go_round, engine))
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "No partition of the archive can be made" in said[0]


@on_postgresql
@beside_others
def test_a_partition_that_its_owner_made_is_used_by_those_who_could_not_make_it(
    engine: Engine, without_rights: Session
) -> None:
    archive(engine.alias).prepare()
    job = ended(engine, "done", 2)
    assert without_rights.do(partial(go_round, engine)).archived == 1
    assert archived(engine) == [job.pk]


@on_postgresql
@beside_others
def test_a_partition_that_may_not_be_dropped_is_emptied_row_by_row(engine: Engine, without_rights: Session) -> None:
    ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 9)
    came = without_rights.do(partial(go_round, engine))
    assert (came.dropped, came.forgotten, archived(engine)) == ([], 1, [])


@alone
def test_all_old_rows_are_deleted_in_batches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 9)
    found = archive(engine.alias)
    assert [found.delete(7 * DAY, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert ArchivedJob.objects.using(engine.alias).count() == 0


@on_postgresql
@alone
def test_days_that_are_not_old_are_not_read_to_delete_what_is(engine: Engine) -> None:
    ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 3)
    ended(engine, "done", 2)
    go_round(engine)
    assert len(partitions(engine)) == 2
    nodes = plans(engine, partial(archive(engine.alias).delete, 7 * DAY, 500))
    assert not [node for node in nodes if str(node.get("Relation Name", "")).startswith("django_jobs_archivedjob_")]


@on_postgresql
@beside_others
def test_a_partition_on_which_something_depends_stays_and_is_named(engine: Engine) -> None:
    ended(engine, "done", 2)
    go_round(engine)
    age_archive(engine, 9)
    (name,) = partitions(engine)
    sql(engine, f"CREATE VIEW of_a_day AS SELECT * FROM {name}")
    try:
        came = go_round(engine)
        assert list(came.in_use) == [name]
        assert "depend" in came.in_use[name]
        assert len(archived(engine)) == 1
    finally:
        sql(engine, "DROP VIEW of_a_day")
