"""What PostgreSQL reads before an act upon many jobs is confirmed, and for its steps, when nearly all jobs are done."""

from __future__ import annotations

import pytest

from django_jobs.admin import bulk_count
from django_jobs.engines.base import Engine
from django_jobs.queue.sought import Sought
from tests.admin.test_plans import fill
from tests.bulk import begin, take_step
from tests.engines.common import on_postgresql
from tests.engines.test_plans import read
from tests.plans import watched

pytestmark = [on_postgresql, pytest.mark.django_db(databases="__all__")]
# Of 117,500: what the index of the state holds, for the count and for the examples.
FOUND = [
    ("requeue", Sought(state="dead-letters"), 10_000),
    ("requeue", Sought(state="dead-letters", error="away"), 10_000),
    ("cancel", Sought(state="running"), 5_000),
    ("cancel", Sought(state="due"), 45_000),
    ("move", Sought(state="parked"), 25_000),
]


def test_a_count_reads_what_the_index_of_the_state_holds(engine: Engine) -> None:
    fill(engine)
    for act, sought, most in FOUND:
        with watched(engine.alias) as nodes:
            bulk_count.survey(act, sought)
        assert 0 < read(nodes) <= most, (act, sought)


def test_what_cannot_be_counted_in_time_is_counted_among_the_newest_and_says_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine)
    monkeypatch.setattr(bulk_count, "SECONDS", 0.001)
    monkeypatch.setattr(bulk_count, "NEWEST_SECONDS", 10.0)
    monkeypatch.setattr(bulk_count, "NEWEST_IDS", 16_600)  # the newest of those that are done
    number, is_capped = bulk_count.count("delete", Sought(error="", state="done", argument=("kwargs.a", "1")))
    assert (number, is_capped) == (0, True)
    number, is_capped = bulk_count.count("requeue", Sought(state="done", queue="q1"))
    assert is_capped
    assert number is not None
    assert number < 34_000


def test_a_step_reads_about_as_many_rows_as_it_looks_at_ids(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(engine)
    monkeypatch.setattr("django_jobs.queue.bulk_step.LONGEST", 0.0)
    act = begin("requeue", Sought(state="dead-letters"))
    with watched(engine.alias) as nodes:
        take_step(act)
    assert 0 < read(nodes) <= 25_000
    act.refresh_from_db()
    assert act.after - act.start == 20_000
