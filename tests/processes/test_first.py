from __future__ import annotations

import pytest

from tests.app.jobs import leave_effect, nothing
from tests.app.models import Effect
from tests.harness import Tree

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]


@pytest.mark.fast
def test_burst_runs_what_is_due_and_leaves_the_rest(tree: Tree) -> None:
    jobs = [leave_effect.enqueue(str(number)) for number in range(50)]
    later = nothing.using(delay=3600).enqueue(1)
    workers = tree.start("--burst", "--processes", "2")
    assert workers.wait() == 0, workers.log
    assert {job.refresh().status for job in jobs} == {"done"}
    assert later.refresh().status == "ready"
    assert sorted(Effect.objects.using(tree.alias).values_list("key", flat=True)) == sorted(str(n) for n in range(50))
