from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest
from django.core.checks.registry import registry
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from django_jobs import pause, resume
from django_jobs.engines.base import Engine
from django_jobs.engines.values import ClaimOrder, Done
from django_jobs.exceptions import ConfigurationError
from django_jobs.management.commands import runworkers
from django_jobs.models import Job, Worker
from tests.acts import Ran, age, dead
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import MIGRATE, beside_others, claim_one, enqueue, order, settled, sql
from tests.harness import ROOT, Tree, wait_for
from tests.threads import session

pytestmark = [pytest.mark.django_db(databases="__all__")]


def jobs(*arguments: str) -> str:
    out = StringIO()
    call_command("jobs", *arguments, stdout=out)
    return out.getvalue()


def as_json(*arguments: str) -> Any:
    return json.loads(jobs(*arguments, "--json"))


def test_status_counts_what_the_table_holds(engine: Engine) -> None:
    for _ in range(3):
        nothing.enqueue()
    nothing.using(delay=60).enqueue()
    nothing.using(queue="mail").enqueue()
    leave_effect.enqueue("unknown to the worker")
    asked = ClaimOrder(locked_by="w:1", lease=30, limit=4, queues=("default",), types=(nothing.name,))
    claimed = engine.claim(asked).jobs
    engine.complete([Done(claimed[0].run, None)])
    state = as_json("status")
    rows = {row["queue"]: row for row in state["queues"]}
    assert {name: rows["default"][name] for name in ("due", "later", "retries", "parked", "running")} == {
        "due": 0, "later": 1, "retries": 0, "parked": 1, "running": 2,
    }  # fmt: skip
    assert rows["mail"]["due"] == 1
    assert rows["mail"]["oldest_due_seconds"] >= 0
    assert state["finished"] == {"done": 1, "failed": 0, "dead": 0, "cancelled": 0}
    assert [row["type"] for row in state["unknown_types"]] == [leave_effect.name]
    assert state["workers"] == []
    text = jobs("status")
    assert "No worker runs: start `manage.py runworkers`." in text
    assert f"No live worker knows '{leave_effect.name}': 1 jobs parked" in text


def test_status_counts_suspects_among_what_is_parked_and_show_says_that_a_job_is_one(engine: Engine) -> None:
    found = [nothing.enqueue(number) for number in range(3)]
    Job.objects.using(engine.alias).filter(pk__in=[job.pk for job in found[:2]]).update(suspect=True, parked="suspect")
    (row,) = as_json("status")["queues"]
    assert (row["due"], row["parked"], row["suspects"]) == (1, 2, 2)
    assert "suspects among these" in jobs("status")
    assert as_json("show", str(found[0].pk))["suspect"] is True
    assert as_json("show", str(found[2].pk))["suspect"] is False


def test_status_names_the_type_of_suspects_that_nobody_knows(engine: Engine) -> None:
    nothing.enqueue()
    Job.objects.using(engine.alias).update(suspect=True, parked="suspect")
    said = f"No live worker knows '{nothing.name}': 1 jobs parked"
    assert said not in jobs("status")  # none runs, which is said
    Worker.objects.using(engine.alias).create(
        id="w", host="h", pid=1, supervisor_pid=1, threads=1, queues=None, types=[leave_effect.name]
    )
    assert said in jobs("status")
    pause(type=nothing)
    assert said not in jobs("status")


def test_status_names_a_type_that_was_removed_while_a_pause_had_its_jobs_parked(engine: Engine) -> None:
    enqueue(2)
    pause(type=nothing)
    assert engine.claim(order(10)).parked == 2
    assert as_json("status")["unknown_types"] == []
    resume(type=nothing)
    live = Worker.objects.using(engine.alias).create(
        id="w", host="host", pid=7, supervisor_pid=6, queues=None, types=[nothing.name], threads=4
    )
    assert as_json("status")["unknown_types"] == []
    Worker.objects.using(engine.alias).filter(pk=live.pk).update(types=[leave_effect.name])
    ((name, number),) = [(row["type"], row["jobs"]) for row in as_json("status")["unknown_types"]]
    assert (name, number) == (nothing.name, 2)


