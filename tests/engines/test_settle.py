"""How a run ends: what each kind of end writes and counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs.engines.values import Done, Run, released
from tests.engines.common import alone, alter, claim_one, clock, row, running, settled

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

MAX_UNCOUNTED = 10


def settle(engine: Engine, run: Run, **values: Any) -> str:
    found = engine.settle([settled(run, **values)], MAX_UNCOUNTED)
    return found[run.id]


def entry(run: Run, cause: str = "test", error: str = "") -> str:
    return json.dumps({"run": run.token, "cause": cause, "error": error, "worker": "host:1", "seconds": 0.5})


def moment(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


# Returned.


@alone
@pytest.mark.parametrize(
    ("result", "stored"), [(None, None), ('{"a":[1,"ß"]}', {"a": [1, "ß"]}), ("null", None), ('"x"', "x"), ("1.5", 1.5)]
)
def test_a_run_that_returned_is_done_with_its_result(engine: Engine, result: str | None, stored: Any) -> None:
    (run,) = running(engine)
    alter(engine, run.id, losses=3, attempts=2, last_error="before")
    before, start = row(engine, run.id), clock(engine)
    assert engine.complete([Done(run, result)]) == {run.id: "done"}
    after = row(engine, run.id)
    assert start <= after["finished_at"] <= clock(engine)
    assert after == before | {
        "status": "done",
        "finished_at": after["finished_at"],
        "locked_by": None,
        "locked_until": None,
        "losses": 0,
        "result": stored,
    }


# What an end counts as.


@alone
@pytest.mark.parametrize(
    ("counts", "attempts", "losses"),
    [("attempt", 3, 0), ("loss", 2, 2), ("end", 2, 0), ("nothing", 2, 1)],
)
@pytest.mark.parametrize("status", ["ready", "failed", "dead", "cancelled"])
def test_an_end_counts_as_what_it_says(engine: Engine, status: str, counts: str, attempts: int, losses: int) -> None:
    (run,) = running(engine)
    alter(engine, run.id, attempts=2, losses=1, last_error="before")
    before, start = row(engine, run.id), clock(engine)
    assert settle(engine, run, status=status, counts=counts) == status
    after = row(engine, run.id)
    if status == "ready":
        assert after["finished_at"] is None
    else:
        assert start <= after["finished_at"] <= clock(engine)
    assert after == before | {
        "status": status,
        "finished_at": after["finished_at"],
        "locked_by": None,
        "locked_until": None,
        "attempts": attempts,
        "losses": losses,
    }


@alone
def test_a_delay_counts_from_the_end_by_the_databases_clock(engine: Engine) -> None:
    (run,) = running(engine)
    start = clock(engine)
    settle(engine, run, counts="attempt", delay=90.5)
    due = row(engine, run.id)["run_at"] - timedelta(seconds=90.5)
    assert start <= due <= clock(engine)


@alone
def test_a_delay_of_zero_is_due_at_once_and_no_delay_keeps_the_due_time(engine: Engine) -> None:
    (run,) = running(engine)
    run_at = row(engine, run.id)["run_at"]
    settle(engine, run)
    assert row(engine, run.id)["run_at"] == run_at
    start = clock(engine)
    settle(engine, claim_one(engine), delay=0.0)
    assert start <= row(engine, run.id)["run_at"] <= clock(engine)


@alone
def test_a_claim_given_back_leaves_the_job_as_it_was_but_for_its_token(engine: Engine) -> None:
    (run,) = running(engine)
    alter(engine, run.id, attempts=1, losses=1, last_error="before", history=[{"run": 0}])
    before = row(engine, run.id)
    assert engine.settle([released(run)], MAX_UNCOUNTED) == {run.id: "ready"}
    assert row(engine, run.id) == before | {"status": "ready", "locked_by": None, "locked_until": None, "token": 1}


@alone
def test_the_last_error_is_replaced_by_an_end_that_has_one(engine: Engine) -> None:
    (run,) = running(engine)
    settle(engine, run, error="first\nßé😀")
    assert row(engine, run.id)["last_error"] == "first\nßé😀"
    settle(engine, claim_one(engine), error=None)
    assert row(engine, run.id)["last_error"] == "first\nßé😀"
    settle(engine, claim_one(engine), error="")
    assert row(engine, run.id)["last_error"] == ""


@alone
def test_a_batch_of_different_ends_is_written_each_as_its_own(engine: Engine) -> None:
    runs = running(engine, 4)
    given = [
        settled(runs[3], status="failed", counts="end", error="no"),
        settled(runs[0], counts="attempt", delay=60.0),
        settled(runs[2], status="cancelled", counts="end"),
        settled(runs[1], counts="loss", entry=entry(runs[1])),
    ]
    statuses = {runs[0].id: "ready", runs[1].id: "ready", runs[2].id: "cancelled", runs[3].id: "failed"}
    assert engine.settle(given, MAX_UNCOUNTED) == statuses
    found = [row(engine, run.id) for run in runs]
    assert [(item["status"], item["attempts"], item["losses"], item["last_error"]) for item in found] == [
        ("ready", 1, 0, ""),
        ("ready", 0, 1, ""),
        ("cancelled", 0, 0, ""),
        ("failed", 0, 0, "no"),
    ]
    assert [len(item["history"]) for item in found] == [0, 1, 0, 0]


# The history.


@alone
def test_a_line_of_the_history_says_by_the_databases_clock_when_the_run_ended(engine: Engine) -> None:
    (run,) = running(engine)
    start = clock(engine)
    settle(engine, run, entry=entry(run, error="ß\n😀"))
    (line,) = row(engine, run.id)["history"]
    # Milliseconds, cut off.
    assert start - timedelta(milliseconds=1) <= moment(line.pop("at")) <= clock(engine)
    assert line == {"run": 1, "cause": "test", "error": "ß\n😀", "worker": "host:1", "seconds": 0.5}


@alone
def test_the_history_keeps_the_first_run_and_the_last_nine(engine: Engine) -> None:
    (run,) = running(engine)
    for _ in range(12):
        settle(engine, run, entry=entry(run))
        run = claim_one(engine)
    assert [line["run"] for line in row(engine, run.id)["history"]] == [1, *range(4, 13)]


# Losses.


def lose(engine: Engine, run: Run, cause: str = "died", **values: Any) -> str:
    witnessed = cause == "died"
    return settle(engine, run, counts="loss", cause=cause, witnessed=witnessed, entry=entry(run, cause), **values)


@alone
def test_a_job_whose_process_was_seen_to_die_once_is_tried_again(engine: Engine) -> None:
    (run,) = running(engine)
    assert lose(engine, run) == "ready"
    assert row(engine, run.id)["losses"] == 1


@alone
def test_a_second_death_in_a_row_that_was_seen_ends_the_job_as_dead(engine: Engine) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_one(engine)
    assert lose(engine, run, error="killed by SIGKILL") == "dead"
    after = row(engine, run.id)
    assert (after["status"], after["losses"], after["last_error"]) == ("dead", 2, "killed by SIGKILL")
    assert [line["cause"] for line in after["history"]] == ["died", "died"]
    assert after["finished_at"] is not None


@alone
@pytest.mark.parametrize("causes", [["lease ran out", "died"], ["died", "lease ran out"], ["lease ran out"] * 2])
def test_a_death_beside_a_lease_that_ran_out_convicts_nobody(engine: Engine, causes: list[str]) -> None:
    (run,) = running(engine)
    for cause in causes:
        assert lose(engine, run, cause) == "ready"
        run = claim_one(engine)
    assert row(engine, run.id)["losses"] == 2


@alone
@pytest.mark.parametrize("between", ["stopped", "lease ran out", "database away", "connection broke"])
def test_what_says_nothing_of_the_job_does_not_part_two_deaths(engine: Engine, between: str) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_one(engine)
    counts = "nothing" if between == "stopped" else "loss"
    assert settle(engine, run, counts=counts, cause=between, entry=entry(run, between)) == "ready"
    assert lose(engine, claim_one(engine)) == "dead"


@alone
def test_however_much_the_history_has_dropped_the_second_death_convicts(engine: Engine) -> None:
    (run,) = running(engine)
    for cause in ["stopped", "died", *["stopped"] * 9]:
        counts = "loss" if cause == "died" else "nothing"
        witnessed = cause == "died"
        ends = settle(engine, run, counts=counts, cause=cause, witnessed=witnessed, entry=entry(run, cause))
        assert ends == "ready"
        run = claim_one(engine)
    assert "died" not in [line["cause"] for line in row(engine, run.id)["history"]]
    assert lose(engine, run) == "dead"


@alone
def test_a_death_before_the_job_last_ended_by_itself_does_not_count(engine: Engine) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_one(engine)
    settle(engine, run, counts="attempt", entry=entry(run, "raised"))
    lose(engine, claim_one(engine), "lease ran out")
    assert lose(engine, claim_one(engine)) == "ready"


@alone
@pytest.mark.parametrize("counts", ["attempt", "end"])
def test_a_run_that_ended_by_itself_between_two_deaths_clears_the_first(engine: Engine, counts: str) -> None:
    (run,) = running(engine)
    lose(engine, run)
    settle(engine, claim_one(engine), counts=counts)
    assert lose(engine, claim_one(engine)) == "ready"
    assert row(engine, run.id)["losses"] == 1


@alone
def test_losses_are_bounded(engine: Engine) -> None:
    (run,) = running(engine)
    ended = []
    for _ in range(3):
        found = engine.settle([settled(run, counts="loss", cause="lease ran out", error="no answer")], max_uncounted=3)
        ended.append(found[run.id])
        if found[run.id] == "ready":
            run = claim_one(engine)
    assert ended == ["ready", "ready", "dead"]
    after = row(engine, run.id)
    assert (after["losses"], after["attempts"], after["status"]) == (3, 0, "dead")
    assert after["last_error"] == "Lost 3 times in a row, never seen to end. no answer"


@alone
def test_ends_that_count_nothing_are_not_bounded(engine: Engine) -> None:
    (run,) = running(engine)
    for _ in range(5):
        assert engine.settle([settled(run)], max_uncounted=2) == {run.id: "ready"}
        run = claim_one(engine)
