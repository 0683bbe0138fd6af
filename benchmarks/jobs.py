import os
import time

from django.db import connection

from django_jobs import job


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
