import os
import signal
import time

from django.db import connection

from django_jobs import Fail, job


@job
def nothing(number: int) -> None:
    pass


@job
def write(number: int) -> None:
    """Leave a row in the table of benchmarks.outages."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO written (number, pid) VALUES (%s, %s)", [number, os.getpid()])


@job
def note(number: int, path: str) -> None:
    """Leave in a file when this started, by the clock that all processes of a host share."""
    leave(path, number)


@job
def sleep(seconds: float) -> None:
    time.sleep(seconds)


def leave(path: str, number: int) -> None:
    line = f"{number} {time.monotonic()}\n".encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line)
    finally:
        os.close(file)


# Of benchmarks.incident.


@job(priority=50)
def confirm(number: int, seconds: float) -> None:
    """Confirm an order by mail: somebody waits for it."""
    time.sleep(seconds)


@job
def newsletter(number: int, seconds: float) -> None:
    time.sleep(seconds)


@job(queue="reports")
def report(seconds: float) -> None:
    time.sleep(seconds)


@job
def read_row(row: str) -> int:
    """Read a row of an import. A malformed one has it take memory until the kernel ends the process, unless FIXED is set."""
    if row.startswith("%") and "INCIDENT_FIXED" in os.environ:
        raise Fail(f"the row is malformed: {row}")
    if row.startswith("%"):
        os.kill(os.getpid(), signal.SIGKILL)
    return len(row)
