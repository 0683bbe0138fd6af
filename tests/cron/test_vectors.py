"""The given cases: each must come out exactly."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from django_jobs.cron import BadExpression, Cron
from django_jobs.exceptions import JobsError
from django_jobs.slots import CronSlots
from django_jobs.zones import zone

pytestmark = pytest.mark.fast


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(__file__).parent / name).read_text().splitlines()]


VECTORS = lines("vectors_given.jsonl")
INVALID = lines("invalid_given.jsonl")


def test_all_cases_are_read() -> None:
    assert (len(VECTORS), len(INVALID)) == (434, 26)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in VECTORS])
def test_the_slots_of_a_case_are_these(case: dict[str, Any]) -> None:
    slots = CronSlots(Cron.parse(case["expr"]), zone(case["tz"]), **case["policy"])
    expected = [datetime.fromisoformat(at) for at in case["expected_utc"]]
    found = [slot.at for slot in islice(slots.after(datetime.fromisoformat(case["start_utc"])), len(expected))]
    assert found == expected


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in VECTORS])
def test_the_slots_of_a_case_are_the_same_backwards(case: dict[str, Any]) -> None:
    slots = CronSlots(Cron.parse(case["expr"]), zone(case["tz"]), **case["policy"])
    expected = [datetime.fromisoformat(at) for at in case["expected_utc"]]
    assert [slot.at for slot in islice(slots.until(expected[-1]), len(expected))] == expected[::-1]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["why"]) for case in INVALID])
def test_what_is_invalid_is_refused_in_one_line(case: dict[str, Any]) -> None:
    with pytest.raises(BadExpression) as refused:
        Cron.parse(case["expr"])
    assert isinstance(refused.value, JobsError)
    assert isinstance(refused.value, ValueError)
    text = str(refused.value)
    assert text.startswith("Cron expression '")
    assert "\n" not in text
    assert len(text) < 300
    assert refused.value.__cause__ is None
