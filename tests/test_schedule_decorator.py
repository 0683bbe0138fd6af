"""`@schedule`: what it accepts, what it refuses and where, and that it leaves the job as it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import InvalidJobType, checks, job, schedule
from django_jobs.models import Job
from django_jobs.models.schedule import Schedule
from django_jobs.schedules import code, overrides, sync
from tests.app.jobs import leave_effect, nothing
from tests.engines.common import alone
from tests.releases import declare, release

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def nothing_declared() -> Iterator[None]:
    with release():
        yield


# What it leaves.


def test_the_job_is_the_same_object_and_is_called_as_before() -> None:
    assert schedule("30 2 * * *")(nothing) is nothing
    assert nothing(5) == 5
    (found,) = code.schedules()
    assert (found.name, found.type, found.place) == (nothing.name, nothing.name, nothing.job_type.place)
    assert checks.check_schedules(None) == []


def test_stacked_ones_have_names_of_their_own() -> None:
    both = schedule("0 9 * * 1-5", name="mornings")(schedule("0 12 * * 0", name="sundays", args=(2,))(nothing))
    assert both is nothing
    assert [(found.name, found.type) for found in code.schedules()] == [
        ("mornings", nothing.name),
        ("sundays", nothing.name),
    ]
    assert checks.check_schedule_names(None) == checks.check_schedules(None) == []


def test_every_option_is_a_field_of_the_schedule() -> None:
    declare(
        "all",
        every=timedelta(hours=1),
        args=[1],
        timezone="Europe/Berlin",
        nonexistent="skip",
        ambiguous="both",
        missed="all",
        missed_grace=30,
        missed_limit=7,
        missed_window=timedelta(days=1),
        overlap="queue",
        spread=600,
        queue="mail",
        priority=-5,
        enabled=False,
    )
    assert checks.check_schedules(None) == []
    (found,) = code.schedules()
    assert overrides.as_json(sync._checked(found)) == {
        "type": nothing.name, "payload": {"args": [1], "kwargs": {}}, "expression": "", "every": 3600.0,
        "timezone": "Europe/Berlin", "nonexistent": "skip", "ambiguous": "both", "missed": "all", "missed_grace": 30.0,
        "missed_limit": 7, "missed_window": 86400.0, "overlap": "queue", "spread": 600.0, "queue": "mail",
        "priority": -5, "enabled": False,
    }  # fmt: skip


def test_without_a_zone_it_is_of_the_projects(settings: Any) -> None:
    declare("a", "30 2 * * *")
    settings.TIME_ZONE = "Asia/Kolkata"
    try:
        assert sync._checked(code.schedules()[0]).timezone == "Asia/Kolkata"
    finally:
        settings.TIME_ZONE = "UTC"


# What is refused at once.


def plain(number: int) -> int:
    return number


@pytest.mark.parametrize("target", [plain, 5, None, Job, nothing.job_type])
def test_above_what_is_no_job_it_is_refused(target: Any) -> None:
    with pytest.raises(
        InvalidJobType,
        match=r"@schedule stands above @job, and .* is no job; write @job, or @task, directly below it\.",
    ):
        schedule("30 2 * * *")(target)
    assert code.schedules() == []


def test_in_the_wrong_order_it_is_refused_by_the_name_of_what_stands_below() -> None:
    said = r"^@schedule stands above @job, and .*\.below is no job; write @job, or @task, directly below it\.$"
    with pytest.raises(InvalidJobType, match=said):

        @job  # type: ignore[type-var]
        @schedule("30 2 * * *")
        def below() -> None:
            pass

    assert code.schedules() == []


def test_an_option_that_there_is_not_is_named_with_those_that_there_are() -> None:
    said = r"^@schedule has no option 'colour'; it has ambiguous, args, enabled, every, .*, spread, timezone\.$"
    with pytest.raises(InvalidJobType, match=said):
        schedule("30 2 * * *", colour=1)  # type: ignore[arg-type]


def test_without_parentheses_it_is_refused_instead_of_replacing_the_job() -> None:
    with pytest.raises(InvalidJobType, match=r'does not say when; write @schedule\("30 2 \* \* \*"\)\.'):
        schedule(nothing)  # type: ignore[arg-type]


# What `manage.py check` reports.

WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "expression: Give a cron expression"),
    ({"expression": "61 * * * *"}, "expression: Cron expression '61 * * * *'"),
    ({"expression": "0 0 30 2 *"}, "expression: Cron expression '0 0 30 2 *': day 30 never comes"),
    ({"expression": "30 2 * 3 0#2", "timezone": "America/New_York", "nonexistent": "skip"},
     "expression is '30 2 * 3 0#2', and in America/New_York the clock jumps over all of its times"),
    ({"expression": 5}, "expression: Cron expression 5"),
    ({"expression": ["* * * * *"]}, "expression: Cron expression ['* * * * *']"),
    ({"expression": "* * * * *", "every": 60}, "every: Give a cron expression or an interval (every), and not both: "),
    ({"every": 0}, "every is 0s; give 1s to ten years."),
    ({"every": "60"}, "every is '60'; give a timedelta, or seconds, from 1s to ten years."),
    ({"every": True}, "every is True; give a timedelta"),
    ({"every": float("nan")}, "every is nan; give a timedelta"),
    ({"every": 1e300}, "every is 1e+300; give a timedelta"),
    ({"every": 60, "args": 5}, "payload: args is 5; give a list."),
    ({"every": 60, "args": "7"}, "payload: args is '7'; give a list."),
    ({"every": 60, "kwargs": [1]}, "payload: kwargs is [1]; give a dict."),
    ({"every": 60, "args": (1, 2)}, "payload: "),
    ({"every": 60, "kwargs": {"number": object()}}, "payload: "),
    ({"every": 60, "timezone": "Mars"}, "timezone: Time zone 'Mars' is not known here; give a name"),
    ({"every": 60, "timezone": ""}, "timezone: Time zone '' is not known here; give a name"),
    ({"every": 60, "timezone": 5}, "timezone: Time zone 5 is not known here; give a name"),
    ({"every": 60, "nonexistent": "later"}, "nonexistent is 'later'; give one of 'after_gap', 'skip'."),
    ({"every": 60, "ambiguous": None}, "ambiguous is None; give one of 'first', 'second', 'both'."),
    ({"every": 60, "missed": []}, "missed is []; give one of 'latest', 'skip', 'all'."),
    ({"every": 60, "overlap": "no"}, "overlap is 'no'; give one of 'allow', 'skip', 'queue'."),
    ({"every": 60, "missed_grace": -1}, "missed_grace is "),
    ({"every": 60, "missed_limit": 0}, "missed_limit is 0; give"),
    ({"every": 60, "missed_limit": 1.5}, "missed_limit is 1.5; give"),
    ({"every": 60, "missed_limit": True}, "missed_limit is True; give"),
    ({"every": 60, "missed_window": "day"}, "missed_window is 'day'; give"),
    ({"every": 60, "spread": 60}, "spread is 1m; give less than 1m"),
    ({"every": 60, "queue": "a,b"}, "queue: "),
    ({"every": 60, "queue": 5}, "queue: "),
    ({"every": 60, "priority": 101}, "priority is 101; give"),
    ({"every": 60, "enabled": "maybe"}, "enabled: "),
    ({"every": 60, "name": ""}, "name is '' of 0 characters; give 1 to 200."),
    ({"every": 60, "name": 5}, "name is 5; give text."),
    ({"every": 60, "name": ["a"]}, "name is ['a']; give text."),
    ({"every": 60, "name": "x" * 201}, "name is 'xxx"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "says"), WRONG, ids=lambda value: str(value)[:40])
def test_a_value_that_cannot_be_used_is_an_error_of_the_check_and_none_of_the_import(
    options: dict[str, Any], says: str
) -> None:
    declare(**{"name": "wrong", **options})
    declare("right", every=60)
    (message,) = checks.check_schedules(None)
    assert message.id == "django_jobs.E008"
    name = options.get("name", "wrong")
    head = f"The schedule {name!r} of {nothing.job_type.place} cannot be used: "
    assert message.msg.startswith(head + says)
    assert "docs/schedules.md" in str(message.hint)


def test_with_settings_that_cannot_be_used_schedules_are_not_looked_at(settings: Any) -> None:
    declare("wrong", "x")
    settings.DJANGO_JOBS = {"LEESE": 3}
    assert checks.check_schedules(None) == []


def test_several_wrong_values_are_named_together() -> None:
    declare("wrong", "x", timezone="Mars", missed="no")
    (message,) = checks.check_schedules(None)
    assert [field for field in ("expression: ", "timezone: ", "missed is ") if field not in message.msg] == []


def test_two_of_one_name_are_an_error_and_the_first_stays() -> None:
    declare("same", every=60)
    declare("same", every=90)
    declare("same", of=leave_effect, every=90, args=["x"])
    first, second = checks.check_schedule_names(None)
    assert {first.id, second.id} == {"django_jobs.E007"}
    assert second.msg == (
        f"Two schedules are named 'same': that of {nothing.job_type.place} and that of {leave_effect.job_type.place}."
    )
    assert [found.values["every"] for found in code.schedules()] == [60]


def test_a_second_schedule_of_a_job_without_a_name_is_an_error() -> None:
    schedule("0 9 * * *")(schedule("0 12 * * *")(nothing))
    (message,) = checks.check_schedule_names(None)
    assert "@schedule(..., name=...)" in str(message.hint)


def test_a_module_that_is_read_again_is_no_clash() -> None:
    for _ in range(2):
        declare("same", every=60, args=[1])
    assert checks.check_schedule_names(None) == []


# What is stored.


@alone
def test_what_cannot_be_used_is_logged_and_keeps_no_other_from_being_stored(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    declare("a right one", every=60)
    for number, (options, _) in enumerate(WRONG):
        declare(**{"name": f"wrong {number}", **options})
    declare("yet another", every=60)
    sync.sync(engine.alias)
    rows = Schedule.objects.using(engine.alias).order_by("name")
    assert list(rows.values_list("name", flat=True)) == ["a right one", "yet another"]
    said = [line for line in caplog.messages if "cannot be used, and is left as it was: " in line]
    assert len(said) == len(WRONG) == len(caplog.messages)
