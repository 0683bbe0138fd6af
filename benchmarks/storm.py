"""Do all harm that we know of to trees of workers for minutes, and count what it cost: nothing may be lost or doubled.

Worker processes, supervisors, templates and whole trees are killed every 0.3 to 2 s, database sessions are ended, trees
are frozen until after their leases, PostgreSQL is crashed once a minute, the network is cut, silent, or swallows the
answer to a COMMIT. The clock of one host is two hours fast, that of another two hours slow. Jobs: atomic ones with a
follow-up, others with `once`, and plain ones. Prints a table; ends with 1 when anything was lost or doubled, or when
not all was done within 60 s of calm.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from datetime import date
from pathlib import Path

import environ

from example_project.postgres import temporary

DONE_WITHIN = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long the storm lasts (default: 10)")
    parser.add_argument(
        "--seed", type=int, help="decides the schedule of the faults (default: by chance; it is printed)"
    )
    parser.add_argument("--rate", type=float, default=30, help="jobs enqueued a second (default: 30)")
    parser.add_argument("--logs", type=Path, help="directory for what the trees say (default: thrown away)")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"--seed {seed}", flush=True)
    with temporary() as server, tempfile.TemporaryDirectory() as scratch:
        database = dict(environ.Env.db_url_config(server.url))
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DJANGO_JOBS_TEST_WITHOUT_SHOP": "1",
            "DJANGO_JOBS_TEST_DATABASES": json.dumps({"default": database}),
        }
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        from tests.faults.storm import Storm

        directory = options.logs or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        storm = Storm(server, "default", directory, seed, options.rate)
        try:
            return _run(storm, options.minutes)
        finally:
            storm.end()


def _run(storm: object, minutes: float) -> int:
    from tests.faults.account import Account, undone
    from tests.faults.invariants import assert_invariants
    from tests.faults.storm import Storm, lines_of

    assert isinstance(storm, Storm)
    storm.rage(minutes * 60)
    seconds = storm.calm(2 * DONE_WITHIN)
    account = Account.of("default", storm.enqueuer.stored)
    repeats = ", ".join(f"{cause} {number}" for cause, number in account.repeats.items())
    rows: list[tuple[str, object]] = [
        *lines_of(storm.faults),
        ("kills in all", storm.faults.kills),
        ("enqueues that returned", len(storm.enqueuer.stored)),
        ("enqueues refused while the database was away", storm.enqueuer.refused),
        ("jobs stored, follow-ups among them", account.jobs),
        ("claims", account.runs),
        (f"runs lost and repeated ({repeats})", sum(account.repeats.values())),
        ("effects", account.effects),
        ("second effects of plain jobs, which are allowed", account.at_least_once),
        ("**lost**", account.lost),
        ("**doubled**", account.doubled),
        ("seconds from the calm until all was done", f"{seconds:.1f}"),
    ]
    print(f"\n{minutes:g} minutes, {date.today()}, {_host()}\n")
    print("| what | how often |\n|---|--:|")
    for name, number in rows:
        print(f"| {name} | {number} |")
    for job in undone("default"):
        print("not done:", job)
    assert_invariants(storm.tree)
    codes = storm.stop()
    print("exit codes of the trees:", codes)
    return int(bool(account.lost or account.doubled or seconds > DONE_WITHIN or any(codes)))


def _host() -> str:
    import platform

    import django
    from django.db import connection

    version = ".".join(map(str, connection.get_database_version()))
    python = platform.python_version()
    return f"PostgreSQL {version}, Django {django.get_version()}, Python {python}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
