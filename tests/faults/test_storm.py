"""A short storm with the test command; benchmarks/storm.py makes long ones."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from example_project import postgres
from tests.faults.account import Account, undone
from tests.faults.invariants import assert_invariants
from tests.faults.storm import Storm
from tests.processes.outages import ALIAS

pytestmark = [pytest.mark.process, pytest.mark.postgresql]
# In 20 s the schedule has each of the faults below, whatever the seed.
SECONDS = float(os.environ.get("STORM_SECONDS", "20"))
WITHIN = 60.0


@pytest.mark.timeout(int(SECONDS + 200))
def test_in_a_storm_of_faults_nothing_is_lost_and_nothing_doubled(server: postgres.Server, tmp_path: Path) -> None:
    seed = int(os.environ.get("STORM_SEED", random.randrange(10**6)))
    print(f"STORM_SEED={seed} makes the same schedule of faults")
    storm = Storm(server, ALIAS, tmp_path, seed)
    try:
        storm.rage(SECONDS, restart_every=SECONDS * 0.7)
        seconds = storm.calm(WITHIN + 30)
        account = Account.of(ALIAS, storm.enqueuer.stored)
        print(storm.faults, account, f"all done after {seconds:.1f} s", *undone(ALIAS), sep="\n")
        assert (account.lost, account.doubled) == (0, 0)
        assert seconds < WITHIN
        assert storm.faults.kills > SECONDS / 4
        done = storm.faults
        harm = (done.freezes, done.restarts, done.terminated_backends, done.swallowed_commits, done.cuts)
        assert all(harm), done
        assert_invariants(storm.tree)
        assert set(storm.stop()) == {0}
    finally:
        storm.end()
