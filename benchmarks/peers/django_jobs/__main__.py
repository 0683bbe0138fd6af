"""django_jobs as it comes: default settings, four threads, leases, history and lanes on, its supervisor and scheduler too."""

import os
from typing import Any

import django
from django.core.management import call_command

from benchmarks.peers import verbs


def setup() -> None:
    call_command("migrate", verbosity=0)


def counted() -> Any:
    from benchmarks.peers.django_jobs.jobs import counted

    priority = os.environ.get("PRIORITY")  # for benchmarks.growth
    return counted.using(priority=int(priority)) if priority else counted


def arguments(number: int, fill: str) -> tuple[int] | tuple[int, str]:
    return (number, fill) if fill else (number,)


def enqueue(calls: verbs.Calls) -> None:
    stored = counted()
    for call in calls:
        stored.enqueue(*arguments(*call))


def bulk(calls: verbs.Calls) -> None:
    stored = counted()
    stored.enqueue_many(stored.call(*arguments(*call)) for call in calls)


def work(processes: int, threads: int) -> None:
    call_command("runworkers", "--processes", str(processes), "--threads", str(threads))


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.peers.django_jobs.settings"
    django.setup()
    verbs.main(setup=setup, enqueue=enqueue, bulk=bulk, work=work)
