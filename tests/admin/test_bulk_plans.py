"""What PostgreSQL reads before an act upon many jobs is confirmed, and for its steps, when nearly all jobs are done."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_jobs.admin import bulk_count, listing
from django_jobs.engines.base import Engine
from django_jobs.queue.sought import Sought
from tests.admin.test_plans import JOBS, fill
from tests.bulk import begin, take_step
from tests.engines.common import on_postgresql
from tests.engines.test_plans import read
from tests.plans import watched

pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]
LOOKED = 4_000
# Of 117,500 jobs. Those that run, 5,000, are all looked at.
SOUGHT = [
    ("requeue", Sought(state="dead-letters")),
    ("requeue", Sought(state="dead-letters", type="none")),
    ("requeue", Sought(state="dead-letters", error="none")),
    ("requeue", Sought(error="none")),
    ("requeue", Sought(type="none")),
    ("requeue", Sought(state="done", queue="none")),
    ("requeue", Sought(state="dead", tag="none")),
    ("cancel", Sought(state="running")),
    ("cancel", Sought(state="due")),
    ("cancel", Sought(queue="q1")),
    ("cancel", Sought(state="retries", argument=("kwargs.a", "1"))),
    ("move", Sought(state="parked")),
    ("move", Sought(queue="none")),
    ("delete", Sought(state="done")),
    ("delete", Sought(key="done")),
    ("delete", Sought(since=datetime(2020, 1, 1, tzinfo=UTC))),
]


def test_no_confirmation_reads_the_whole_table(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOK_AT", LOOKED)
    monkeypatch.setattr(listing, "LOOK_AT_ERRORS", LOOKED)
    fill(engine)
    for act, sought in SOUGHT:
        with watched(engine.alias) as nodes:
            found = bulk_count.survey(act, sought)
        # What there is, in an index; what is meant of that; and the first of these.
        assert 0 < read(nodes) <= 3 * LOOKED + 6_000, (act, sought)
        assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node.get("Relation Name") == JOBS], (
            act,
            sought,
        )
        assert (found.number is None) == (found.is_capped and not found.examples), (act, sought)


def test_a_step_reads_about_as_many_rows_as_it_looks_at_ids(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(engine)
    monkeypatch.setattr("django_jobs.queue.bulk_step.LONGEST", 0.0)
    act = begin("requeue", Sought(state="dead-letters"))
    with watched(engine.alias) as nodes:
        take_step(act)
    assert 0 < read(nodes) <= 25_000
    act.refresh_from_db()
    assert act.after - act.start == 20_000
