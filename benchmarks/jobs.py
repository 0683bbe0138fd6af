import os

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
