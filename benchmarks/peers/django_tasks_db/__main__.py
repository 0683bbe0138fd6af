"""django-tasks-db: the database backend of Django's Tasks, on a Django that has them.

A worker runs one task at a time and sleeps while there is none: `--interval 0.1` instead of a second, so that its latency
is not that of the default. There is no bulk enqueue: one by one in one transaction is the nearest. Without threads, handlers
that wait get as many processes as others get threads. Its log lines for each task are turned off.
"""

import os

import django
from django.core.management import call_command
from django.db import connections, transaction

from benchmarks.peers import verbs
from benchmarks.peers.tally import handle, sleep

OPTIONS = ("--interval", "0.1", "--no-startup-delay", "--verbosity", "0")


def setup() -> None:
    call_command("migrate", verbosity=0)


def enqueue(calls: verbs.Calls) -> None:
    from benchmarks.peers.django_tasks_db.tasks import counted

    for number, fill in calls:
        counted.enqueue(number, fill)


def bulk(calls: verbs.Calls) -> None:
    with transaction.atomic():
        enqueue(calls)


def work(processes: int, threads: int) -> None:
    connections.close_all()
    verbs.in_processes(
        threads if handle is sleep else processes,
        lambda: call_command("db_worker", *OPTIONS, "--worker-id", str(os.getpid())),
    )


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.peers.django_tasks_db.settings"
    django.setup()
    verbs.main(setup=setup, enqueue=enqueue, bulk=bulk, work=work)
