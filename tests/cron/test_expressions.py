"""Cron expressions: what is read, what is refused and how, and which readings come of it."""

from __future__ import annotations

import calendar
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobs import cron as cron_module
from django_jobs.cron import BadExpression, Cron

START = datetime(2024, 1, 1)


def refused(text: Any) -> str:
    with pytest.raises(BadExpression) as error:
        Cron.parse(text)
    return str(error.value)


def readings(text: str, count: int = 5, start: datetime = START) -> list[datetime]:
    return list(islice(Cron.parse(text).readings(start), count))


# What is read.


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("5 4 10-10 * *", "5 4 10 * *"),
        ("5 4 * * 7", "5 4 * * 0"),
        ("5 4 * * 5-7", "5 4 * * 0,5,6"),
        ("5 4 * * 0-7", "5 4 * * 0-6"),
        ("5 4 * * 2/2", "5 4 * * 2,4,6"),
        ("50/4 4 * * *", "50,54,58 4 * * *"),
        ("1-5/60 4 * * *", "1 4 * * *"),
        ("*/100 4 * * *", "0 4 * * *"),
        ("08 09 * * *", "8 9 * * *"),
        ("5 4 * JAN,feb-Apr Mon-wed", "5 4 * 1-4 1-3"),
        ("5 4 * * SUN#2", "5 4 * * 7#2"),
        ("5 4 l * *", "5 4 L * *"),
    ],
)
def test_two_spellings_of_one_expression_have_the_same_readings(text: str, same: str) -> None:
    assert readings(text, 50) == readings(same, 50)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@MIDNIGHT", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_a_name_stands_for_five_fields_and_stays_the_text(name: str, same: str) -> None:
    found = Cron.parse(f" {name}\t")
    assert found.text == name
    assert readings(name) == readings(same)
    assert found.follows_real_time is Cron.parse(same).follows_real_time


@pytest.mark.fast
def test_the_text_is_the_expression_with_single_spaces() -> None:
    assert Cron.parse("\t 0,30  2 \t*  JAN  Mon-fri \r\n").text == "0,30 2 * JAN Mon-fri"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("hour", "real"), [("*", True), ("*/2", True), ("*/6,13", True), ("13,*/6", False), ("0-23", False), ("0/2", False)]
)
def test_only_an_hour_field_that_starts_with_a_star_follows_real_time(hour: str, real: bool) -> None:
    assert Cron.parse(f"* {hour} * * *").follows_real_time is real


@pytest.mark.fast
@pytest.mark.parametrize("days", ["0 0 1-31 * 1", "0 0 */1 * 1", "0 0 13 * */1"])
def test_of_two_restricted_day_fields_either_is_enough(days: str) -> None:
    assert readings(days, 40) == [START + timedelta(days=number) for number in range(40)]


@pytest.mark.fast
def test_the_last_day_and_the_nth_weekday_go_by_the_month() -> None:
    assert [found.day for found in readings("0 0 L * *", 4)] == [31, 29, 31, 30]
    assert [found.day for found in readings("0 0 15,L * *", 4)] == [15, 31, 15, 29]
    assert [found.day for found in readings("0 0 * * mon#1,mon#3", 4)] == [1, 15, 5, 19]
    assert [(found.month, found.day) for found in readings("0 0 * * 5#5", 3)] == [(3, 29), (5, 31), (8, 30)]


@pytest.mark.fast
def test_255_characters_are_read() -> None:
    text = "0 0 1 1 " + "0," * 123 + "0"
    assert len(text) == 255
    assert Cron.parse(text).text == text


