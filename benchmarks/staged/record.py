"""What is recorded of the incident, once a second, by a connection of its own."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from benchmarks.staged.stage import Workers

# A parked job is due and waits as well: its age is what an operator asks about, unless a pause in force holds it.
SECOND = """
SELECT type,
       count(*) FILTER (WHERE status = 'done'),
       count(*) FILTER (WHERE status IN ('dead', 'failed')),
       coalesce(extract(epoch FROM clock_timestamp() - min(run_at) FILTER
           (WHERE status = 'ready' AND run_at <= clock_timestamp() AND NOT (coalesce(parked, '') = 'pause' AND EXISTS (
               SELECT 1 FROM django_jobs_pause pause WHERE kind = 'type' AND pause.name = django_jobs_job.type
                  AND (until IS NULL OR until > clock_timestamp()))))), 0)::float8,
       count(*) FILTER (WHERE status = 'ready' AND run_at <= clock_timestamp())
  FROM django_jobs_job GROUP BY type
"""


@dataclass(slots=True)
class Second:
    """`at`: seconds since the clock change. By type: how many have ended well, the oldest's age, how many are due."""

    at: float
    done: dict[str, int]
    oldest: dict[str, float]
    due: dict[str, int]
    dead: int
    deaths: int


@dataclass(slots=True)
class Event:
    at: float
    what: str
    # For a picture.
    short: str = ""


@dataclass
class Record:
    """`zero` is the instant of the clock change."""

    zero: datetime
    seconds: list[Second] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def note(self, what: str, short: str = "") -> float:
        at = (datetime.now(self.zero.tzinfo) - self.zero).total_seconds()
        self.events.append(Event(round(at, 1), what, short))
        print(f"{at:+7.1f} s  {what}", flush=True)
        return at

    def as_json(self) -> dict[str, Any]:
        return {
            "zero": self.zero.isoformat(),
            "seconds": [asdict(second) for second in self.seconds],
            "events": [asdict(event) for event in sorted(self.events, key=lambda event: event.at)],
        }


class Recorder(threading.Thread):
    def __init__(self, url: str, record: Record, workers: Workers) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._record = record
        self._workers = workers
        self._alerts = 0
        self.over = threading.Event()

    def run(self) -> None:
        next_at = time.monotonic()
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self.over.is_set():
                self._look(connection)
                next_at = max(next_at + 1.0, time.monotonic())
                self.over.wait(next_at - time.monotonic())

    def _look(self, connection: psycopg.Connection) -> None:
        rows = [(name.rpartition(".")[2], *values) for name, *values in connection.execute(SECOND).fetchall()]
        self._record.seconds.append(
            Second(
                at=round((datetime.now(self._record.zero.tzinfo) - self._record.zero).total_seconds(), 1),
                done={row[0]: row[1] for row in rows},
                oldest={row[0]: round(row[3], 2) for row in rows},
                due={row[0]: row[4] for row in rows},
                dead=sum(row[2] for row in rows),
                deaths=self._workers.deaths,
            )
        )
        alerts = self._workers.said("Alert ")
        for line in alerts[self._alerts :]:
            self._record.note(line[line.index("Alert ") :], "alert")
        self._alerts = len(alerts)
