"""The players of the incident: the workers, those who enqueue, and the schedules."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.staged import zone

ROOT = Path(__file__).parent.parent.parent
# Seconds that a confirmation, a report and a row take.
CONFIRM, REPORT = 0.005, 0.005
CHUNK = 5_000


class Workers:
    """One `runworkers`, and what all of them said."""

    def __init__(self, log: Path, processes: int, threads: int) -> None:
        self._log = log
        self._options = ["--processes", str(processes), "--threads", str(threads)]
        self._process: subprocess.Popen[bytes] | None = None
        log.write_bytes(b"")

    def start(self, *, fixed: bool = False) -> None:
        command = [sys.executable, "-m", "django", "runworkers", *self._options]
        environment = os.environ | ({"INCIDENT_FIXED": "1"} if fixed else {})
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def stop(self) -> int:
        """Stop them as a deploy does; return the exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        code = self._process.wait(60)
        self._process = None
        return code

    @property
    def deaths(self) -> int:
        """How many worker processes were seen to die."""
        return len(self.said(" jobs in its hands go back"))

    def said(self, text: str) -> list[str]:
        return [line for line in self._log.read_text(errors="replace").splitlines() if text in line]


class Customers(threading.Thread):
    """Order all along, at a steady rate; each order is confirmed in the urgent lane."""

    def __init__(self, rate: float) -> None:
        super().__init__(daemon=True)
        self._rate = rate
        self.over = threading.Event()

    def run(self) -> None:
        from django.db import connection

        from benchmarks.jobs import confirm

        started, number = time.monotonic(), 0
        while not self.over.is_set():
            confirm.enqueue(number, CONFIRM)
            number += 1
            self.over.wait(max(started + number / self._rate - time.monotonic(), 0.0))
        connection.close()


def schedule_reports(number: int, changed: datetime, looked_at: datetime) -> None:
    """Store daily schedules all through the hour that the clock leaves out, to be looked at at an instant."""
    from django_jobs.models import Schedule, ScheduleState

    for index in range(number):
        minute = index * 60 // number
        Schedule(
            name=f"report-{index}",
            type="benchmarks.jobs.report",
            payload={"args": [REPORT], "kwargs": {}},
            expression=f"{minute} {zone.HOUR_LEFT_OUT} * * *",
            timezone=zone.NAME,
            # Looked at too late, their jobs are due then, as if the clock changed then.
            missed_grace=timedelta(0) if changed < looked_at else None,
        ).save()
    if changed < looked_at:
        before = min(changed, datetime.now(UTC)) - timedelta(seconds=1)
        ScheduleState.objects.update(changed_at=before, next_run_at=None, wake_at=looked_at)


def enqueue_herd(jobs: int, seconds: float, rows: int, poisoned: int, at: datetime) -> None:
    """Enqueue what is due at one instant: a newsletter, and the rows of an import, of which some are malformed."""
    from benchmarks.jobs import newsletter, read_row

    letters, lines = newsletter.using(run_at=at), read_row.using(run_at=at)
    # The rows are among the first fifth of the newsletter, in as many parts as there are malformed ones.
    head, part = jobs // 5 // max(poisoned, 1), rows // max(poisoned, 1)
    sent = 0
    for number in range(poisoned):
        texts = [f"{number},{index},ok" for index in range(part - 1)]
        texts.insert(part // 2, f"%{number}")
        letters.enqueue_many([letters.call(sent + index, seconds) for index in range(head)])
        lines.enqueue_many([lines.call(text) for text in texts])
        sent += head
    for first in range(sent, jobs, CHUNK):
        letters.enqueue_many([letters.call(number, seconds) for number in range(first, min(first + CHUNK, jobs))])
