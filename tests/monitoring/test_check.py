"""`jobs check`: what a monitoring system is told."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs import pause
from django_jobs.models import Schedule, ScheduleState
from django_jobs.models.clock import Clock, database_now
from django_jobs.monitoring import check
from django_jobs.monitoring.levels import Level, Measured, line, worst
from tests.acts import dead
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, beside_others, order
from tests.harness import ROOT, Tree
from tests.monitoring.common import Exited, due, silence, worker

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone


def test_all_is_well_with_a_live_worker_and_nothing_that_waits_long(engine: Engine) -> None:
    worker(engine)
    due(engine, 1)
    found = Exited("check")
    assert found.code == 0
    assert re.fullmatch(
        r"OK - 1 live worker processes, the oldest due job waits for \d\.\d s \| workers=1;;1:;0 silent=0;0;;0 .*\n",
        found.out,
    )
    assert re.search(r" oldest_default=\d(\.\d+)?s;450;900;0 dead=0;500;1000;0 ", found.out)


def test_without_a_worker_it_is_critical(engine: Engine) -> None:
    found = Exited("check")
    assert (found.code, found.out.partition(" | ")[0]) == (2, "CRITICAL - no live worker")


@pytest.mark.parametrize(("seconds", "code"), [(100, 0), (600, 1), (1200, 2)])
def test_the_oldest_due_job_of_a_queue_is_held_against_the_default_thresholds(
    engine: Engine, seconds: float, code: int
) -> None:
    worker(engine)
    due(engine, seconds, queue="mail")
    found = Exited("check")
    assert found.code == code
    assert ("the oldest due job of mail waits for" in found.out) == bool(code)


def test_the_settings_of_alerts_are_the_thresholds_and_options_go_before_them(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"QUEUE_AGE_ALERT": 60, "DEAD_LETTER_ALERT": 4}
    worker(engine)
    dead(engine, 3)
    due(engine, 40)
    found = Exited("check")
    assert (found.code, "3 dead letters" in found.out) == (1, True)
    assert re.search(r"oldest_default=4\d[.\d]*s;30;60;0 dead=3;2;4;0", found.out)
    assert Exited("check", "--age-critical", "35").code == 2
    assert Exited("check", "--age-warning", "1m", "--dead-warning", "3").code == 0
    assert Exited("check", "--dead-critical", "2").code == 2
    dead(engine, 2)
    assert Exited("check").code == 2


def test_dead_letters_are_counted_no_further_than_the_threshold(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "LEAST_COUNTED", 2)
    worker(engine)
    dead(engine, 5)
    found = Exited("check", "--dead-warning", "1", "--dead-critical", "2")
    assert "3 or more dead letters" in found.out


def test_a_queue_with_due_jobs_that_no_live_worker_serves_is_critical(engine: Engine) -> None:
    worker(engine, queues=["default"])
    nothing.using(queue="mail", delay=60).enqueue()
    assert Exited("check").code == 0
    due(engine, 1, queue="mail")
    found = Exited("check")
    assert (found.code, "no live worker serves mail, where jobs are due" in found.out) == (2, True)
    worker(engine, id="w0", asked="quiet")
    assert Exited("check").code == 2
    worker(engine, id="w2", queues=["mail", "other"])
    assert Exited("check").code == 0


def test_only_the_queues_that_are_named_and_their_workers_are_looked_at(engine: Engine) -> None:
    worker(engine, queues=["default"])
    due(engine, 5000, queue="mail")
    assert Exited("check", "--queues", "default").code == 0
    assert Exited("check", "--queues", "mail,other").out.startswith("CRITICAL - no live worker")


def test_a_paused_queue_may_wait_and_is_named(engine: Engine) -> None:
    worker(engine)
    due(engine, 5000, queue="mail")
    pause(queue="mail")
    found = Exited("check")
    assert (found.code, "; paused: mail |" in found.out) == (0, True)


def test_a_silent_worker_is_a_warning_that_names_it(engine: Engine) -> None:
    worker(engine)
    silence(engine, worker(engine, id="w2", host="app2"))
    found = Exited("check")
    assert found.code == 1
    assert re.search(r"WARNING - 1 silent worker process \(app2:7, for up to 12\d s\) \|", found.out)
    assert Exited("check", "--silent-critical", "0").code == 2
    assert Exited("check", "--workers-warning", "2").code == 1
    assert Exited("check", "--workers-critical", "2").code == 2


def test_types_that_nobody_knows_are_a_warning_when_their_jobs_wait_long(engine: Engine) -> None:
    worker(engine, types=[nothing.name])
    job = leave_effect.enqueue("x")
    engine.claim(order(1))
    assert Exited("check").code == 0
    type(job).objects.using(engine.alias).update(run_at=Clock() - timedelta(seconds=100))
    found = Exited("check")
    assert (found.code, f"no live worker knows {leave_effect.name}: jobs of it are parked for 10" in found.out) == (
        1,
        True,
    )


def test_schedules_that_are_overdue_or_broken_are_warnings(engine: Engine) -> None:
    worker(engine)
    states: dict[str, dict[str, Any]] = {"late": {"wake_at": Clock() - timedelta(minutes=1)}, "wrong": {"error": "no"}}
    for name, values in states.items():
        made = Schedule.objects.using(engine.alias).create(name=name, type=nothing.name, expression="0 0 1 1 *")
        ScheduleState.objects.using(engine.alias).filter(schedule=made).update(**values)
    found = Exited("check")
    assert found.code == 1
    assert found.out.startswith("WARNING - 1 schedule overdue; 1 schedule broken |")
    assert Exited("check", "--overdue-critical", "0").code == 2


def test_clocks_that_are_apart_are_a_warning(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(engine)
    real = database_now
    assert abs(check.skew(engine.alias)) < 1
    monkeypatch.setattr("django_jobs.monitoring.check.database_now", lambda alias: real(alias) - timedelta(seconds=30))
    assert 29 < check.skew(engine.alias) < 31
    found = Exited("check")
    assert (found.code, "the clocks of this host and the database are 30.0 s apart" in found.out) == (1, True)


def test_as_json_every_value_is_told_with_its_thresholds(engine: Engine) -> None:
    worker(engine)
    due(engine, 600, queue="mail")
    data = Exited("check", "--json").data
    assert (data["level"], data["code"]) == ("WARNING", 1)
    (row,) = [row for row in data["measured"] if row["name"] == "oldest_mail"]
    assert (row["level"], row["unit"], row["warning"], row["critical"]) == ("WARNING", "s", 450.0, 900.0)
    assert data["line"].startswith(f"WARNING - {row['text']} | ")


@pytest.mark.parametrize(
    "given",
    [
        ["--age-warning", "soon"],
        ["--dead-warning", "-1"],
        ["--queues", "a b"],
        ["--queues", ""],
        ["--workers-critical", "x"],
    ],
)
def test_values_that_cannot_be_used_are_unknown_in_a_line(engine: Engine, given: list[str]) -> None:
    found = Exited("check", *given)
    assert found.code == 3
    assert found.out.startswith("UNKNOWN - ")
    assert found.out.count("\n") == 1
    assert "|" not in found.out


def test_settings_that_cannot_be_used_are_unknown(engine: Engine, settings: Any) -> None:
    settings.DJANGO_JOBS = {"THREADS": 0}
    found = Exited("check", "--json")
    assert (found.code, found.data["level"]) == (3, "UNKNOWN")


@beside_others
@pytest.mark.process
def test_an_unknown_option_and_a_database_that_is_away_are_unknown_on_stdout(tree: Tree) -> None:
    wrong = tree.run("jobs", "check", "--nonsense")
    assert (wrong.returncode, wrong.stdout) == (3, "UNKNOWN - unrecognized arguments: --nonsense\n")
    twice = tree.run("jobs", "check", "--queues", "a", "--queues", "b")
    assert (twice.returncode, twice.stdout[:31]) == (3, "UNKNOWN - --queues is given twi")
    nowhere = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none", "HOST": "127.0.0.1", "PORT": "1"}}
    away = subprocess.run(
        tree.command("jobs", "check"),
        env=tree.environment({}) | {"DJANGO_JOBS_TEST_DATABASES": json.dumps(nowhere)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (away.returncode, away.stderr) == (3, "")
    assert away.stdout.startswith("UNKNOWN - The jobs' database refused (")
    assert away.stdout.count("\n") == 1


def test_a_line_ends_at_the_first_bar_and_labels_are_quoted() -> None:
    found = [Measured("a b|c'=", 1.5, 1, None, "x | y\nz", unit="s"), Measured("n", 2, None, 3, least=True, text="few")]
    assert (found[0].level, found[1].level, worst(found)) == (Level.WARNING, Level.CRITICAL, Level.CRITICAL)
    assert line(found, "well") == "CRITICAL - few; x / y z | 'a b_c__'=1.5s;1;;0 n=2;;3:;0"
    assert line([], "well") == "OK - well | "
