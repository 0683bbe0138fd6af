"""Run several schedulers at once, kill one, freeze one, delete the jobs that they make, and account for every slot.

Each slot must have had one job: that is counted by a trigger in a plain table, since the jobs themselves are deleted all
the while. It is printed how late the jobs were made, by the database's clock.
With `--skew` the schedulers run on a clock that is off by so much (needs the program faketime). Ends with 1 when a slot
is lost or doubled, or later than allowed.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import psycopg

from benchmarks.throughput import ROOT
from example_project.postgres import temporary
from tests.clocks import wrong_clock

TYPE = "benchmarks.jobs.nothing"
PAYLOAD: dict[str, Any] = {"args": [1], "kwargs": {}}
# The first slots wait for the processes to start.
START_SECONDS = 5.0
# What is late after a kill, at most; one that is frozen may hold its transaction for as long as the server lets it.
ALLOWED = 2.0
WITNESS = """
CREATE TABLE witness (name text, slot timestamptz, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO witness (name, slot) VALUES (NEW.schedule, NEW.slot); RETURN NULL; END $$;
CREATE TRIGGER witness AFTER INSERT ON django_jobs_job FOR EACH ROW EXECUTE FUNCTION witness();
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180, help="how long it lasts (default: 180)")
    parser.add_argument("--schedulers", type=int, default=3, help="processes (default: 3)")
    parser.add_argument("--minutely", type=int, default=200, help="schedules each minute (default: 200)")
    parser.add_argument("--freeze", type=float, default=20, help="how long one of them is frozen (default: 20)")
    parser.add_argument("--skew", default="", help="what their clock is off by, as +2h or -2h (--skew=-2h)")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="file for what the schedulers say")
    options = parser.parse_args()
    with temporary() as server, options.log.open("ab") as log:
        os.environ |= {"DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(WITNESS)
            return storm(connection, options, log)


def storm(connection: psycopg.Connection, options: argparse.Namespace, log: IO[bytes]) -> int:
    store(options.minutely)
    running = [start(options.skew, log) for _ in range(options.schedulers)]
    over = threading.Event()
    remover = threading.Thread(target=remove, args=(os.environ["DATABASE_URL"], over))
    remover.start()
    try:
        began = time.monotonic()
        wait_until(began + START_SECONDS)
        started_at = now(connection)
        wait_until(began + options.seconds * 0.3)
        running[0].kill()
        running[0].wait()
        killed_at = now(connection)
        wait_until(began + options.seconds * 0.5)
        frozen_at = now(connection)
        running[1].send_signal(signal.SIGSTOP)
        wait_until(began + options.seconds * 0.5 + options.freeze)
        running[1].send_signal(signal.SIGCONT)
        wait_until(began + options.seconds)
    finally:
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        codes = [process.wait(30) for process in running]
        over.set()
        remover.join()
    print(f"exit codes {codes}")
    return account(connection, options, started_at, {"the kill": killed_at, "the freeze": frozen_at})


def store(minutely: int) -> None:
    import django

    django.setup()
    from django_jobs.models import Schedule

    schedules = [
        Schedule(name=f"minute-{number}", type=TYPE, payload=PAYLOAD, expression="* * * * *", timezone="Europe/Berlin")
        for number in range(minutely)
    ]
    Schedule.objects.bulk_create([Schedule(name="second", type=TYPE, payload=PAYLOAD, every=1), *schedules])


def start(skew: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "django", "runscheduler"]
    environment = os.environ | (wrong_clock(skew) if skew else {})
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


def remove(url: str, over: threading.Event) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while not over.wait(0.3):
            connection.execute("DELETE FROM django_jobs_job")


def wait_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))


def now(connection: psycopg.Connection) -> Any:
    return connection.execute("SELECT clock_timestamp()").fetchone()[0]  # type: ignore[index]


def account(
    connection: psycopg.Connection, options: argparse.Namespace, started_at: Any, events: dict[str, Any]
) -> int:
    """Compare what was made with every second and every minute between the first and the last."""
    faults = 0
    for like, step in (("second", 1), ("minute-%", 60)):
        row = connection.execute(
            "WITH span AS (SELECT name, min(slot) AS first, max(slot) AS last FROM witness WHERE name LIKE %s GROUP BY name),"
            " expected AS (SELECT name, generate_series(first, last, %s * interval '1 second') AS slot FROM span),"
            " made AS (SELECT name, slot, count(*) AS number FROM witness WHERE name LIKE %s GROUP BY name, slot)"
            " SELECT (SELECT count(*) FROM span), count(*), count(*) FILTER (WHERE made.number IS NULL),"
            " count(*) FILTER (WHERE made.number > 1) FROM expected LEFT JOIN made USING (name, slot)",
            [like, step, like],
        ).fetchone()
        assert row is not None
        schedules, slots, lost, doubled = row
        strays = connection.execute(
            "SELECT count(*) FROM witness WHERE name LIKE %s AND extract(epoch FROM slot)::numeric %% %s <> 0",
            [like, step],
        ).fetchone()
        assert strays is not None
        print(
            f"{schedules} schedules ({like}): {slots} slots, {lost} lost, {doubled} doubled, {strays[0]} not of theirs"
        )
        faults += lost + doubled + strays[0]
        faults += schedules != (1 if like == "second" else options.minutely)
    latenesses = [
        (slot, (at - slot).total_seconds())
        for slot, at in connection.execute("SELECT slot, at FROM witness WHERE slot > %s", [started_at]).fetchall()
    ]
    late = sorted(seconds for _slot, seconds in latenesses)
    print(
        f"late by: median {statistics.median(late):.3f} s, p95 {late[int(len(late) * 0.95)]:.3f} s, most {late[-1]:.3f} s"
    )
    for what, moment in events.items():
        after = [seconds for slot, seconds in latenesses if 0 <= (slot - moment).total_seconds() < 10]
        print(f"within ten seconds of {what}: most {max(after):.3f} s")
    return 1 if faults or late[-1] > ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
