"""What the address of a list asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_jobs import InvalidJob
from django_jobs.admin.asked import query_of, sought_of
from django_jobs.engines.base import Engine
from django_jobs.queue.sought import Sought
from tests.acts import in_state
from tests.engines.common import alone, alter, clock

pytestmark = alone

WHEN = datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)
EVERYTHING: list[dict[str, Any]] = [
    {},
    {"state": "dead", "queue": "q", "type": "t", "priority": -3, "tag": "x", "schedule": "s", "key": "k"},
    {"state": "running", "worker": "w1"},
    {"state": "parked", "parked": "suspect", "priority": 0},
    {"error": "100% of a=b", "line": "ValueError: #", "argument": ("kwargs.a", "b=c"), "since": WHEN, "until": WHEN},
]


@pytest.mark.parametrize("given", EVERYTHING)
def test_what_is_sought_makes_an_address_from_which_the_same_is_made(engine: Engine, given: dict[str, Any]) -> None:
    assert sought_of(query_of(Sought(**given))) == Sought(**given)


def test_a_worker_is_one_of_running_and_a_reason_one_of_parked_jobs(engine: Engine) -> None:
    assert sought_of({"worker": "w"}) == Sought(state="running", worker="w")
    assert sought_of({"parked": "type"}) == Sought(state="parked", parked="type")
    for state in ("dead", "done"):
        with pytest.raises(InvalidJob, match="only jobs that are running have one"):
            sought_of({"worker": "w", "state": state})


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("args.0=5", Sought(argument=("args.0", "5"))),
        ("kwargs.customer.id=a=b", Sought(argument=("kwargs.customer.id", "a=b"))),
        ("tag:billing", Sought(tag="billing")),
        ("tag:", Sought(error="tag:")),
        ("  SMTP 550 ", Sought(error="SMTP 550")),
        ("order_id=42", Sought(error="order_id=42")),
        ("order:", Sought(key="order:")),
        ("rder:", Sought(error="rder:")),
    ],
)
def test_a_search_is_told_by_its_form_and_by_whether_a_key_begins_so(engine: Engine, term: str, found: Sought) -> None:
    alter(engine, in_state(engine, "done").pk, idempotency_key="order:17")
    assert sought_of({"q": term}) == found


def test_a_number_is_an_id_or_a_key_and_an_archived_key_is_asked_for_as_one(engine: Engine) -> None:
    assert sought_of({"q": "77"}) == sought_of({"q": "77"}, archived=True) == Sought(key="77")
    assert sought_of({"q": "9" * 20}) == Sought(error="9" * 20)
    assert sought_of({"q": "key:order:1"}, archived=True) == Sought(key="order:1")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"state": "gone"}, "'gone'; give one of due"),
        ({"priority": "abc"}, "'abc'; give a whole number from -100 to 100"),
        ({"priority": "101"}, "'101'; give a whole"),
        ({"priority": "1.5"}, "'1.5'; give a whole"),
        ({"priority": "\N{SUPERSCRIPT TWO}"}, "give a whole"),
        ({"since": "yesterday"}, "'yesterday'; give a time as"),
        ({"until": "0001-01-01T00:00+14:00"}, "give a time as"),
        ({"until": "9999-12-31T23:59"}, "give a time as"),
        ({"since": "12"}, "'12'; give a time as"),
        ({"span": "year"}, "'year'; give one of hour"),
        ({"queue": "a\x00b"}, "queue has a NUL"),
        ({"q": "\x00"}, "q has a NUL"),
        ({"q": "\ud800"}, "q has a character that no text can hold"),
        ({"tag": "x" * 1001}, "tag has 1001 characters; give at most 1000"),
        ({"argument": "order_id=42"}, "'order_id=42'; give args.0=5"),
        ({"argument": "args.0"}, "'args.0'; give"),
        ({"q": "args=5"}, "'args=5'; give"),
        ({"q": "kwargs.=5"}, "'kwargs.=5'; give"),
        ({"q": "args[0]=5"}, r"'args\[0\]=5'; give"),
        ({"parked": "full"}, "'full'; give one of type"),
    ],
)
def test_a_value_that_is_none_of_its_kind_is_named_with_the_remedy(
    engine: Engine, asked: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidJob, match=says):
        sought_of(asked)


@pytest.mark.parametrize("asked", [{"state": "due"}, {"state": "running"}, {"worker": "w"}, {"parked": "type"}])
def test_an_archived_job_neither_waits_nor_runs(engine: Engine, asked: dict[str, str]) -> None:
    with pytest.raises(InvalidJob):
        sought_of(asked, archived=True)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T12:30:15.123456+00:00", WHEN),
        ("2026-03-01T13:30:15.123456 01:00", WHEN),  # of an address in which the + was not escaped
    ],
)
def test_a_time_is_read_with_its_zone(engine: Engine, text: str, moment: datetime) -> None:
    assert sought_of({"since": text}).since == moment


def test_a_time_without_a_zone_is_of_the_zone_that_the_pages_show(engine: Engine) -> None:
    with timezone.override("America/New_York"):
        assert sought_of({"until": "2026-03-01T07:30"}).until == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "ago"),
    [
        ({"since": "30m"}, timedelta(minutes=30)),
        ({"since": "7d"}, timedelta(days=7)),
        ({"span": "hour"}, timedelta(hours=1)),
        ({"span": "day"}, timedelta(days=1)),
        ({"span": "week"}, timedelta(days=7)),
    ],
)
def test_how_long_ago_is_counted_by_the_clock_of_the_database(
    engine: Engine, asked: dict[str, str], ago: timedelta
) -> None:
    before = clock(engine)
    found = sought_of(asked).since
    assert found is not None
    assert before <= found + ago <= clock(engine)


def test_today_begins_at_midnight_of_the_zone_that_the_pages_show(engine: Engine) -> None:
    with timezone.override("Asia/Tokyo"):
        since = sought_of({"span": "today"}).since
        assert since is not None
        assert (timezone.localtime(since).hour, timezone.localtime(since).minute) == (0, 0)
        assert timedelta() <= clock(engine) - since < timedelta(days=1)
