"""What worker processes count of what they ran."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs.engines.base import Engine
from django_jobs.engines.values import Done, Settlement
from django_jobs.models import Job, Stat
from django_jobs.models.clock import database_now, from_row
from django_jobs.models.stat import CLASSES, COUNTERS
from django_jobs.workers.ended import LOST, Ended
from django_jobs.workers.tally import Tallies
from tests.app.async_jobs import wait_until_cancelled
from tests.app.jobs import leave_effect, nothing
from tests.harness import Tree
from tests.processes.common import LEASE_2, wait_for_effect, with_processes, with_tables
from tests.processes.parts import claimed

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()


def rows(engine: Engine) -> list[dict[str, Any]]:
    found = Stat.objects.using(engine.alias).order_by("minute", "queue", "type", "incarnation")
    return [{**row} for row in found.values()]


def counts(row: dict[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in COUNTERS if row[name]}


class TestTallies:
    pytestmark = with_tables

    def item(self, engine: Engine, end: str = "done", at: float = T0, **values: Any) -> tuple[Ended, dict[int, str]]:
        (job,) = claimed(engine, 1)
        job = job._replace(**{"due": at, "waited": 0.0, **values})
        cause = {"stopped": "stopped", "released": "released"}.get(end, "raised")
        outcome = Done(job.run, None) if end == "done" else Settlement(job.run, "ready", "nothing", cause)
        return Ended(0, job, outcome, 0.02), {job.id: "ready" if end in ("stopped", "released") else end}

    def note(self, tallies: Tallies, item: tuple[Ended, dict[int, str]]) -> None:
        tallies.note([item[0]], item[1])

    def test_each_minute_queue_and_type_has_a_row_that_is_written_anew(self, engine: Engine) -> None:
        tallies = Tallies("a1")
        for at in (T0, T0 + 59, T0 + 60):
            self.note(tallies, self.item(engine, at=at))
        self.note(tallies, self.item(engine, at=T0, queue="mail"))
        tallies.store(engine)
        self.note(tallies, self.item(engine, at=T0 + 1))
        tallies.store(engine)
        tallies.store(engine)
        found = [(row["minute"], row["queue"], row["done"]) for row in rows(engine)]
        first = datetime.fromtimestamp(T0, UTC)
        assert [(from_row(minute, engine.alias), queue, done) for minute, queue, done in found] == [
            (first, "default", 3),
            (first, "mail", 1),
            (first + timedelta(minutes=1), "default", 1),
        ]
        assert {(row["type"], row["incarnation"], row["seconds"]) for row in rows(engine)} == {(nothing.name, "a1", 60)}

    def test_two_processes_count_in_rows_of_their_own(self, engine: Engine) -> None:
        for incarnation in ("a1", "b2"):
            tallies = Tallies(incarnation)
            self.note(tallies, self.item(engine))
            tallies.store(engine)
        assert [(row["incarnation"], row["done"]) for row in rows(engine)] == [("a1", 1), ("b2", 1)]

    @pytest.mark.parametrize(
        ("end", "counted"),
        [
            *[(end, {end: 1}) for end in ("done", "failed", "dead", "cancelled", "stopped")],
            ("ready", {"retried": 1}),
            (LOST, {"lost_leases": 1}),
            ("released", {}),
        ],
    )
    def test_an_end_counts_as_what_it_was(self, engine: Engine, end: str, counted: dict[str, int]) -> None:
        tallies = Tallies("a1")
        self.note(tallies, self.item(engine, end))
        tallies.store(engine)
        assert [counts(row) for row in rows(engine)] == ([counted] if counted else [])

    def test_a_run_after_a_lost_one_is_a_repeat(self, engine: Engine) -> None:
        tallies = Tallies("a1")
        self.note(tallies, self.item(engine, losses=2))
        self.note(tallies, self.item(engine))
        tallies.store(engine)
        assert [counts(row) for row in rows(engine)] == [{"done": 2, "repeats": 1}]

    def test_what_ended_for_good_is_counted_by_the_attempt_in_which_it_did(self, engine: Engine) -> None:
        tallies = Tallies("a1")
        for end, attempts in [("done", 0), ("done", 0), ("ready", 0), ("failed", 2), ("stopped", 1), ("dead", 40)]:
            self.note(tallies, self.item(engine, end, attempts=attempts))
        tallies.store(engine)
        assert [row["attempts"] for row in rows(engine)] == [[2, 0, 1, 0, 0, 0, 0, 0, 0, 1]]

    def test_waits_and_runs_are_counted_by_their_length(self, engine: Engine) -> None:
        tallies = Tallies("a1")
        for waited in (0.0, 0.001, 0.3, 9999.0, -5.0):
            self.note(tallies, self.item(engine, waited=waited, at=T0 - waited))
        tallies.store(engine)
        (row,) = rows(engine)
        assert (len(row["waits"]), sum(row["waits"]), sum(row["runs"])) == (len(CLASSES) + 1, 5, 5)
        assert (row["waits"][0], row["waits"][CLASSES.index(0.5)], row["waits"][-1]) == (3, 1, 1)
        assert row["runs"][CLASSES.index(0.025)] == 5
        assert (row["run_seconds"], row["wait_seconds"]) == (pytest.approx(0.1), pytest.approx(9999.301))

    def test_what_ends_in_a_minute_that_is_no_longer_kept_is_counted_in_the_oldest_that_is(
        self, engine: Engine
    ) -> None:
        tallies = Tallies("a1")
        self.note(tallies, self.item(engine, at=T0))
        tallies.store(engine)
        self.note(tallies, self.item(engine, at=T0 + 600))
        tallies.store(engine)
        self.note(tallies, self.item(engine, at=T0))
        tallies.store(engine)
        assert [row["done"] for row in rows(engine)] == [1, 1, 1]
        assert len({row["minute"] for row in rows(engine)}) == 3

    def test_rows_are_due_every_few_seconds_while_something_changes(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tallies = Tallies("a1")
        self.note(tallies, self.item(engine))
        due = [tallies.due]
        monkeypatch.setattr(tallies, "_store_at", 0.0)
        due.append(tallies.due)
        tallies.store(engine)
        due.append(tallies.due)
        assert due == [False, True, False]


class TestInATree:
    pytestmark = with_processes

    def test_at_its_end_a_worker_process_has_counted_all_it_ran(self, tree: Tree) -> None:
        before = database_now(tree.alias)
        jobs = [nothing.using(queue=f"q{number % 2}").enqueue(number) for number in range(40)]
        jobs.append(leave_effect.enqueue("a"))
        workers = tree.start("--burst", "--processes", "2")
        assert workers.wait() == 0, workers.log
        stats = Stat.objects.using(tree.alias)
        assert sum(row.done for row in stats.all()) == len(jobs)
        assert sum(row.done for row in stats.filter(queue="q0", type=nothing.name)) == 20
        assert {sum(row.runs) == sum(row.waits) == row.done for row in stats.all()} == {True}
        minutes = {from_row(row.minute, tree.alias) for row in stats.all()}
        assert min(minutes) >= before.replace(second=0, microsecond=0)
        assert max(minutes) <= database_now(tree.alias)

    def test_what_is_stopped_is_counted_by_the_process_that_stops(self, tree: Tree) -> None:
        wait_until_cancelled.enqueue("a")
        workers = tree.start(settings={**LEASE_2, "SHUTDOWN_GRACE": 2})
        wait_for_effect(tree, "a:start")
        assert workers.stop() == 3
        (row,) = Stat.objects.using(tree.alias).all()
        assert (row.stopped, row.done) == (1, 0)
        assert Job.objects.using(tree.alias).get().status == "ready"
