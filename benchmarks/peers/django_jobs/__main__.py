"""django_jobs as it comes: default settings, four threads, leases, history and lanes on, its supervisor and scheduler too."""

import os

import django
from django.core.management import call_command

from benchmarks.peers import verbs


def setup() -> None:
    call_command("migrate", verbosity=0)


def arguments(number: int, fill: str) -> tuple[int] | tuple[int, str]:
    return (number, fill) if fill else (number,)


def enqueue(calls: verbs.Calls) -> None:
    from benchmarks.peers.django_jobs.jobs import counted

    for call in calls:
        counted.enqueue(*arguments(*call))


def bulk(calls: verbs.Calls) -> None:
    from benchmarks.peers.django_jobs.jobs import counted

    counted.enqueue_many(counted.call(*arguments(*call)) for call in calls)


def work(processes: int, threads: int) -> None:
    call_command("runworkers", "--processes", str(processes), "--threads", str(threads))


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.peers.django_jobs.settings"
    django.setup()
    verbs.main(setup=setup, enqueue=enqueue, bulk=bulk, work=work)
