"""`jobs doctor`: each finding comes of a fault that is really there, and goes with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from django_jobs import pause, registry
from django_jobs.doctor import server, tables
from django_jobs.doctor.examine import examine
from django_jobs.engines import health
from django_jobs.models import Effect, Job, Pause, Schedule, ScheduleState, Stat, Worker
from django_jobs.models.clock import Clock, database_now, for_row
from tests.acts import dead
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, alter, beside_others, enqueue, on_postgresql, order, sql
from tests.harness import wait_for
from tests.monitoring.common import Exited, due, silence, worker
from tests.threads import Session

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine
    from django_jobs.schedules.code import CodeSchedule

pytestmark = alone
# The server of the tests has no autovacuum, which is a finding.
ALWAYS = {"postgresql": ["autovacuum_off"], "sqlite": []}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the dead rows of all other tests."""
    monkeypatch.setattr(health, "BLOAT_ROWS", 10_000_000)


@pytest.fixture(autouse=True)
def live(engine: Engine) -> Worker:
    return worker(engine, listens=True)


def looked(engine: Engine) -> tuple[list[str], list[str]]:
    """Return the names of what is wrong, and those of notes."""
    findings = examine()
    names = [finding.name for finding in findings if not finding.is_note]
    for name in ALWAYS[engine.name]:
        names.remove(name)
    return names, [finding.name for finding in findings if finding.is_note]


def found(engine: Engine) -> list[str]:
    return looked(engine)[0]


def said(name: str) -> str:
    (finding,) = [finding for finding in examine() if finding.name == name]
    return f"{finding.text} -> {finding.remedy}"


def test_where_nothing_is_wrong_that_is_said_and_it_ends_well(engine: Engine) -> None:
    due(engine, 1)
    ran = Exited("doctor")
    if engine.name == "sqlite":
        assert (ran.code, ran.out) == (0, "Nothing is wrong, as far as can be seen from here.\n")
        assert Exited("doctor", "--json").data == []
    else:
        assert [row["name"] for row in Exited("doctor", "--json").data] == ["autovacuum_off"]


def test_what_is_wrong_is_said_with_what_to_do_and_the_exit_code_is_one(engine: Engine, live: Worker) -> None:
    live.delete()
    ran = Exited("doctor")
    assert ran.code == 1
    assert "no_workers: No worker runs, so no job is started.\n  -> Start `manage.py runworkers`.\n" in ran.out
    (row,) = [row for row in Exited("doctor", "--json").data if row["name"] == "no_workers"]
    assert row["remedy"] == "Start `manage.py runworkers`."


def test_what_only_has_to_be_looked_at_is_said_below_what_is_wrong_and_is_no_exit_code(engine: Engine) -> None:
    dead(engine, 3)
    ran = Exited("doctor")
    assert ran.code == (0 if engine.name == "sqlite" else 1)
    note = ran.out.partition("\nTo be looked at:\ndead_letters: ")[2]
    assert note.startswith(
        "Jobs that are dead or failed, and wait for a person: 3.\n  -> The admin's page of dead letters"
    )
    assert [row["name"] for row in Exited("doctor", "--json").data if row["is_note"]] == ["dead_letters"]


def test_no_worker_that_lives(engine: Engine, live: Worker) -> None:
    silence(engine, live)
    assert found(engine) == ["no_workers", "silent_workers"]
    assert "app1:7, for 12" in said("silent_workers")


def test_a_queue_that_nobody_serves(engine: Engine, live: Worker) -> None:
    due(engine, 1, queue="mail")
    assert found(engine) == []
    Worker.objects.using(engine.alias).filter(pk=live.pk).update(queues=["default"])
    assert found(engine) == ["unserved_queues"]
    assert "runworkers --queues mail`" in said("unserved_queues")


def test_a_worker_that_was_asked_to_be_quiet(engine: Engine, live: Worker) -> None:
    due(engine, 1)
    Worker.objects.using(engine.alias).filter(pk=live.pk).update(asked="quiet")
    assert found(engine) == ["quiet_workers", "unserved_queues"]
    assert "app1:7" in said("quiet_workers")


def test_a_type_that_no_live_worker_knows(engine: Engine, live: Worker) -> None:
    leave_effect.enqueue("x")
    engine.claim(order(1))
    assert found(engine) == []
    Worker.objects.using(engine.alias).filter(pk=live.pk).update(types=[nothing.name])
    assert found(engine) == ["unknown_type"]
    assert f"jobs cancel --type {leave_effect.name}`" in said("unknown_type")


