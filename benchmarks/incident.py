"""Rehearse the incident: a poison payload, a clock change and a herd at one instant, on a few workers.

At that instant a zone's clock is put forward, so that the schedules of the hour that it leaves out are due at once; so are
a newsletter of `--jobs` jobs, and the rows of an import, of which some kill the process that reads them, at every attempt.
All along customers order, whose confirmations have the urgent lane. Nobody does anything until the poison is isolated by
itself. Then an operator holds the newsletter back, then a whole queue, lets both go on, deploys a fix and requeues what died.

Once a second it is recorded how old the oldest waiting job of each type is, how many were done, the dead letters and the
worker processes that died. Writes incident.json, incident.md, incident.svg and incident.png; `--docs` puts them into
docs/incident.md as well. Ends with 1 when a job is left over, the poison was not isolated, or the urgent lane lost its pace.
`--short` takes half a minute, all of it some four minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.staged import zone
from benchmarks.staged.course import Incident
from benchmarks.staged.record import Record
from benchmarks.staged.stage import ROOT, Workers
from example_project.postgres import temporary

SHORT = {"jobs": 3_000, "calm": 3.0, "hold": 3.0, "rows": 60, "age_alert": 2.0, "limit": 60.0}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a small herd, and half a minute")
    parser.add_argument("--jobs", type=int, default=50_000, help="the newsletter's jobs (default: 50000)")
    parser.add_argument("--work", type=float, default=0.02, help="seconds that each takes (default: 0.02)")
    parser.add_argument("--rows", type=int, default=300, help="rows of the import (default: 300)")
    parser.add_argument("--poisoned", type=int, default=6, help="rows that kill their process (default: 6)")
    parser.add_argument("--schedules", type=int, default=240, help="schedules of the hour left out (default: 240)")
    parser.add_argument("--rate", type=float, default=20, help="orders a second (default: 20)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--threads", type=int, default=4, help="threads in each (default: 4)")
    parser.add_argument("--calm", type=float, default=40, help="seconds before, in which all is stored (default: 40)")
    parser.add_argument("--hold", type=float, default=20, help="how long the newsletter is held (default: 20)")
    parser.add_argument("--age-alert", type=float, default=20, help="QUEUE_AGE_ALERT (default: 20)")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which it is given up (default: 300)")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results", help="directory for the results"
    )
    parser.add_argument("--docs", action="store_true", help="put figures and pictures into docs/incident.md")
    parser.add_argument("--log", type=Path, help="file for what the workers say (default: thrown away)")
    options = parser.parse_args(arguments)
    if options.short:
        parser.set_defaults(**SHORT)
        options = parser.parse_args(arguments)
    with temporary() as server, tempfile.TemporaryDirectory() as scratch:
        at, changed = _instants(options)
        zone.make(Path(scratch) / "zones", changed)
        os.environ |= {
            "DATABASE_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "benchmarks.staged.settings",
            "INCIDENT_AGE_ALERT": str(options.age_alert),
        }
        subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        import django

        django.setup()
        workers = Workers(options.log or Path(scratch) / "workers.log", options.processes, options.threads)
        return Incident(server.url, options, Record(at), workers).rehearsed(changed)


def _instants(options: argparse.Namespace) -> tuple[datetime, datetime]:
    """Return when all is due, and when the clock is changed: at a whole minute, as slots are.

    Those are one, unless a short rehearsal has no time to wait for it: then the schedulers come some seconds too late.
    """
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=options.calm + 5)
    minute = at.replace(second=0)
    if options.short:
        return at, minute
    return (at, at) if minute == at else (minute + timedelta(minutes=1),) * 2


if __name__ == "__main__":
    sys.exit(main())
