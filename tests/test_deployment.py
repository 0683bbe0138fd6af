"""A database that is another deployment's: nothing of it is run until somebody adopts it."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.db import ProgrammingError, connections
from django.db.models import F

from django_jobs import checks, deployment
from django_jobs.doctor.examine import examine
from django_jobs.engines.base import Engine
from django_jobs.exceptions import ConfigurationError
from django_jobs.models import Deployment, Job
from django_jobs.queue import rescue
from tests.acts import Ran, in_state
from tests.app.jobs import nothing
from tests.engines.common import alter, order, rows
from tests.harness import Tree
from tests.monitoring.common import worker
from tests.processes.common import lines, on_postgresql, with_processes, with_tables
from tests.processes.parts import Tables
from tests.schedules.common import HOUR, MINUTE, jobs, late, made, state, states, tick
from tests.threads import Session


def name(engine: Engine) -> str:
    return Deployment.objects.using(engine.alias).get().name


def becomes(engine: Engine, name: str) -> None:
    """Have the database be what a dump of another deployment is."""
    Deployment.objects.using(engine.alias).update_or_create(pk=1, defaults={"name": name, "instance": "ab" * 16})


@with_tables
class TestWhose:
    def test_the_first_name_is_stored_and_stays(self, engine: Engine) -> None:
        deployment.begin(engine, None)
        first = deployment.stored(engine)
        assert (first.name, len(first.instance)) == ("", 32)
        for _ in range(2):
            deployment.begin(engine, "production")
        assert deployment.stored(engine) == ("production", first.instance)
        for other in ("staging", None):
            with pytest.raises(ConfigurationError, match="that of the deployment 'production'"):
                deployment.begin(engine, other)
        assert deployment.stored(engine) == ("production", first.instance)

    def test_of_two_that_start_at_once_one_is_the_first(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        real, seen = deployment.stored, [deployment.Stored("", "")]
        deployment.begin(engine, "production")
        # As the other one saw it before.
        monkeypatch.setattr(deployment, "stored", lambda engine: seen.pop() if seen else real(engine))
        with pytest.raises(ConfigurationError, match="that of the deployment 'production'"):
            deployment.begin(engine, "staging")

    def test_a_check_and_the_doctor_say_it(self, engine: Engine, settings: Any) -> None:
        becomes(engine, "production")
        settings.DJANGO_JOBS = {"DEPLOYMENT": "production"}
        assert checks.check_server(None, databases=[engine.alias]) == []
        for given, says in (({"DEPLOYMENT": "staging"}, "DEPLOYMENT is 'staging'"), ({}, "DEPLOYMENT is not set")):
            settings.DJANGO_JOBS = given
            (found,) = checks.check_server(None, databases=[engine.alias])
            assert found.id == "django_jobs.W003"
            assert says in found.msg
        assert "django_jobs.W003" in [finding.name for finding in examine()]

    def test_it_is_asked_again_with_a_new_connection_and_where_it_matters_in_time(self, engine: Engine) -> None:
        becomes(engine, "production")
        owners = [deployment.Owner(engine, name, every) for name, every in ((None, 0), ("a", 0), ("a", 99))]
        becomes(engine, "")
        assert [owner.refuses() for owner in owners] == [""] * 3
        becomes(engine, "production")
        assert [bool(owner.refuses()) for owner in owners] == [True, True, False]
        connections[engine.alias].close()
        connections[engine.alias].ensure_connection()
        assert [bool(owner.refuses()) for owner in owners] == [True, True, True]

    def test_a_row_that_is_gone_as_after_a_flush_is_made_anew(self, engine: Engine) -> None:
        owner = deployment.Owner(engine, "staging", 0)
        assert (owner.refuses(), name(engine)) == ("", "staging")
        Deployment.objects.using(engine.alias).all().delete()
        assert (owner.refuses(), name(engine)) == ("", "staging")


@with_tables
class TestAdopting:
    def test_what_waits_is_said_and_nothing_is_done_without_a_yes(
        self, engine: Engine, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        becomes(engine, "production")
        settings.DJANGO_JOBS = {"DEPLOYMENT": "staging"}
        in_state(engine, "running")
        in_state(engine, "done")
        for _ in range(2):
            nothing.enqueue()
        made(engine)
        ran = Ran("adopt")
        assert (ran.code, ran.err.splitlines()) == (2, [
            "This database is that of the deployment 'production', "
            "and is to be that of the deployment 'staging'. There are in it:",
            "  2 jobs that wait",
            f"    2 {nothing.name}",
            "  1 jobs that ran when it was copied, and would run again",
            "  1 schedules that are enabled (`jobs pause --schedule NAME`)",
            "Your workers will run them; with --cancel they are cancelled instead.",
        ])  # fmt: skip
        monkeypatch.setattr(sys, "stdin", type("Terminal", (StringIO,), {"isatty": lambda self: True})("no\nyes\n"))
        assert Ran("adopt").code == 2
        assert name(engine) == "production"
        assert Ran("adopt").code == 0
        assert name(engine) == "staging"
        assert Job.objects.using(engine.alias).filter(status="ready").count() == 2

    def test_what_waits_and_what_ran_can_be_cancelled_with_it(self, engine: Engine, settings: Any) -> None:
        becomes(engine, "production")
        settings.DJANGO_JOBS = {"DEPLOYMENT": "staging"}
        running = in_state(engine, "running")
        waiting = [nothing.enqueue(), nothing.using(delay=60).enqueue()]
        data = Ran("adopt", "--cancel", "--yes", "--json").data
        assert data.pop("instance") != "ab" * 16
        assert data == {
            "was": "production", "deployment": "staging", "waiting": {nothing.name: 2}, "running": 1, "schedules": 0,
            "cancelled": 2, "asked": 1, "refused": 0,
        }  # fmt: skip
        alter(engine, running.pk, locked_until=running.created_at)
        rescue.reap(engine, 10)
        assert {job.refresh().status for job in [running, *waiting]} == {"cancelled"}
        deployment.begin(engine, "staging")
        assert "already" in Ran("adopt").out

    @pytest.mark.parametrize(("key", "code"), [(EOFError, 1), (KeyboardInterrupt, 130)])
    def test_ctrl_d_and_ctrl_c_at_the_question_end_it_in_one_line(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, key: type[BaseException], code: int
    ) -> None:
        def readline(*_: Any) -> str:
            raise key

        becomes(engine, "production")
        monkeypatch.setattr(
            sys, "stdin", type("Terminal", (StringIO,), {"isatty": lambda _: True, "readline": readline})()
        )
        ran = Ran("adopt")
        assert (ran.code, ran.error, name(engine)) == (code, "Nothing was done.", "production")

    def test_with_what_waits_the_slots_that_schedules_had_still_to_run_are_dropped(self, engine: Engine) -> None:
        becomes(engine, "production")
        busy, paused = late(engine, HOUR, MINUTE), late(engine, HOUR, MINUTE, name="paused")
        paused.pause(by="ann", why="broken")
        states(engine).update(pending_slot=F("changed_at"))
        assert Ran("adopt", "--cancel", "--yes").code == 0
        tick(engine)
        assert (jobs(engine), state(engine, busy).pending_slot, state(engine, busy).missed) == ([], None, 0)
        assert state(engine, paused).paused_by == "ann"

    def test_a_database_in_which_workers_are_at_work_is_no_copy(self, engine: Engine, settings: Any) -> None:
        becomes(engine, "production")
        settings.DJANGO_JOBS = {"DEPLOYMENT": "staging"}
        row = worker(engine)
        ran = Ran("adopt", "--yes")
        assert (ran.code, f"are at work in this database ({row})" in ran.error) == (2, True)
        assert name(engine) == "production"


@with_tables
class TestClaiming:
    def test_a_worker_claims_nothing_of_a_database_that_became_anothers_a_moment_ago(self, engine: Engine) -> None:
        tables = Tables(engine, deployment="staging", heartbeat=1e6)
        tables.map.beat(1e12)
        process = tables.worker()
        nothing.enqueue()
        process._step()
        nothing.enqueue()
        becomes(engine, "production")
        process._claimer.hear_news()
        process._step()
        assert sorted(Job.objects.using(engine.alias).values_list("status", flat=True)) == ["ready", "running"]

    @pytest.mark.parametrize("parked", [None, "type", "suspect"])
    def test_no_claim_brings_a_job_of_anothers_database_nor_of_one_that_is_half_restored(
        self, engine: Engine, parked: str | None
    ) -> None:
        claims = {None: engine.claim, "type": engine.claim_parked, "suspect": engine.claim_suspect}
        alter(engine, nothing.enqueue().pk, parked=parked, suspect=parked == "suspect")
        owner = order(deployment="production")
        before = rows(engine)
        assert claims[parked](owner) == ([], 0, 0)
        becomes(engine, "production")
        for name in ("staging", ""):
            assert claims[parked](replace(owner, deployment=name)) == ([], 0, 0)
        assert rows(engine) == before
        assert len(claims[parked](owner).jobs) == 1

    @on_postgresql
    def test_nobody_takes_a_database_in_the_midst_of_its_restore(self, engine: Engine, other: Session) -> None:
        # pg_restore makes keys when all rows are there.
        other.begin()
        other.sql("ALTER TABLE django_jobs_deployment DROP CONSTRAINT django_jobs_deployment_pkey")
        with pytest.raises(ProgrammingError):
            other.do(lambda: deployment.begin(engine, "staging"))
        other.rollback()


@on_postgresql
class TestCommands:
    pytestmark = with_processes

    def test_workers_and_schedulers_stop_when_it_becomes_anothers_and_do_not_start(self, tree: Tree) -> None:
        settings = {"DEPLOYMENT": "staging", "HEARTBEAT": 0.5}
        workers, scheduler = tree.start(settings=settings), tree.start_scheduler(settings=settings)
        workers.wait_until_ready()
        scheduler.wait_until_ready()
        Deployment.objects.using(tree.alias).update(name="production")
        assert (workers.wait(), scheduler.wait()) == (2, 2)
        says = "The jobs' database is that of the deployment 'production'"
        for command in (workers, scheduler):
            assert lines(command, says)
        job = nothing.enqueue()
        ended = tree.run("runworkers", "--burst", settings=settings)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"CommandError: {says}")
        assert job.refresh().status == "ready"
