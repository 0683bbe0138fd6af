"""The load beside the pages: `python -m benchmarks.pages.load RATE`, until its standard input ends."""

from __future__ import annotations

import select
import sys
import time

import django

STEP = 0.05


def main() -> None:
    django.setup()
    from benchmarks.jobs import nothing
    from benchmarks.pages.fill import LIVE, keep_alive

    rate = float(sys.argv[1])
    live = nothing.using(queue=LIVE)
    began, sent, seen = time.monotonic(), 0, 0.0
    while not select.select([sys.stdin], [], [], STEP)[0]:
        now = time.monotonic()
        while sent < rate * (now - began):
            live.enqueue(sent)
            sent += 1
        if now - seen > 5.0:
            keep_alive()
            seen = now


if __name__ == "__main__":
    main()
