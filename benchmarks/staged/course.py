"""The course of the incident: who does what, when, and what is kept of it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.staged import account, page, pictures
from benchmarks.staged.account import Part
from benchmarks.staged.record import Record, Recorder
from benchmarks.staged.stage import ROOT, Customers, Workers, enqueue_herd, schedule_reports

POISON, HERD, CONFIRMATION = (f"benchmarks.jobs.{name}" for name in ("read_row", "newsletter", "confirm"))
# What the urgent lane must keep while the herd is there.
LEAST_PACE, MOST_WAIT = 0.9, 1.0
ISOLATED_WITHIN = 60.0
SHORTEST_PART = 0.5


class Incident:
    def __init__(self, url: str, options: argparse.Namespace, record: Record, workers: Workers) -> None:
        self._url = url
        self._options = options
        self._record = record
        self._workers = workers
        self._customers = Customers(options.rate)
        self._recorder = Recorder(url, record, workers)
        self._parts: list[Part] = []
        self._checks: list[dict[str, Any]] = []
        self._sentences: dict[str, str] = {}
        self._deploy_exit_code = -1

    def rehearsed(self, changed: datetime) -> int:
        try:
            self._set_up(changed)
            isolated_after = self._watch()
            self._mitigate()
            self._fix()
            self._drain()
        finally:
            self._customers.over.set()
            self._recorder.over.set()
            for thread in (self._customers, self._recorder):
                if thread.is_alive():
                    thread.join()
            self._workers.stop()
        return self._account(isolated_after)

    # The acts, in their order.

    def _set_up(self, changed: datetime) -> None:
        from django_jobs.models import Worker

        options = self._options
        schedule_reports(options.schedules, changed, self._record.zero)
        self._workers.start()
        self._wait_for("the workers", lambda: Worker.objects.count() == options.processes)
        enqueue_herd(options.jobs, options.work, options.rows, options.poisoned, self._record.zero)
        self._customers.start()
        self._recorder.start()
        if (early := -self._now()) < 1.0:
            raise SystemExit(f"All was stored {-early:.1f} s after the clock change: give a longer --calm")
        self._record.note(f"{options.jobs} newsletters and {options.rows} rows are stored, due at the clock change")
        self._parts.append(Part("before", self._now(), 0.0))
        self._sleep_until(0.0)
        self._record.note(
            "the clock is put forward: the herd, the import and the schedules are due", "clock change, herd"
        )

    def _watch(self) -> float:
        """Do nothing until the poison is isolated; return after how many seconds that was."""
        from django_jobs.models import Pause

        paused = Pause.objects.filter(kind="type", name=POISON)
        self._wait_for("the type to be paused", paused.exists, ISOLATED_WITHIN)
        after = self._record.note(
            f"{POISON} is paused by itself: {paused.values_list('why', flat=True)[0]}", "poison isolated"
        )
        self._ask("a dead row", type=POISON, status="dead")
        self._ask("a row that waits", type=POISON, status="ready")
        self._ask("a newsletter that waits", type=HERD, status="ready")
        self._check()
        self._sleep_until(after + self._options.hold / 2)
        self._part("herd and poison, nobody acts", self._now())
        return round(after, 1)

    def _mitigate(self) -> None:
        from django_jobs import pause, resume

        hold = self._options.hold
        pause(type=HERD, by="operator", why="orders first")
        begun = self._record.note("the operator pauses the newsletter", "newsletter paused")
        self._sleep_until(begun + hold / 2)
        self._ask("a newsletter that is held", type=HERD, status="ready")
        self._check()
        self._sleep_until(begun + hold)
        self._part("newsletter paused", self._now())
        pause(queue="default", by="operator", why="the mail server is moved")
        begun = self._record.note("the operator pauses the queue as well", "queue paused")
        self._sleep_until(begun + hold / 4)
        self._part("whole queue paused", self._now())
        resume(queue="default")
        resume(type=HERD)
        begun = self._record.note("the operator resumes both", "both resumed")
        self._sleep_until(begun + hold / 2)
        self._check()
        self._part("herd goes on", self._now())

    def _fix(self) -> None:
        from django_jobs import resume
        from django_jobs.models import Job

        self._record.note("the fix is deployed: the workers are stopped and started", "deploy")
        self._deploy_exit_code = self._workers.stop()
        self._workers.start(fixed=True)
        resume(type=POISON)
        dead = list(Job.objects.filter(type=POISON, status="dead"))
        for job in dead:
            job.requeue(why="the reader refuses malformed rows now", by="operator")
        begun = self._record.note(f"the import is resumed, and {len(dead)} dead rows are requeued", "import resumed")
        rows = Job.objects.filter(type=POISON, status__in=["ready", "running"])
        self._wait_for("the rows of the import to end", lambda: not rows.exists())
        self._record.note("the import is over", "import over")
        self._sleep_until(begun + self._options.hold / 4)
        self._part("deploy, and after it", self._now())

    def _drain(self) -> None:
        self._wait_for("the herd to end", lambda: not self._left().exclude(type=CONFIRMATION).exists())
        self._record.note("the herd is over", "herd over")
        self._part("the rest of the herd", self._now())
        self._customers.over.set()
        self._wait_for("the last confirmations", lambda: not self._left().exists())
        time.sleep(1.0)  # for the last look

    # What they need.

    def _now(self) -> float:
        return (datetime.now(UTC) - self._record.zero).total_seconds()

    def _sleep_until(self, at: float) -> None:
        time.sleep(max(at - self._now(), 0.0))

    def _part(self, name: str, end: float) -> None:
        if end - self._parts[-1].end >= SHORTEST_PART:
            self._parts.append(Part(name, self._parts[-1].end, end))

    def _wait_for(self, what: str, is_so: Callable[[], bool], seconds: float | None = None) -> None:
        until = self._options.limit if seconds is None else self._now() + seconds
        while not is_so():
            if self._now() > until:
                raise SystemExit(f"Waited too long for {what}")
            time.sleep(0.2)

    def _left(self) -> Any:
        from django_jobs.models import Job

        return Job.objects.filter(status__in=["ready", "running"])

    def _ask(self, name: str, **conditions: str) -> None:
        """Keep what `explain()` says of such a job."""
        from django_jobs.models import Job

        job = Job.objects.filter(**conditions).order_by("pk").last()
        if job is not None:
            self._sentences[name] = job.explain()

    def _check(self) -> None:
        """Keep what a monitoring system is told."""
        command = [sys.executable, "-m", "django", "jobs", "check"]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        if made.stdout:
            self._checks.append(
                {"at": round(self._now(), 1), "code": made.returncode, "said": made.stdout.split("|")[0].strip()}
            )

    def _account(self, isolated_after: float) -> int:
        with psycopg.connect(self._url, autocommit=True) as connection:
            parts = account.by_part(connection, self._record.zero, self._parts)
            total = account.totals(connection)
        result = {
            "date": str(date.today()),
            "host": _host(),
            "options": {name: value for name, value in vars(self._options).items() if not isinstance(value, Path)},
            "isolated_after": isolated_after,
            "deaths": self._workers.deaths,
            "most_dead": max(second.dead for second in self._record.seconds),
            "deploy_exit_code": self._deploy_exit_code,
            "totals": total,
            "parts": parts,
            "sentences": self._sentences,
            "checks": self._checks,
            **self._record.as_json(),
        }
        faults = self._faults(result)
        _write(result, self._record, self._options.results)
        if self._options.docs:
            page.publish(result, self._record, ROOT / "docs")
        print(f"\n{account.markdown(result)}")
        for fault in faults:
            print("FAULT:", fault)
        return int(bool(faults))

    def _faults(self, result: dict[str, Any]) -> list[str]:
        herd = result["parts"][1]
        total, poisoned = result["totals"], self._options.poisoned
        pace = herd["done_per_second"]["confirm"]
        found = {
            f"{total['not_ended']} jobs neither done nor refused": total["not_ended"],
            f"{total['failed']} rows were refused, and not {poisoned}": total["failed"] != poisoned,
            f"the urgent lane had {pace} a second": pace < LEAST_PACE * self._options.rate,
            f"the urgent lane waited {herd['wait_p95']} s (p95)": herd["wait_p95"] > MOST_WAIT,
            f"the deploy ended with {self._deploy_exit_code}": self._deploy_exit_code,
        }
        return [said for said, is_so in found.items() if is_so]


def _write(result: dict[str, Any], record: Record, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "incident.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "incident.md").write_text(account.markdown(result))
    pictures.draw(record, directory / "incident")


def _host() -> str:
    import django
    from django.db import connection

    version = ".".join(map(str, connection.get_database_version()))
    python = platform.python_version()
    return f"PostgreSQL {version}, Django {django.get_version()}, Python {python}, {os.cpu_count()} cores"
