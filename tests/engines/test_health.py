"""What is said of the queue's own tables, and of who keeps their dead rows."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from django_jobs.engines.base import Engine
from django_jobs.engines.health import health, oldest_snapshot
from tests.engines.common import alone, beside_others, enqueue, on_postgresql, on_sqlite, sql
from tests.harness import wait_for
from tests.threads import Session

pytestmark = beside_others
ASKED = "SELECT count(*) FROM django_jobs_job"


@pytest.fixture
def holder(other: Session) -> Session:
    """Return a session that holds a snapshot: it reads under REPEATABLE READ."""
    other.begin()
    other.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.sql("SET LOCAL application_name = 'the report'")
    other.sql(ASKED)
    return other


@pytest.fixture
def clerk(engine: Engine) -> Iterator[psycopg.Connection]:
    """Return a connection as a user who may do nothing but look at the tables."""
    sql(engine, "CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
    sql(engine, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO clerk")
    raw = engine.connection.connection
    try:
        yield raw
    finally:
        sql(engine, "RESET ROLE")
        sql(engine, "DROP OWNED BY clerk")
        sql(engine, "DROP ROLE clerk")


@on_sqlite
def test_on_sqlite_there_is_nothing_to_say(engine: Engine) -> None:
    assert health(engine) is None


@on_postgresql
def test_live_and_dead_rows_and_the_size_are_those_that_the_server_counted(engine: Engine) -> None:
    before = health(engine)
    assert before is not None
    enqueue(30)
    sql(engine, "UPDATE django_jobs_job SET priority = 1")
    sql(engine, "SELECT pg_stat_force_next_flush()")

    def counted() -> bool:
        found = health(engine)
        assert found is not None
        return found.live_rows >= before.live_rows + 30 and found.dead_rows >= before.dead_rows + 30

    wait_for(counted)
    found = health(engine)
    assert found is not None
    assert found.size == sql(engine, "SELECT pg_total_relation_size('django_jobs_job')")[0][0] > 0
    assert 0 < found.dead_share < 1


@on_postgresql
def test_whoever_holds_the_oldest_snapshot_is_named_and_no_query_of_his(engine: Engine, holder: Session) -> None:
    sql(engine, "SELECT pg_current_xact_id()")  # so that the snapshot is older than the next transaction
    found = oldest_snapshot(engine)
    assert found is not None
    assert (found.kind, found.application_name, found.state) == ("session", "the report", "idle in transaction")
    assert found.pid == holder.sql("SELECT pg_backend_pid()")[0][0]
    assert found.database == engine.connection.settings_dict["NAME"]
    assert found.user == sql(engine, "SELECT current_user")[0][0]
    assert found.seconds is not None
    assert 0 <= found.seconds < 60
    assert ASKED not in repr(found)
    holder.rollback()
    assert oldest_snapshot(engine) is None


@on_postgresql
def test_a_session_of_ours_is_named_only_when_it_is_old(engine: Engine, holder: Session) -> None:
    holder.sql("SET LOCAL application_name = 'django_jobs:worker'")
    assert oldest_snapshot(engine) is None


@on_postgresql
def test_a_transaction_that_only_sits_open_holds_nothing(engine: Engine, other: Session) -> None:
    other.begin()
    other.sql(ASKED)
    assert oldest_snapshot(engine) is None


@on_postgresql
def test_who_may_see_nothing_of_others_is_told_their_names(engine: Engine, holder: Session, clerk: object) -> None:
    sql(engine, "SET ROLE clerk")
    found = oldest_snapshot(engine)
    assert found is not None
    assert (found.application_name, found.seconds, found.state) == ("the report", None, "")
    assert health(engine) is not None


@on_postgresql
def test_the_partitions_of_the_archive_are_listed_with_their_sizes(engine: Engine) -> None:
    sql(
        engine,
        "CREATE TABLE part_of_it PARTITION OF django_jobs_archivedjob FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')",
    )
    try:
        found = health(engine)
        assert found is not None
        (part,) = [item for item in found.partitions if item.name == "part_of_it"]
        assert part.size == sql(engine, "SELECT pg_total_relation_size('part_of_it')")[0][0] > 0
        assert part.rows == 0
    finally:
        sql(engine, "DROP TABLE part_of_it")


@alone
@on_postgresql
def test_a_session_is_not_told_of_itself(engine: Engine) -> None:
    sql(engine, "SELECT pg_current_xact_id()")
    assert oldest_snapshot(engine) is None