def test_status_shows_workers_and_whether_they_live(engine: Engine) -> None:
    Worker.objects.using(engine.alias).create(
        id="w", host="host", pid=7, supervisor_pid=6, queues=["mail"], types=[nothing.name], threads=4
    )
    (row,) = as_json("status")["workers"]
    assert (row["host"], row["pid"], row["queues"], row["threads"], row["live"]) == ("host", 7, ["mail"], 4, True)
    assert "host:7" in jobs("status")


def test_list_shows_the_newest_first_and_filters(engine: Engine) -> None:
    first, second = nothing.enqueue(), leave_effect.using(queue="mail").enqueue("x")
    assert [row["id"] for row in as_json("list")] == [second.pk, first.pk]
    assert [row["id"] for row in as_json("list", "--limit", "1")] == [second.pk]
    assert [row["id"] for row in as_json("list", "--queue", "mail")] == [second.pk]
    assert [row["id"] for row in as_json("list", "--type", nothing.name)] == [first.pk]
    assert as_json("list", "--status", "dead") == []
    assert jobs("list", "--status", "dead") == "No job matches.\n"
    assert str(first.pk) in jobs("list")


def test_show_prints_the_whole_story_and_the_sentence_of_explain(engine: Engine) -> None:
    job = nothing.using(idempotency_key="k", delay=3600).enqueue(42)
    story = as_json("show", str(job.pk))
    assert story["explanation"] == job.explain()
    assert (story["args"], story["idempotency_key"], story["runs"]) == ([42], "k", 0)
    text = jobs("show", str(job.pk))
    assert job.explain() in text
    assert "(42)" in text


def test_list_is_narrowed_by_what_is_in_a_job(engine: Engine) -> None:
    wanted = nothing.using(priority=7).enqueue(5).pk
    nothing.enqueue(6)
    changed = (
        "UPDATE django_jobs_job SET last_error = 'OSError: disk', schedule = 'nightly', meta = '{\"tags\": [\"eu\"]}'"
    )
    sql(engine, f"{changed} WHERE id = %s", wanted)
    for options in (
        ["--priority", "7"],
        ["--schedule", "nightly"],
        ["--tag", "eu"],
        ["--error", "oserror"],
        ["--argument", "args.0=5"],
        ["--argument", "args.0=5", "--since", "1h"],
    ):
        assert [row["id"] for row in as_json("list", *options)] == [wanted], options
    assert as_json("list", "--until", "1h") == []
    assert len(as_json("list", "--since", "2020-01-01T00:00")) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--priority", "abc"], "--priority is 'abc'; give a whole number from -100 to 100."),
        (["--argument", "order_id=42"], "--argument: The way to an argument is 'order_id'"),
        (["--argument", "args.0"], "--argument is 'args.0'; give args.0=5"),
        (["--since", "soon"], "--since is 'soon'; give a time as"),
        (["--until", "9999-12-31"], "--until is '9999-12-31'; give a time as"),
        (["--tag", "a\x00b"], "--tag"),
    ],
)
def test_list_refuses_what_it_cannot_look_for(engine: Engine, options: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=re.escape(says)) as refused:
        jobs("list", *options)
    assert refused.value.returncode == 2


def test_list_says_when_its_limit_cut_it_and_what_the_last_end_said(engine: Engine) -> None:
    made = enqueue(3)
    made[2].cancel(why="not wanted\n" + "x" * 100)
    cut = Ran("list", "--limit", "2")
    assert "There are more: these are the 2 newest. Narrow it, or give --limit." in cut.out
    assert "by ada" not in cut.out
    assert f"not wanted {'x' * 46}..." in cut.out
    assert len(Ran("list", "--limit", "2", "--json").data) == 2
    assert "There are more" not in Ran("list", "--limit", "3").out