# What is refused.


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("61 * * * *", "'61' is no minute; give a number from 0 to 59."),
        ("0 0 * Foo *", "'Foo' is no month; give a number from 1 to 12 or a name (jan to dec)."),
        ("0 0 * * 8", "'8' is no day of week; give a number from 0 to 7 or a name (sun to sat)."),
        ("0 0 mon * *", "'mon' is no day of month; give a number from 1 to 31."),
        ("0 5-2 * * *", "'5-2' runs backwards in the hour field; write it as two ranges."),
        (
            "0 0 * * fri-sun",
            "'fri-sun' runs backwards in the day of week field; write it as two ranges "
            "(Sunday at the end of a range is 7, at its start 0).",
        ),
        ("0 */0 * * *", "'*/0' in the hour field has a step of 0; the least step is 1."),
        ("0 ? * * *", "'?' is not understood in the hour field; write *, n, a-b or a step as in */5."),
        ("0 0 30 2 *", "day 30 never comes in the months of the month field; change the day of month or the month."),
        ("0 0", "it has 2 fields; give five: minute, hour, day of month, month, day of week."),
        ("x", "it has 1 field; give five: minute, hour, day of month, month, day of week."),
        ("@wee\u212aly", "give ASCII digits, letters and signs only."),
        ("0 0 * * 1\xa0", "give ASCII digits, letters and signs only."),
        (
            "@reboot",
            "this name is not known; give five fields or one of "
            "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.",
        ),
    ],
)
def test_a_refusal_says_the_value_the_field_and_the_remedy(text: str, problem: str) -> None:
    assert refused(text) == f"Cron expression {text!r}: {problem}"


@pytest.mark.fast
@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"] * 5, object()])
def test_what_is_no_text_is_refused(value: Any) -> None:
    assert refused(value).endswith(": give text such as '30 2 * * *'.")


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        *("*-5 * * * *", "*/* * * * *", "1//2 * * * *", "1-2-3 * * * *", "-1 * * * *", "1, * * * *", "1/-2 * * * *"),
        *("1.5 * * * *", "1e1 * * * *", "1_0 * * * *", "* * * * *#2", "* * * * 1#0", "* * * * 1#2/2", "* * * * 8#1"),
        *("* * L/2 * *", "* * LW * *", "* * 15W * *", "* * * L *", "* * * * L", "R R * * *", "* * * * 7/2", "@ daily"),
        *("* * * *\n*", "* * * * *\x00", "0 0 31 4,6,9,11 *", "0 0 31 2,4 *", "0 0 0-5 * *", "@daily * * * *"),
    ],
)
def test_what_looks_like_an_expression_is_refused_as_well(text: str) -> None:
    assert "\n" not in refused(text)


@pytest.mark.fast
@pytest.mark.parametrize("text", ["* * * * *" + " " * 247, "9" * 256, "9" * 5_000, "* " * 20_000])
def test_more_than_255_characters_are_refused_unread(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cron_module, "re")
    monkeypatch.delattr(cron_module, "_sets")
    assert refused(text).endswith(f": it has {len(text):,} characters; at most 255 are read.")


@given(st.text(max_size=300) | st.lists(st.text("0123456789*,-/#Lmon ", max_size=6), max_size=6).map(" ".join))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        found = Cron.parse(text)
    except BadExpression as error:
        said = str(error)
    else:
        said = found.text
        assert Cron.parse(found.text) == found
    assert said.isprintable()


