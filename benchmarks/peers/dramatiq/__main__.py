"""dramatiq on Redis, with the C parser for Redis' answers and the threads of its default: eight in each process.

There is no bulk call: messages are sent one by one, each acknowledged by Redis. Messages are acknowledged after the run, so those
of a killed worker come back when another one finds its heartbeat gone (a minute, looked for now and then).
"""

import os
import sys

from benchmarks.peers import verbs

BROKER = "benchmarks.peers.dramatiq.actors"
THREADS = 8


def enqueue(calls: verbs.Calls) -> None:
    from benchmarks.peers.dramatiq.actors import counted

    for number, fill in calls:
        counted.send(number, fill)


def work(processes: int, threads: int) -> None:
    words = ["-m", "dramatiq", BROKER, "--processes", str(processes), "--threads", str(max(threads, THREADS))]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    verbs.main(setup=lambda: None, enqueue=enqueue, bulk=enqueue, work=work)