def test_list_says_in_which_attempt_a_job_is_or_ended(engine: Engine) -> None:
    kept = {"payload": {"args": [], "kwargs": {}}, "type": nothing.name, "max_attempts": 8}
    for status, attempts, runs in (
        ("ready", 0, 0),
        ("ready", 8, 8),  # with more attempts than it is allowed by now
        ("done", 0, 1),
        ("done", 2, 3),
        ("dead", 8, 8),
        ("dead", 0, 2),  # lost
        ("cancelled", 0, 0),
        ("cancelled", 0, 1),
    ):
        ended = {} if status == "ready" else {"finished_at": Now()}
        Job.objects.using(engine.alias).create(status=status, attempts=attempts, token=runs, **kept, **ended)
    ran = Ran("list")
    said = [word for line in ran.out.splitlines() for word in line.split() if word.endswith("/8")]
    assert said[::-1] == ["1/8", "8/8", "1/8", "3/8", "8/8", "1/8", "0/8", "1/8"]
    assert [row["attempts"] for row in Ran("list", "--json").data][::-1] == [0, 8, 0, 2, 8, 0, 0, 0]
    assert "claimed 1 time," in jobs("show", str(ran.out.splitlines()[-8].split()[0]))


def test_list_of_what_ended_without_success_shows_the_last_ended_first(engine: Engine) -> None:
    made = dead(engine, 3)
    for job, hours in zip(made, (1, 3, 2), strict=True):
        age(engine, job, hours=hours)
    assert [row["id"] for row in Ran("list", "--status", "dead", "--json").data] == [
        made[0].pk,
        made[2].pk,
        made[1].pk,
    ]


def test_show_has_the_acts_and_does_not_call_a_snooze_an_error(engine: Engine) -> None:
    job = nothing.using(expires=3600).enqueue()
    run = claim_one(engine)
    line = {"run": 1, "cause": "snoozed", "error": "Snooze", "worker": "h:1", "seconds": 0.1}
    engine.settle([settled(run, delay=60.0, error="Snooze", entry=json.dumps(line))], 10)
    text = Ran("show", str(job.pk)).out
    assert "Last error" not in text
    assert "snoozed" in text
    assert "expires at " in text
    job.cancel(why="enough")
    text = Ran("show", str(job.pk)).out
    assert "called off" in text
    assert "cancelled        enough" in text


@pytest.mark.parametrize("value", ["abc", "-1", "0", "1.5", "9223372036854775808", "9" * 5000, "\N{SUPERSCRIPT TWO}"])
def test_an_id_that_is_none_ends_in_one_line_and_exit_2(engine: Engine, value: str) -> None:
    with pytest.raises(CommandError, match="is not the id of a job") as caught:
        jobs("show", "--", value)
    assert caught.value.returncode == 2
    assert "\n" not in str(caught.value)


def test_a_missing_job_is_named(engine: Engine) -> None:
    with pytest.raises(CommandError, match=r"There is no job 12\."):
        jobs("show", "12")


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--threads", "0"], "--threads is '0'; give a whole number from 1 to 1,000."),
        (["--threads", "1001"], "--threads is '1001'; give a whole number from 1 to 1,000."),
        (["--burst", "--reload"], "--burst ends when nothing is due, and --reload never does: give one of them."),
        (["--processes", "x"], "--processes is 'x'; give a whole number from 1 to 1,000."),
        (
            ["--queues", "a b"],
            "--queues: the queue name 'a b' has a comma, a space or a control character; leave it out.",
        ),
    ],
)
def test_runworkers_refuses_wrong_options_with_one_line_and_exit_2(tree: Tree, options: list[str], says: str) -> None:
    ended = tree.run("runworkers", *options)
    assert (ended.returncode, ended.stderr.strip(), ended.stdout) == (2, f"CommandError: {says}", "")


