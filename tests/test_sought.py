"""What jobs a person looks for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs import InvalidJob
from django_jobs.engines.base import Engine
from django_jobs.models import Job
from django_jobs.queue.sought import STATES, Sought, steps
from tests.acts import in_state
from tests.app.jobs import nothing
from tests.engines.common import alone, alter, clock

pytestmark = alone


def ids(**what: Any) -> list[int]:
    return list(Sought(**what).rows().order_by("pk").values_list("pk", flat=True))


def test_every_state_finds_the_jobs_that_are_in_it(engine: Engine) -> None:
    made = {
        status: in_state(engine, status).pk for status in ("running", "done", "failed", "dead", "cancelled", "parked")
    }
    made["later"] = in_state(engine, "scheduled").pk
    made["due"] = in_state(engine, "ready").pk
    retry = in_state(engine, "ready")
    alter(engine, retry.pk, attempts=2)
    expected = {
        **{state: [pk] for state, pk in made.items()},
        "due": [made["due"], retry.pk],
        "retries": [retry.pk],
        "dead-letters": sorted([made["dead"], made["failed"]]),
    }
    assert {state: ids(state=state) for state in STATES} == expected
    assert ids() == sorted([*made.values(), retry.pk])


def test_all_that_is_given_has_to_hold(engine: Engine) -> None:
    nothing.using(queue="mail", priority=3).enqueue(1)
    nothing.using(queue="mail").enqueue(1)
    wanted = nothing.using(queue="mail", priority=3).enqueue(1)
    alter(engine, wanted.pk, schedule="nightly")
    assert ids(queue="mail", priority=3, type=nothing.name, schedule="nightly") == [wanted.pk]
    assert ids(queue="other", schedule="nightly") == []
    assert len(ids(priority=0)) == 1


def test_a_worker_finds_what_runs_there(engine: Engine) -> None:
    job = in_state(engine, "running")
    assert job.locked_by is not None
    assert ids(worker=job.locked_by.partition(":")[0]) == [job.pk]
    assert ids(worker=job.locked_by[:3]) == []


@pytest.mark.parametrize(
    ("state", "moment"),
    [("later", "run_at"), ("dead", "finished_at"), ("running", "last_started_at"), ("", "created_at")],
)
def test_a_span_of_time_is_of_the_time_that_the_state_is_about(engine: Engine, state: str, moment: str) -> None:
    job = in_state(engine, "scheduled" if state == "later" else state or "done")
    when = clock(engine) + timedelta(hours=3 if state == "later" else -3)
    alter(engine, job.pk, **{moment: when})
    hour = timedelta(hours=1)
    assert ids(state=state, since=when - hour, until=when + hour) == [job.pk]
    assert ids(state=state, since=when) == [job.pk]
    assert ids(state=state, since=when + hour) == []
    assert ids(state=state, until=when) == []


def test_a_part_of_the_last_error_finds_in_any_case_and_takes_every_character_as_it_is(engine: Engine) -> None:
    job = in_state(engine, "dead")
    alter(engine, job.pk, last_error="Traceback\nOSError: 100% of \\it_is 'gone'")
    in_state(engine, "dead")
    for part in ("oserror", "100%", "\\it", "'gone'", "it_is"):
        assert ids(error=part) == [job.pk], part
    assert ids(error="itXis") == []


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("args.0", "42", True),
        ("args.1", "42", True),
        ("args.0", '"42"', False),
        ("args.2.id", "7", True),
        ("args.2.id", "8", False),
        ("kwargs.order_id", "A 1", True),
        ("kwargs.in", "true", True),
        ("kwargs.none", "null", True),
        ("kwargs.missing", "null", False),
        ("kwargs.exact.contains", "1.5", True),
        ("args.9", "42", False),
    ],
)
def test_a_value_in_the_arguments_is_found_by_the_way_to_it(engine: Engine, path: str, text: str, found: bool) -> None:
    job = in_state(engine, "ready")
    kwargs = {"order_id": "A 1", "in": True, "none": None, "exact": {"contains": 1.5}}
    alter(engine, job.pk, payload={"args": [42, "42", {"id": 7}], "kwargs": kwargs})
    in_state(engine, "ready")
    assert ids(argument=(path, text)) == ([job.pk] if found else [])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("Traceback\n  File\nValueError: order 17 of 3 is gone\n", "ValueError: order # of # is gone"),
        ("ValueError: order 123456789012345678901234567890 of 30 is gone", "ValueError: order # of # is gone"),
        ("one\r\n  OSError: \u00fcber 'x' %s\r\n \n", "OSError: \u00fcber 'x' %s"),
        ("x" * 600, "x" * 500),
        ("no number", "no number"),
    ],
)
def test_the_last_line_of_an_error_finds_it_whatever_numbers_are_in_it(engine: Engine, error: str, line: str) -> None:
    job = in_state(engine, "dead")
    alter(engine, job.pk, last_error=error)
    alter(engine, in_state(engine, "dead").pk, last_error=f"{error} more")
    assert ids(line=line) == [job.pk]
    assert ids(line=line[:-1]) == []


def test_a_text_outside_ascii_is_found_too(engine: Engine) -> None:
    job = in_state(engine, "dead")
    alter(engine, job.pk, last_error="OSError: Größe überschritten, 100%")
    assert ids(error="Größe ü") == [job.pk]
    assert ids(error="größen") == []


def test_a_key_finds_by_its_beginning_and_digits_find_the_id_as_well(engine: Engine) -> None:
    first, second = in_state(engine, "dead"), in_state(engine, "dead")
    alter(engine, second.pk, idempotency_key=f"{first.pk}th_order")
    assert ids(key=str(first.pk)) == [first.pk, second.pk]
    assert ids(key=f"{first.pk}th_o") == [second.pk]
    assert ids(key="9" * 19) == ids(key="th_order") == ids(key=f"{first.pk}thXo") == []


def test_a_reason_finds_what_is_parked_for_it(engine: Engine) -> None:
    job = in_state(engine, "parked")
    assert ids(parked=job.parked) == [job.pk]
    assert ids(parked="suspect") == []
    with pytest.raises(InvalidJob, match="'full'; give one of type"):
        Sought(parked="full")


def test_a_tag_finds_what_has_it_among_others(engine: Engine) -> None:
    job = in_state(engine, "ready")
    alter(engine, job.pk, meta={"tags": ["billing", "eu's"]})
    alter(engine, in_state(engine, "ready").pk, meta={"tags": ["bill"]})
    assert ids(tag="billing") == ids(tag="eu's") == [job.pk]
    assert ids(tag="ing") == []


def test_what_is_sought_goes_through_json_unchanged(engine: Engine) -> None:
    when = clock(engine)
    full = Sought(
        state="dead",
        queue="q",
        type="t",
        priority=0,
        tag="x",
        error="e",
        argument=("args.0", "1"),
        since=when,
        until=when,
    )
    assert Sought.from_json(full.as_json()) == full
    assert Sought().as_json() == {}
    assert Sought.from_json({}) == Sought()


@pytest.mark.parametrize("path", ["", "args", "order_id", "kwargs.", "args..1", "payload.args.0"])
def test_a_way_that_leads_nowhere_is_named_with_the_remedy(path: str) -> None:
    with pytest.raises(InvalidJob, match="for the first one by its place"):
        steps(path)


def test_a_state_that_there_is_not_and_a_word_that_nobody_knows_are_named() -> None:
    with pytest.raises(InvalidJob, match="'gone'; give one of due"):
        Sought(state="gone")
    with pytest.raises(InvalidJob, match="'colour'; known are argument"):
        Sought.from_json({"colour": "red"})


def test_the_rows_can_be_narrowed_from_others(engine: Engine) -> None:
    first, second = in_state(engine, "dead"), in_state(engine, "dead")
    assert list(Sought(state="dead").rows(Job.objects.using(engine.alias).filter(pk__gt=first.pk))) == [second]
