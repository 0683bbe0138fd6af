"""Measure the admin's pages on a full database, while workers run jobs.

A database is filled with millions of finished jobs, hundreds of thousands that are dead or wait, and a week of statistics.
Then every page, filter, search, next and last page is asked for over HTTP by a member of the staff, while jobs are enqueued
and run at `--rate`: cold, each once after PostgreSQL and the web process were started anew (the system's own cache of files
stays), and warm. Printed for each: median and 95th percentile, statements and the longest of them, and what it read.

Ends with 1 when a page takes a second or longer at the 95th percentile, sends 15 statements or more, or reads more rows than
a list may look through; and when the workers did 5 % less than without anybody looking.

The full form takes 10 GB of disk and a quarter of an hour, most of it to fill. `--finished 500000 --dead 30000 --waiting
20000 --warm 5 --cold 1` takes minutes. `--keep DIRECTORY` keeps the database, and finds it filled the next time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from benchmarks.throughput import django
from example_project.postgres import Server, find_binaries, temporary

SETTINGS = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "1GB", "max_wal_size": "8GB"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--finished", type=int, default=5_000_000, help="finished jobs (default: 5000000)")
    add("--hot", type=float, default=0.125, help="share of them not archived yet: a day of eight (default: 0.125)")
    add("--dead", type=int, default=300_000, help="dead and failed jobs (default: 300000)")
    add("--waiting", type=int, default=200_000, help="jobs that wait (default: 200000)")
    add("--rate", type=float, default=200.0, help="jobs enqueued and run in a second (default: 200)")
    add("--warm", type=int, default=20, help="visits of each page, warm (default: 20)")
    add("--cold", type=int, default=3, help="visits of each page, cold (default: 3)")
    add("--quiet", type=float, default=20.0, help="seconds of the rate without pages (default: 20)")
    add("--most-ms", type=float, default=1000.0, help="milliseconds allowed at p95 (default: 1000)")
    add("--most-queries", type=int, default=14, help="statements allowed (default: 14)")
    add("--most-read", type=int, default=1_100_000, help="rows that a page may read (default: 1100000)")
    add("--most-scanned", type=int, default=50_000, help="of which by a scan of a whole table (default: 50000)")
    add("--least", type=float, default=0.95, help="allowed of the rate without pages (default: 0.95)")
    add("--only", default="", help="only pages whose name or address contains this")
    add("--plans", action="store_true", help="print the statements of the pages that failed")
    add("--keep", type=Path, metavar="DIRECTORY", help="keep the database there")
    options = parser.parse_args()
    with _server(options.keep) as server:
        os.environ |= {"DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "benchmarks.pages.settings"}
        return measure(server, options)


def _server(keep: Path | None) -> Server:
    if keep is None:
        return temporary(settings=SETTINGS)
    bindir = find_binaries()
    assert bindir is not None
    return Server.start(keep / "data", bindir=bindir, fsync=True, settings=SETTINGS)


def measure(server: Server, options: argparse.Namespace) -> int:
    django(dict(os.environ), "migrate", "--verbosity", "0")
    import django as framework

    framework.setup()
    from benchmarks.pages import report, rounds
    from benchmarks.pages.site import site
    from benchmarks.pages.visits import Visited

    _fill(options)
    seen: list[Visited] = []
    for _number in range(max(options.cold, 1)):
        server.restart()
        with site(server.url, options.rate) as here:
            seen = rounds.cold(here, seen, options.only)
    with site(server.url, options.rate) as here:
        alone = here.rate(lambda: time.sleep(options.quiet))
        beside = here.rate(lambda: rounds.warm(here, seen, options.warm))
        rounds.explained(here, seen)
        failed = report.said(seen, options)
        if options.plans:
            report.say_statements(here, failed, options.most_queries)
    print(f"\n{alone:.1f} jobs/s without pages, {beside:.1f} beside them (at least {options.least:.0%} of that)")
    return int(bool(failed) or beside < options.least * alone)


def _fill(options: argparse.Namespace) -> None:
    from benchmarks.pages.fill import Sizes, fill
    from django_jobs.models import Stat

    sizes = Sizes(finished=options.finished, hot=options.hot, dead=options.dead, waiting=options.waiting)
    print(sizes, flush=True)
    if not Stat.objects.exists():
        fill(sizes)


if __name__ == "__main__":
    sys.exit(main())