WITHOUT_FORK = """
import os, sys
for name in ("fcntl", "termios"):
    sys.modules[name] = None
del os.fork
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "runworkers"])
"""


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_runworkers_refuses_a_system_that_cannot_fork_with_one_line_and_exit_2(tree: Tree) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_FORK],
        env=tree.environment({}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (
        2, "CommandError: runworkers needs a system that can fork, such as Linux.\n",
    )  # fmt: skip


def test_jobs_before_migrate_ends_in_one_line(engine: Engine) -> None:
    sql(engine, "ALTER TABLE django_jobs_job RENAME TO django_jobs_gone")
    with pytest.raises(CommandError, match=f"was {MIGRATE[engine.alias]} run") as caught:
        jobs("list")
    assert caught.value.returncode == 2
    assert "\n" not in str(caught.value)


@beside_others
def test_pausing_in_a_database_that_is_read_only_ends_in_one_line_that_says_so(engine: Engine) -> None:
    on, off = {
        "postgresql": ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
        "sqlite": ("PRAGMA query_only = on", "PRAGMA query_only = off"),
    }[engine.name]
    sql(engine, on)
    try:
        ran = Ran("pause", "--queue", "mail")
    finally:
        sql(engine, off)
    assert ran.code == 2
    assert re.fullmatch(r"The jobs' database refused \(.*read-?only.*\); it is read-only: [^\n]*", ran.error)


@beside_others
def test_acting_on_a_database_that_somebody_holds_ends_in_one_line_that_says_so(engine: Engine) -> None:
    holds, waits, waits_on = {
        "postgresql": ("LOCK django_jobs_pause", "SET lock_timeout = 100", "RESET lock_timeout"),
        "sqlite": ("UPDATE django_jobs_job SET losses = 0", "PRAGMA busy_timeout = 100", "PRAGMA busy_timeout = 5000"),
    }[engine.name]
    with session(engine.alias) as other:
        other.begin()
        other.sql(holds)
        sql(engine, waits)
        try:
            ran = Ran("pause", "--queue", "mail")
        finally:
            sql(engine, waits_on)
    assert ran.code == 2
    assert re.fullmatch(r"The jobs' database refused \([^\n]*\); somebody holds it; try again [^\n]*", ran.error)


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_runworkers_refuses_settings_that_cannot_be_used(tree: Tree) -> None:
    ended = tree.run("runworkers", settings={"LEASE": 3, "HEARTBEAT": 2})
    assert ended.returncode == 2
    assert "HEARTBEAT may be at most a third of LEASE" in ended.stderr


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_the_first_line_names_engine_queues_processes_threads_types_and_lease(tree: Tree, vendor: str) -> None:
    workers = tree.start("--queues", "default,nobody", "--processes", "2", "--threads", "3")
    pids = workers.wait_until_ready(2)
    assert workers.stop() == 0
    lines = workers.log.splitlines()
    assert "No job type uses the queue 'nobody'" in lines[0]
    name = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}[vendor]
    assert f"Workers started on {name} " in lines[1]
    assert ": queues default, nobody, 2 processes x 3 threads, " in lines[1]
    assert lines[1].endswith("lease 3 s")
    for pid in pids:
        assert f"Worker process {pid} is ready" in workers.log
    assert lines[-1].endswith("Workers stopped (exit 0)")


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_quit_prints_the_stacks_of_every_process_and_goes_on(tree: Tree) -> None:
    workers = tree.start()
    tree.wait_for_status(nothing.enqueue(), "done")
    os.kill(workers.pid, signal.SIGQUIT)
    wait_for(lambda: "workers/writer.py" in workers.log, what="the worker's stacks")
    assert "workers/template.py" in workers.log
    assert workers.stop() == 0


@pytest.mark.parametrize(("given", "count"), [("2", 2), (2, 2), (None, 7)])
def test_counts_may_come_as_numbers_from_code_that_calls_the_command(given: str | int | None, count: int) -> None:
    assert runworkers._count(given, "--processes", 7) == count
    with pytest.raises(ConfigurationError, match="--processes is 0; give a whole number"):
        runworkers._count(0, "--processes", 7)


def test_our_commands_leave_out_the_checks_of_those_that_migrate_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def of_commands(**_: Any) -> list[Any]:
        ran.append("of commands")
        return []

    def of_the_project(**_: Any) -> list[Any]:
        ran.append("of the project")
        return []

    registered = {*registry.registered_checks}
    monkeypatch.setattr(registry, "registered_checks", {*registered})
    registry.register(of_commands, "commands")
    registry.register(of_the_project)
    runworkers.Command().check()
    assert ran == ["of the project"]
    assert registry.registered_checks == {*registered, of_commands, of_the_project}