# What comes of it.


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> str:
    """A star, or a list of numbers: what every cron library reads in the same way."""
    numbers = draw(st.sets(st.integers(least, most), max_size=5))
    return ",".join(map(str, sorted(numbers))) or "*"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Five fields of stars and lists. With both day fields restricted a day may match either, in croniter too."""
    minute, hour = draw(fields(0, 59)), draw(fields(0, 23))
    day, month, weekday = draw(fields(1, 28)), draw(fields(1, 12)), draw(fields(0, 6))
    return f"{minute} {hour} {day} {month} {weekday}"


MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2090, 1, 1))


@given(expressions(), MOMENTS)
@settings(max_examples=150, deadline=None)
def test_the_readings_are_those_of_croniter(text: str, start: datetime) -> None:
    other = croniter(text, start)
    expected = [other.get_next(datetime) for _ in range(20)]
    found = readings(text, 21, start)
    assert (found[1:] if found[0] == start else found[:-1]) == expected


@given(expressions(), MOMENTS)
@settings(max_examples=100, deadline=None)
def test_the_readings_are_the_same_backwards(text: str, start: datetime) -> None:
    cron = Cron.parse(text)
    found = list(islice(cron.readings(start), 20))
    assert found[0] >= start
    assert all(early < late for early, late in pairwise(found))
    assert list(islice(cron.readings_back(found[-1]), 20)) == found[::-1]
    assert next(cron.readings_back(start)) <= start


@pytest.mark.fast
def test_a_start_within_a_minute_is_rounded_up_and_an_end_down() -> None:
    cron = Cron.parse("* * * * *")
    minute = timedelta(minutes=1)
    for within in (timedelta(microseconds=1), timedelta(seconds=59)):
        assert next(cron.readings(START + within)) == START + minute
        assert next(cron.readings_back(START + within)) == START
    assert next(cron.readings(START)) == next(cron.readings_back(START)) == START


@pytest.mark.fast
def test_the_readings_end_silently_with_the_calendar() -> None:
    noon = Cron.parse("0 12 * * *")
    assert list(noon.readings(datetime(9999, 12, 30, 12, 0, 1))) == [datetime(9999, 12, 31, 12)]
    assert list(noon.readings_back(datetime(1, 1, 2, 11, 59))) == [datetime(1, 1, 1, 12)]
    assert list(Cron.parse("* * * * *").readings(datetime.max)) == []
    assert list(Cron.parse("* * * * *").readings_back(datetime.min)) == [datetime.min]
    assert list(Cron.parse("0 0 29 2 *").readings(datetime(9996, 3, 1))) == []
    assert list(Cron.parse("0 0 29 2 *").readings_back(datetime(4, 2, 28))) == []


@pytest.mark.fast
@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 * 2 1#5", "0 0 29 2 1", "0 0 31 12 *", "0 0 L 2 *", "* 3 * * *"])
def test_the_next_reading_costs_a_look_at_a_few_months_at_most(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def counting(year: int, month: int) -> tuple[int, int]:
        looks.append((year, month))
        return calendar.monthrange(year, month)

    monkeypatch.setattr(cron_module, "monthrange", counting)
    # The longest wait there is: from one leap year over 2100 to the next that starts on the same day.
    next(Cron.parse(text).readings(datetime(2072, 3, 1)))
    next(Cron.parse(text).readings_back(datetime(2112, 2, 1)))
    assert 0 < len(looks) <= 2 * 41


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("@hourly", timedelta(hours=1)),
        ("*/40 * * * *", timedelta(minutes=20)),
        ("@daily", timedelta(days=1)),
        ("0 0,22 * * *", timedelta(hours=2)),
        ("0 8,22 * * 1", timedelta(hours=14)),
        ("0 0,23 * * 1,2", timedelta(hours=1)),
        ("@weekly", timedelta(days=7)),
        ("0 9 * * 1,3", timedelta(days=2)),
        ("@monthly", timedelta(days=28)),
        ("0 0 L * *", timedelta(days=28)),
        ("0 0 31 * *", timedelta(days=31)),
        ("0 0 1,L * *", timedelta(days=1)),
        ("0 0 * * 1#1", timedelta(days=28)),
        ("@yearly", timedelta(days=365)),
        ("0 0 29 2 *", timedelta(days=1461)),
        ("0 0 * 2 1#5", timedelta(days=4382)),
        ("0 23 31 12 *", timedelta(days=365)),
        ("0 0 1 1 1", timedelta(days=1)),
    ],
)
def test_the_shortest_gap_is_exact(text: str, gap: timedelta) -> None:
    assert Cron.parse(text).shortest_gap() == gap


@given(expressions())
@settings(max_examples=40, deadline=None)
def test_no_two_readings_are_closer_than_the_shortest_gap(text: str) -> None:
    cron = Cron.parse(text)
    found = list(islice(cron.readings(datetime(2024, 1, 1)), 500))
    assert min(late - early for early, late in pairwise(found)) >= cron.shortest_gap()
