"""Celery on Redis: the prefork pool, the threads pool for handlers that wait, results ignored, no gossip, mingle or heartbeats.

Its page on optimizing advises a larger prefetch for many short tasks (64 here; the default is 4). Tasks are acknowledged before
they run, as by default and faster; for kill -9 they are acknowledged late and rejected on the loss of a worker, as the page on
tasks advises, and come back after Redis' visibility timeout, an hour. There is no bulk call: one by one over one connection.
"""

import os
import sys

from benchmarks.peers import verbs

APP = "benchmarks.peers.celery.tasks"


def enqueue(calls: verbs.Calls) -> None:
    from benchmarks.peers.celery.tasks import counted

    for number, fill in calls:
        counted.delay(number, fill)


def work(processes: int, threads: int) -> None:
    waits = os.environ["HANDLER"] == "sleep"
    pool = ["--pool", "threads", "--concurrency", str(threads)] if waits else ["--concurrency", str(processes)]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", APP, "worker", *pool, *quiet])


if __name__ == "__main__":
    verbs.main(setup=lambda: None, enqueue=enqueue, bulk=enqueue, work=work)
