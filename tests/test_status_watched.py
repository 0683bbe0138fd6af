"""`jobs status`: what is bounded, and what is shown again and again."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from django_jobs import pause, report
from django_jobs.engines.base import Engine
from django_jobs.engines.parked import Parked, parked
from django_jobs.models import Stat
from django_jobs.models.clock import database_now, for_row
from tests.acts import Ran
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone, alter, beside_others, enqueue, on_postgresql, order
from tests.engines.test_plans import FINISHED, UNFINISHED, read
from tests.harness import ROOT, Tree, wait_for
from tests.plans import watched


@alone
def test_a_number_that_reached_the_limit_is_said_to_be_more(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DEPTH_LIMIT", 3)
    enqueue(5)
    enqueue(2, queue="mail")
    ran = Ran("status")
    assert re.search(r"^default +\d\+ ", ran.out, re.M)
    assert re.search(r"^mail +2 ", ran.out, re.M)
    assert "+: 3 or more; nothing is counted further." in ran.out
    state = Ran("status", "--json").data
    assert [(row["queue"], row["capped"]) for row in state["queues"]] == [("default", True), ("mail", False)]
    assert state["depth_limit"] == 3


@alone
def test_what_ended_a_minute_lately_is_told_by_queue(engine: Engine) -> None:
    def ended(minutes: float, **counts: int) -> None:
        minute = database_now(engine.alias).replace(second=0, microsecond=0) - timedelta(minutes=minutes)
        Stat.objects.using(engine.alias).create(
            minute=for_row(minute, engine.alias), queue="mail", type="t", runs=[], waits=[], **counts
        )

    ended(1, done=30, dead=2)
    ended(5, done=20, failed=3)
    ended(6, done=1000)
    ended(0, done=1000)
    (row,) = Ran("status", "--json").data["queues"]
    assert (row["queue"], row["done_a_minute"], row["failed_a_minute"]) == ("mail", 10.0, 1.0)


@alone
def test_what_is_parked_is_counted_by_type_and_queue_up_to_a_limit(engine: Engine) -> None:
    enqueue(4)
    enqueue(1, queue="mail")
    leave_effect.enqueue("x")
    engine.claim(order(10, types=()))
    most = 3
    found = parked(engine, most)
    counted = 4 if engine.name == "sqlite" else most
    assert [(row.type, row.queue, row.jobs) for row in found] == [
        (leave_effect.name, "default", 1),
        (nothing.name, "default", counted),
        (nothing.name, "mail", 1),
    ]
    assert all(0 <= row.waiting < 60 for row in found)
    assert parked(engine, most, suspects=True) == []
    job = nothing.enqueue()
    alter(engine, job.pk, parked="suspect", suspect=True)
    (suspect,) = parked(engine, most, suspects=True)
    assert suspect == Parked(nothing.name, "default", 1, suspect.waiting)


@alone
@on_postgresql
def test_the_status_reads_no_more_than_the_limits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DEPTH_LIMIT", 50)
    with connections[engine.alias].cursor() as cursor:
        for statement in (FINISHED, UNFINISHED, "ANALYZE django_jobs_job"):
            cursor.execute(statement, [])
    with watched(engine.alias) as nodes:
        report.unknown_types(engine.alias)
        report.queues(engine.alias)
    assert 0 < read(nodes) < 10_000


@contextmanager
def status(tree: Tree, *options: str, out: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        tree.command("jobs", "status", "--watch", *options),
        env=tree.environment({}),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        # As from a terminal, whatever the tests were started by: in the background SIGINT may be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@beside_others
@pytest.mark.process
def test_each_time_is_a_line_of_json_until_ctrl_c_which_is_no_failure(tree: Tree, tmp_path: Path) -> None:
    file = tmp_path / "out"

    def lines() -> list[str]:
        return [line for line in file.read_text().split("\n") if line]

    with file.open("wb") as out, status(tree, "0.2", "--json", out=out.fileno()) as process:
        wait_for(lambda: len(lines()) >= 2)
        nothing.using(queue="mail").enqueue()
        wait_for(lambda: [row["queue"] for row in json.loads(lines()[-2])["queues"]] == ["mail"])
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@beside_others
@pytest.mark.process
@on_postgresql
def test_a_terminal_is_drawn_in_place_and_takes_no_commands_from_names(tree: Tree) -> None:
    pause(queue="mail", why="\x1b[31mred")
    ours, theirs = pty.openpty()
    with status(tree, "0.2", out=theirs) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"\x1b[H") < 2:
            seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    os.close(ours)
    assert b"Every 0.2 s; Ctrl-C ends." in seen
    assert b"?[31mred" in seen
    assert b"\x1b[31m" not in seen


@pytest.mark.parametrize("value", ["0", "0.1", "2h", "soon", "-1"])
@pytest.mark.django_db(databases="__all__")
def test_a_pace_that_cannot_be_kept_is_refused(value: str) -> None:
    ran = Ran("status", f"--watch={value}")
    assert ran.code == 2
    assert f"--watch is '{value}'" in ran.error
