"""What is told of a statement by its first words."""

from __future__ import annotations

import time

import pytest

from django_jobs.workers.refusals import ends_transaction, may_write

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "commit;",
        " -- so\n COMMIT",
        "/* a */ /* b */ COMMIT",
        "/* a * b **/ROLLBACK",
        "; END",
        "SELECT 1; COMMIT",
        "SELECT 'a;b' ; /* c */ end",
        "PREPARE TRANSACTION 'x'",
    ],
)
def test_what_ends_a_transaction_is_found_behind_its_comments(sql: str) -> None:
    assert ends_transaction(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "ROLLBACK TO SAVEPOINT a",
        "/* note */ UPDATE t SET a = CASE WHEN a > 1 THEN 1 /* else null */ END",
        "UPDATE t SET a = 'COMMIT'",
        "-- COMMIT",
        "SELECT 1; -- COMMIT",
        "SELECT '; COMMIT'",
        "DO $$ BEGIN PERFORM 1; END $$; SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET b = 1; END",
    ],
)
def test_what_does_not_end_it_is_let_through(sql: str) -> None:
    assert not ends_transaction(sql)


def test_many_comments_take_no_time() -> None:
    begun = time.monotonic()
    assert not ends_transaction("/* a */ " * 2000 + "SELECT 1")
    assert not may_write("/* a */ " * 2000 + "SELECT 1")
    assert time.monotonic() - begun < 2  # they took for ever


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1)",
        "/* a */ UPDATE t SET a = 1",
        "WITH gone AS (DELETE FROM t RETURNING a) SELECT * FROM gone",
        "SELECT 1 INTO t",
        "SELECT 1; DELETE FROM t",
        "PRAGMA user_version = 3",
        "CREATE TABLE t (a int)",
        "CALL p()",
    ],
)
def test_what_may_write_is_found(sql: str) -> None:
    assert may_write(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "(SELECT 1) UNION SELECT 2",
        "SELECT * FROM t FOR UPDATE",
        "WITH a AS (SELECT 1) SELECT * FROM a FOR NO KEY\nUPDATE",
        "WITH a AS (SELECT 1 AS \"update\") SELECT 'INSERT' FROM a",
        "SELECT '; DELETE'",
        "PRAGMA user_version",
        "SAVEPOINT a",
    ],
)
def test_what_only_reads_is_let_through(sql: str) -> None:
    assert not may_write(sql)