@on_postgresql
def test_workers_that_are_not_woken_though_they_should_be(engine: Engine, live: Worker, settings: Any) -> None:
    deaf = Worker.objects.using(engine.alias).filter(pk=live.pk)
    deaf.update(listens=False)
    assert found(engine) == [], "it has just begun"
    deaf.update(started_at=Clock() - timedelta(minutes=2))
    assert found(engine) == ["not_woken"]
    assert "LISTEN_DSN" in said("not_woken")
    settings.DJANGO_JOBS = {"LISTEN": False}
    assert found(engine) == []


def test_a_queue_whose_oldest_job_waits_long(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"QUEUE_AGE_ALERT": 100}
    due(engine, 30)
    assert looked(engine) == ([], [])
    due(engine, 80)
    assert looked(engine) == ([], ["waits_long"])
    due(engine, 110, queue="mail")
    assert looked(engine) == (["waits_long"], ["waits_long"])
    pause(queue="default")
    assert "mail (11" in said("waits_long")
    pause(queue="mail")
    assert looked(engine) == ([], [])


def test_more_dead_letters_than_there_may_be(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"DEAD_LETTER_ALERT": 2}
    dead(engine, 2)
    assert found(engine) == []
    dead(engine, 1)
    assert found(engine) == ["dead_letters"]


def test_all_that_the_overview_says_of_what_waits_is_a_note(engine: Engine) -> None:
    suspect, unknown = due(engine, 1), due(engine, 1)
    alter(engine, suspect.pk, parked=Job.Parked.SUSPECT, suspect=True)
    alter(engine, unknown.pk, parked=Job.Parked.TYPE)
    assert looked(engine) == ([], ["suspects", "parked"])
    pause(queue="elsewhere")
    assert looked(engine)[1] == ["suspects"], "they may be what a pause holds"


@pytest.mark.parametrize(("done", "names"), [(8, []), (9, ["many_failures"])])
def test_many_failures_and_lost_runs(engine: Engine, done: int, names: list[str]) -> None:
    now = database_now(engine.alias).replace(second=0, microsecond=0)
    for minutes in (1, 2):
        minute = for_row(now - timedelta(minutes=minutes), engine.alias)
        counts = {"done": done, "dead": 1, "repeats": 1}
        Stat.objects.using(engine.alias).create(minute=minute, queue="q", type="t", runs=[], waits=[], **counts)
    assert looked(engine) == (names, ["lost_runs"])


def test_a_pause_that_somebody_forgot(engine: Engine) -> None:
    pause(queue="mail", why="the server moves\x1b[31m.")
    pause(type=nothing, until=timedelta(days=9))
    assert found(engine) == []
    Pause.objects.using(engine.alias).update(created_at=Clock() - timedelta(days=3))
    assert found(engine) == ["paused_long"]
    assert "for 3.0 days, without an end (the server moves" in said("paused_long")
    assert "jobs resume --queue mail" in said("paused_long")
    assert "\x1b" not in Exited("doctor").out


def test_effects_that_may_have_happened(engine: Engine) -> None:
    Effect.objects.using(engine.alias).create(kind="outside", key="charge:1")
    assert found(engine) == ["may_have_happened"]


@pytest.mark.parametrize(
    ("values", "state", "name"),
    [
        ({}, {"wake_at": Clock() - timedelta(minutes=1)}, "schedules_overdue"),
        ({}, {"error": "no such type"}, "schedules_broken"),
        ({"code": {}}, {"wake_at": Clock() + timedelta(minutes=1)}, "schedules_orphaned"),
    ],
)
def test_a_schedule_that_is_not_well(engine: Engine, values: dict[str, Any], state: dict[str, Any], name: str) -> None:
    given = {"name": "nightly", "type": nothing.name, "expression": "0 0 1 1 *", **values}
    made = Schedule.objects.using(engine.alias).create(**given)
    ScheduleState.objects.using(engine.alias).filter(schedule=made).update(**state)
    assert found(engine) == [name]
    assert "nightly" in said(name)


