"""The handful of verbs by which the comparison drives every peer, each in a process of its own: the same for all.

    python -m benchmarks.peers.NAME setup                           make the tables
    python -m benchmarks.peers.NAME enqueue --jobs 1000             one by one; prints the seconds that it took
    python -m benchmarks.peers.NAME bulk --jobs 1000                in as few calls as the peer advises
    python -m benchmarks.peers.NAME trickle --jobs 100 --every 0.05 one by one, and leave in a file when each was sent
    python -m benchmarks.peers.NAME work --processes 1 --threads 4  until SIGTERM

The standard library is all that this needs: it runs in the environments of the peers.
"""

from __future__ import annotations

import argparse
import os
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.peers import tally

Calls = Iterable[tuple[int, str]]  # number, and text to fill the payload with


def main(
    *,
    setup: Callable[[], object],
    enqueue: Callable[[Calls], object],
    bulk: Callable[[Calls], object],
    work: Callable[[int, int], object],
    trickle: Callable[[Calls], object] | None = None,
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["setup", "enqueue", "bulk", "trickle", "work"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--warm", type=int, default=0, help="jobs stored before the clock starts, numbered first")
    parser.add_argument("--fill", type=int, default=0, help="length of the text that each job carries")
    parser.add_argument("--every", type=float, default=0.05)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    match options.verb:
        case "setup":
            setup()
        case "work":
            work(options.processes, options.threads)
        case "trickle":
            (trickle or enqueue)(spaced(options.jobs, options.every))
        case "enqueue":
            calls = Clocked(options.warm, options.jobs, options.fill)
            enqueue(calls)
            print(calls.seconds())
        case "bulk":
            if options.warm:
                bulk(Clocked(0, options.warm, options.fill))
            calls = Clocked(0, options.jobs, options.fill, options.warm)
            bulk(calls)
            print(calls.seconds())


class Clocked:
    """Calls, and the seconds since the first that counts was asked for."""

    def __init__(self, warm: int, jobs: int, fill: int, first: int = 0) -> None:
        self._warm, self._last, self._first = first + warm, first + warm + jobs, first
        self._fill = "x" * fill
        self._started = 0.0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number in range(self._first, self._last):
            if number == self._warm:
                self._started = time.perf_counter()
            yield number, self._fill

    def seconds(self) -> float:
        return time.perf_counter() - self._started


def spaced(jobs: int, every: float) -> Iterator[tuple[int, str]]:
    sent = bytearray(8 * jobs)
    started = time.monotonic()
    for number in range(jobs):
        time.sleep(max(0.0, started + number * every - time.monotonic()))
        struct.pack_into("d", sent, 8 * number, time.monotonic())
        yield number, ""
    (tally.directory() / "sent").write_bytes(sent)


def in_processes(number: int, run: Callable[[], Any]) -> None:
    """Run it in so many processes, for peers that leave their number to the operator; one needs no other."""
    if number == 1:
        run()
        return
    children = [_fork(run) for _ in range(number)]

    def end(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    for child in children:
        os.waitpid(child, 0)


def _fork(run: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)
    return pid


def chunks(calls: Calls, size: int) -> Iterator[list[tuple[int, str]]]:
    chunk = []
    for call in calls:
        chunk.append(call)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
