"""How urgent jobs fare above a backlog, and what the backlog keeps of the work while they never run out."""

from __future__ import annotations

import math
from itertools import repeat

from benchmarks.compared.ours import trial, wait
from benchmarks.compared.servers import Servers
from benchmarks.compared.trial import Trial

EVERY = 0.03
URGENT = {"PRIORITY": "10"}
TIMES = 3.0
STARTS = """
SELECT count(*) FILTER (WHERE priority = 0)::int, count(*)::int
  FROM django_jobs_job
 WHERE status = 'done'
 GROUP BY floor(extract(epoch FROM last_started_at))
 ORDER BY floor(extract(epoch FROM last_started_at))
"""


def measure(servers: Servers, waiting: int, urgent: int, batch: int) -> bool:
    """Print what was found; return whether a limit was passed."""
    empty, _ = _wait_of(servers, 0, urgent)
    under, rate = _wait_of(servers, waiting, urgent)
    allowed = TIMES * empty + batch / rate
    print("\nurgent jobs, 95th percentile of the wait:")
    print(f"  {empty * 1e3:.1f} ms on an empty queue, {under * 1e3:.1f} ms above {waiting:,} older ones", end="")
    print(
        f" (at most {allowed * 1e3:.1f} ms: {TIMES:g} times as long, and a batch of {batch} at {rate:,.0f} jobs/s)",
        flush=True,
    )
    shares = _shares(servers, waiting)
    print("older jobs among those that started, by second, while urgent ones never ran out: ", end="")
    print(", ".join(f"{share:.0%}" for share in shares), flush=True)
    return under > allowed or not shares or min(shares) == 0


def _wait_of(servers: Servers, waiting: int, urgent: int) -> tuple[float, float]:
    """Return the 95th percentile of the waits of urgent jobs in seconds, and the rate at which all jobs ran."""
    with trial(servers, urgent + max(1, waiting), "timed") as here:
        if waiting:
            wait(here, waiting, first=urgent)
        here.settle()
        with here.worker():
            if waiting:
                here.begun()
            else:
                here.verb("trickle", URGENT, jobs=1, every=EVERY)
                here.begun()
            here.verb("trickle", URGENT, jobs=urgent, every=EVERY)
            here.wait(lambda: len(here.marks.waits()) >= urgent, 30)
            ran = here.marks.executed()
        # One that has not started by now waits for ever.
        waits = sorted([*here.marks.waits(), *repeat(math.inf, urgent - len(here.marks.waits()))])
        return waits[int(0.95 * (len(waits) - 1))], ran / (urgent * EVERY)


def _shares(servers: Servers, waiting: int) -> list[float]:
    """Return for each whole second the share of the older jobs, as long as both lanes had some."""
    urgent = max(80_000, waiting // 5)  # for some whole seconds
    with trial(servers, urgent + waiting) as here:
        wait(here, waiting, first=urgent)
        here.verb("bulk", URGENT, jobs=urgent)
        here.settle()
        with here.worker():
            here.wait(lambda: not _urgent_left(here), 300)
        rows = here.connection.execute(STARTS).fetchall()
    # The first and the last second are not whole, and in the last no urgent ones were left.
    return [older / started for older, started in rows[1:-2]]


def _urgent_left(here: Trial) -> bool:
    row = here.connection.execute(
        "SELECT EXISTS (SELECT FROM django_jobs_job WHERE status = 'ready' AND priority = 10)"
    ).fetchone()
    assert row is not None
    return bool(row[0])
