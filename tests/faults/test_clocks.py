"""A host whose clock is hours off: only the database's clock counts, and each process's monotonic one."""

from __future__ import annotations

import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from django_jobs.models import Worker
from tests.app.deadline_jobs import ask_for_long
from tests.app.jobs import fail_until, leave_effect, wait_for_file
from tests.app.models import Effect
from tests.clocks import wrong_clock
from tests.faults.invariants import assert_invariants
from tests.harness import Tree
from tests.processes.common import LEASE_2, ends, needs_faketime, state, wait_for_effect, wait_seconds
from tests.processes.outages import ALIAS

pytestmark = [pytest.mark.process, pytest.mark.postgresql, needs_faketime]


@pytest.mark.parametrize("skew", ["+2h", "-2h"])
def test_workers_whose_clock_is_two_hours_off_behave_like_any_others(trees: Tree, tmp_path: Path, skew: str) -> None:
    lost = wait_for_file.using(queue="other").enqueue("lost", str(tmp_path / "go"))
    good = trees.start("--threads", "1", "--queues", "other", settings=LEASE_2)
    wait_for_effect(trees, "lost:start")
    off = trees.start("--threads", "4", settings=LEASE_2, env=wrong_clock(skew))
    long = wait_for_file.enqueue("long", str(tmp_path / "go"))
    wait_for_effect(trees, "long:start")

    delayed = leave_effect.using(delay=2.0).enqueue("delayed")
    tomorrow = leave_effect.using(delay=3600.0).enqueue("tomorrow")
    fresh = leave_effect.using(expires=3600.0).enqueue("fresh")
    retried = fail_until.enqueue(3)
    late = ask_for_long.using(timeout=1.0, max_attempts=1).enqueue("late")
    for job in (delayed, fresh, retried):
        trees.wait_for_status(job, "done")
    trees.wait_for_status(late, "dead")
    (at,) = Effect.objects.using(ALIAS).filter(key="delayed").values_list("at", flat=True)
    assert timedelta(0) <= at - delayed.refresh().run_at < timedelta(seconds=2)
    assert (state(retried), state(late)) == (("done", 2, 0, 3), ("dead", 1, 0, 1))
    assert state(tomorrow) == ("ready", 0, 0, 0)

    # Nobody takes back what another has, and it takes back what is lost.
    wait_seconds(3 * LEASE_2["LEASE"])
    assert (state(long)[3], state(lost)[3]) == (1, 1)
    good.signal_tree(signal.SIGKILL)
    wait_for_effect(trees, "lost:start", run=2)
    (tmp_path / "go").touch()
    for job in (long, lost):
        trees.wait_for_status(job, "done")
    assert (state(long), ends(long)) == (("done", 0, 0, 1), [])
    assert (state(lost), ends(lost)) == (("done", 0, 0, 2), [(1, "lease ran out")])
    assert Worker.objects.using(ALIAS).filter(
        supervisor_pid=off.pid, heartbeat_at__range=(Now() - timedelta(seconds=5), Now())
    )
    said = datetime.fromisoformat(off.log.split(",")[0])
    assert abs((said - datetime.fromtimestamp(time.time())).total_seconds() / 3600 - float(skew[:-1])) < 0.2
    tomorrow.cancel()
    assert_invariants(trees)
    assert off.stop() == 0
