"""How a run ends: what each kind of end writes and counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs.engines.values import Done, Run, released
from tests.engines.common import alone, alter, claim, claim_one, clock, entry, order, row, running, settled

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

MAX_UNCOUNTED = 10


def settle(engine: Engine, run: Run, **values: Any) -> str:
    found = engine.settle([settled(run, **values)], MAX_UNCOUNTED)
    return found[run.id]


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
    assert settle(engine, run, status=status, counts=counts, cause="database away") == status
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
@pytest.mark.parametrize(("losses", "times"), [(0, 1), (1, 2), (3, 8), (9, 8)])
def test_the_delay_after_a_loss_is_doubled_with_each_in_a_row_three_times_at_most(
    engine: Engine, losses: int, times: int
) -> None:
    (run,) = running(engine)
    alter(engine, run.id, losses=losses)
    start = clock(engine)
    engine.settle([settled(run, counts="loss", delay=5.0)], 100)
    due = row(engine, run.id)["run_at"] - timedelta(seconds=5.0 * times)
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


# Losses, and suspects.


def lose(engine: Engine, run: Run, cause: str = "died", most: int = MAX_UNCOUNTED, **values: Any) -> str:
    given = settled(
        run, counts="loss", cause=cause, witnessed=cause == "died", entry=entry(run, cause), **{"error": "no", **values}
    )
    return engine.settle([given], most)[run.id]


def is_suspect(engine: Engine, run: Run) -> bool:
    """Tell whether a job that waits is a suspect: then it is parked as one, and no claim but one finds it."""
    found = row(engine, run.id)
    assert (found["suspect"], found["parked"]) in [(True, "suspect"), (False, None)]
    return bool(found["suspect"])


def claim_again(engine: Engine, run: Run) -> Run:
    """Claim a job in the way in which it may be claimed, whenever it is due."""
    if is_suspect(engine, run):
        assert claim(engine) == []
        return claim_suspect(engine)
    return claim_one(engine)


def claim_suspect(engine: Engine) -> Run:
    (claimed,) = engine.claim_suspect(order()).jobs
    return claimed.run


@alone
def test_a_job_whose_process_was_seen_to_die_is_a_suspect(engine: Engine) -> None:
    (run,) = running(engine)
    assert lose(engine, run) == "ready"
    assert (is_suspect(engine, run), row(engine, run.id)["losses"]) == (True, 1)


@alone
@pytest.mark.parametrize("cause", ["lease ran out", "worker failed", "connection broke"])
def test_the_second_loss_in_a_row_that_nobody_saw_makes_a_suspect(engine: Engine, cause: str) -> None:
    (run,) = running(engine)
    assert lose(engine, run, cause) == "ready"
    assert not is_suspect(engine, run)
    run = claim_one(engine)
    assert lose(engine, run, cause) == "ready"
    assert is_suspect(engine, run)


@alone
def test_outages_of_the_database_make_no_suspect_until_the_last_three_losses(engine: Engine) -> None:
    (run,) = running(engine)
    seen = []
    for _ in range(10):
        status = lose(engine, run, "database away")
        seen.append((status, bool(row(engine, run.id)["suspect"])))
        if status == "ready":
            run = claim_again(engine, run)
    assert seen == [("ready", False)] * 6 + [("ready", True)] * 3 + [("dead", True)]


@alone
def test_the_death_of_a_process_that_ran_a_suspect_alone_convicts_it(engine: Engine) -> None:
    (run,) = running(engine)
    lose(engine, run, error="killed by SIGKILL.")
    run = claim_suspect(engine)
    assert lose(engine, run, error="killed by SIGSEGV.") == "dead"
    after = row(engine, run.id)
    assert (after["status"], after["losses"], after["attempts"], after["suspect"]) == ("dead", 2, 0, True)
    assert after["last_error"] == "killed by SIGSEGV. It ran alone, and was lost 2 times in a row."
    assert [line["cause"] for line in after["history"]] == ["died", "died"]
    assert after["finished_at"] is not None
    assert after["parked"] is None


@alone
def test_a_conviction_that_is_the_last_loss_allowed_as_well_says_that_it_ran_alone(engine: Engine) -> None:
    (run,) = running(engine)
    alter(engine, run.id, suspect=True, losses=1)
    engine.settle([settled(run, counts="loss", witnessed=True, error="Killed.")], 2)
    assert row(engine, run.id)["last_error"] == "Killed. It ran alone, and was lost 2 times in a row."


@alone
def test_deaths_that_are_shared_convict_nobody(engine: Engine) -> None:
    """A row that is no suspect when its process dies did not run alone, whatever it was before."""
    (run,) = running(engine)
    alter(engine, run.id, losses=3)
    assert lose(engine, run) == "ready"
    assert is_suspect(engine, run)


@alone
@pytest.mark.parametrize("cause", ["lease ran out", "worker failed", "connection broke", "database away"])
def test_what_nobody_saw_convicts_no_suspect(engine: Engine, cause: str) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_suspect(engine)
    assert lose(engine, run, cause) == "ready"
    assert (is_suspect(engine, run), row(engine, run.id)["losses"]) == (True, 2)
    assert lose(engine, claim_suspect(engine)) == "dead"


@alone
def test_a_suspect_that_wanted_too_much_memory_alone_is_dead_and_that_counts_as_a_loss(engine: Engine) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_suspect(engine)
    assert lose(engine, run, "out of memory", status="dead", error="MemoryError") == "dead"
    after = row(engine, run.id)
    assert (after["losses"], after["attempts"], after["suspect"], after["last_error"]) == (2, 0, True, "MemoryError")


@alone
def test_a_suspect_that_is_stopped_stays_one(engine: Engine) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_suspect(engine)
    assert settle(engine, run, counts="nothing", cause="stopped", entry=entry(run, "stopped")) == "ready"
    assert (is_suspect(engine, run), row(engine, run.id)["losses"]) == (True, 1)
    assert lose(engine, claim_suspect(engine)) == "dead"


@alone
@pytest.mark.parametrize("counts", ["attempt", "end"])
def test_a_suspect_that_ends_by_itself_is_none_any_more(engine: Engine, counts: str) -> None:
    (run,) = running(engine)
    lose(engine, run)
    run = claim_suspect(engine)
    assert settle(engine, run, counts=counts) == "ready"
    assert (is_suspect(engine, run), row(engine, run.id)["losses"]) == (False, 0)
    run = claim_one(engine)
    assert lose(engine, run) == "ready"


@alone
def test_a_suspect_that_returns_is_none_any_more(engine: Engine) -> None:
    (run,) = running(engine)
    lose(engine, run)
    assert engine.complete([Done(claim_suspect(engine), None)]) == {run.id: "done"}
    assert (is_suspect(engine, run), row(engine, run.id)["losses"]) == (False, 0)


@alone
def test_losses_are_bounded_and_the_last_three_are_alone(engine: Engine) -> None:
    (run,) = running(engine)
    ended = []
    for _ in range(5):
        ended.append((lose(engine, run, "database away", 5, error="no answer"), bool(row(engine, run.id)["suspect"])))
        if ended[-1][0] == "ready":
            run = claim_again(engine, run)
    assert ended == [("ready", False), *[("ready", True)] * 3, ("dead", True)]
    after = row(engine, run.id)
    assert (after["losses"], after["attempts"], after["status"]) == (5, 0, "dead")
    assert after["last_error"] == "Lost 5 times in a row, never seen to end. no answer"


@alone
def test_ends_that_count_nothing_are_not_bounded(engine: Engine) -> None:
    (run,) = running(engine)
    for _ in range(5):
        assert engine.settle([settled(run)], max_uncounted=2) == {run.id: "ready"}
        run = claim_one(engine)


@alone
def test_each_job_of_a_batch_gets_its_own_result(engine: Engine) -> None:
    first, none, third, again = runs = running(engine, 4)
    later = again._replace(token=2, locked_by="w2:1")
    alter(engine, again.id, token=2, locked_by="w2:1")
    results = ['{"a": 1}', None, '"text"', '"of the run before"', None]
    # Two runs of one job, of which the first has lost it: neither gets what the other one returned.
    written = engine.complete([Done(run, result) for run, result in zip([*runs, later], results, strict=True)])
    assert written == dict.fromkeys([run.id for run in runs], "done")
    stored = {run.id: row(engine, run.id)["result"] for run in runs}
    assert stored == {first.id: {"a": 1}, none.id: None, third.id: "text", again.id: None}