def test_a_schedule_of_the_code_that_no_scheduler_has_stored(
    engine: Engine, schedules_of_the_code: dict[str, CodeSchedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.schedules.code._schedules", schedules_of_the_code)
    assert found(engine) == ["schedules_not_stored"]


@beside_others
def test_an_index_that_is_missing_is_named_with_the_statement_that_makes_it(engine: Engine) -> None:
    ((before,),) = definition(engine)
    sql(engine, "DROP INDEX django_jobs_claim")
    try:
        assert found(engine) == ["index"]
        text = said("index")
        assert "django_jobs_claim of django_jobs_job is missing. -> Make it again: CREATE INDEX" in text
        sql(engine, text.partition("Make it again: ")[2])
        assert found(engine) == []
        assert definition(engine) == [(before,)]
    finally:
        if not definition(engine):
            sql(engine, before)


def definition(engine: Engine) -> list[Any]:
    if engine.name == "postgresql":
        return sql(engine, "SELECT indexdef FROM pg_indexes WHERE indexname = 'django_jobs_claim'")
    return sql(engine, "SELECT sql FROM sqlite_master WHERE name = 'django_jobs_claim'")


@on_postgresql
def test_an_index_that_is_invalid_is_named(engine: Engine) -> None:
    sql(engine, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'django_jobs_running'::regclass")
    assert found(engine) == ["index"]
    assert "DROP INDEX django_jobs_running; CREATE INDEX CONCURRENTLY" in said("index")


@on_postgresql
def test_autovacuum_that_is_off_for_the_table(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tables, "_AUTOVACUUM", tables._AUTOVACUUM.replace("current_setting('autovacuum') = 'on'", "true")
    )
    assert "autovacuum_off" not in [finding.name for finding in examine()]
    sql(engine, "ALTER TABLE django_jobs_job SET (autovacuum_enabled = off)")
    assert "autovacuum_off" in [finding.name for finding in examine()]


@beside_others
@on_postgresql
def test_more_dead_rows_than_live_ones(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    sql(engine, "TRUNCATE django_jobs_job")  # with what was dead
    monkeypatch.setattr(health, "BLOAT_ROWS", 50)
    made = enqueue(80)
    sql(engine, "DELETE FROM django_jobs_job WHERE id <= %s", made[59].pk)
    wait_for(lambda: sql(engine, "SELECT pg_stat_force_next_flush()") and "bloat" in found(engine))
    assert "VACUUM" in said("bloat")
    sql(engine, "VACUUM django_jobs_job")
    wait_for(lambda: sql(engine, "SELECT pg_stat_force_next_flush()") and "bloat" not in found(engine))


@beside_others
@on_postgresql
def test_an_old_snapshot_and_whose_it_is(engine: Engine, other: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    other.begin()
    other.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.sql("SET LOCAL application_name = 'the report'")
    ((pid,),) = other.sql("SELECT pg_backend_pid()")
    assert "old_snapshot" not in found(engine), "it is young"
    monkeypatch.setattr(health, "OLD_SNAPSHOT", 0.0)
    assert "old_snapshot" in found(engine)
    assert f"session {pid} of " in said("old_snapshot")
    assert "(the report), idle in transaction" in said("old_snapshot")
    assert f"pg_terminate_backend({pid})" in said("old_snapshot")
    other.rollback()
    assert "old_snapshot" not in found(engine)


@on_postgresql
def test_partitions_that_nobody_drops(engine: Engine) -> None:
    sql(
        engine,
        "CREATE TABLE old_part PARTITION OF django_jobs_archivedjob FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')",
    )
    assert found(engine) == ["old_partitions"]
    assert "old_part" in said("old_partitions")


@beside_others
def test_migrations_that_are_not_applied_are_all_that_is_said(engine: Engine) -> None:
    call_command("migrate", "django_jobs", "zero", database=engine.alias, verbosity=0)
    try:
        assert [finding.name for finding in examine()] == ["unapplied"]
        assert "0001_initial" in said("unapplied")
    finally:
        call_command("migrate", "django_jobs", database=engine.alias, verbosity=0)


@on_postgresql
def test_connections_that_are_almost_used_up(engine: Engine) -> None:
    sql(engine, f"ALTER DATABASE {engine.connection.settings_dict['NAME']} CONNECTION LIMIT 1")
    assert found(engine) == ["connections"]
    assert f"The database {engine.connection.settings_dict['NAME']} has " in said("connections")


def test_clocks_that_are_apart(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = database_now
    monkeypatch.setattr("django_jobs.monitoring.check.database_now", lambda alias: real(alias) - timedelta(seconds=30))
    assert found(engine) == ["clock_skew"]
    assert "30.0 s ahead of the database's" in said("clock_skew")


def test_our_own_system_checks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_clashes", [(nothing.job_type, leave_effect.job_type)])
    assert found(engine) == ["django_jobs.E002"]
    assert "Give one of them another name" in said("django_jobs.E002")


@contextmanager
def read_only(engine: Engine) -> Iterator[None]:
    name = engine.connection.settings_dict["NAME"]
    sql(engine, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        sql(engine, f"ALTER DATABASE {name} RESET default_transaction_read_only")


@beside_others
@on_postgresql
def test_a_database_that_cannot_be_written(engine: Engine) -> None:
    with read_only(engine):
        assert found(engine) == ["not_writable"]
        assert "read-only" in said("not_writable")


def test_a_check_that_fails_keeps_no_other_from_its_word(
    engine: Engine, live: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SESSIONS", "SELECT * FROM nothing_of_this_name")
    live.delete()
    names = found(engine)
    assert names[-1] == "no_workers"
    assert ("could_not_look" in names) == (engine.name == "postgresql")


def test_nothing_is_logged_by_looking(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "django_jobs"):
        examine()
    assert caplog.messages == []
