"""`jobs import-beat`, on the tables of django-celery-beat: those of the package where it is installed, else of tests/beat."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import modify_settings

from django_jobs.engines.base import Engine
from django_jobs.models import Job, Schedule

pytestmark = pytest.mark.django_db(databases="__all__")

LATER = datetime(2040, 1, 1, 12, tzinfo=UTC)
LAST = datetime(9999, 12, 30, tzinfo=UTC)
EARLIER = datetime(2020, 1, 1, 12, tzinfo=UTC)
Row = Callable[..., Any]


@pytest.fixture
def row(engine: Engine) -> Row:
    """Return what makes a row of beat's; `crontab` and others are given as the fields of their rows."""

    def make(name: str, task: str = "tests.app.jobs.nothing", **fields: Any) -> Any:
        def model(found: str) -> Any:
            return apps.get_model("django_celery_beat", found)._default_manager

        for kind in ("crontab", "interval", "clocked", "solar"):
            if kind in fields:
                fields[kind] = model(f"{kind.title()}Schedule").create(**fields[kind])
        (made,) = model("PeriodicTask").bulk_create([model("PeriodicTask").model(name=name, task=task, **fields)])
        return made

    return make


def import_beat(*options: str) -> tuple[dict[str, tuple[str, str]], int]:
    """Return what became of each row, and the exit code."""
    out, code = StringIO(), 0
    try:
        call_command("jobs", "import-beat", "--json", *options, stdout=out, stderr=StringIO())
    except CommandError as error:
        code = error.returncode
    return {found["name"]: (found["became"], found["text"]) for found in json.loads(out.getvalue())}, code


def schedules(engine: Engine) -> list[tuple[Any, ...]]:
    rows = Schedule.objects.using(engine.alias).order_by("name")
    fields = ("name", "type", "expression", "every", "timezone", "payload", "queue", "priority", "enabled")
    return list(rows.values_list(*fields))


def test_rows_become_schedules_once_however_often_it_is_done(engine: Engine, row: Row) -> None:
    night = {"minute": "30", "hour": "2", "day_of_week": "mon-fri", "timezone": "Europe/Berlin"}
    row("nightly", task="shop.tasks.report", crontab=night, args="[7]", queue="reports", priority=6)
    row("often", interval={"every": 10, "period": "minutes"}, kwargs='{"number": 3}', enabled=False)
    nothing: dict[str, Any] = {"args": [], "kwargs": {"number": 3}}
    name = "tests.app.jobs.nothing"
    expected = [
        ("nightly", name, "30 2 * * mon-fri", None, "Europe/Berlin", {"args": [7], "kwargs": {}}, "reports", 6, True),
        ("often", name, "", timedelta(minutes=10), "UTC", nothing, "", None, False),
    ]
    mapped = ("--map", f"shop.tasks.report={name}")
    tried = import_beat("--dry-run", *mapped)
    assert (tried[1], schedules(engine)) == (0, [])
    assert import_beat(*mapped) == tried
    assert {found[0] for found in tried[0].values()} == {"schedule"}
    assert schedules(engine) == expected
    again, code = import_beat(*mapped)
    assert ({found[0] for found in again.values()}, code, schedules(engine)) == ({"there"}, 0, expected)
    assert not Job.objects.using(engine.alias).exists()


def test_rows_that_run_once_become_jobs_at_that_time(engine: Engine, row: Row) -> None:
    row("clocked", clocked={"clocked_time": LATER}, one_off=True, args="[5]", expire_seconds=60)
    row("next", interval={"every": 1, "period": "hours"}, one_off=True, priority=3)
    row("ran", clocked={"clocked_time": EARLIER}, one_off=True, enabled=False, total_run_count=1)
    row("missed", clocked={"clocked_time": EARLIER}, one_off=True)
    for became in ("job", "there"):
        came, code = import_beat("--lower-first")
        assert {name: found[0] for name, found in came.items()} == {
            "clocked": became,
            "next": became,
            "ran": "not needed",
            "missed": "refused",
        }
        assert (code, Schedule.objects.using(engine.alias).count()) == (1, 0)
        clocked, following = Job.objects.using(engine.alias).order_by("id")
        assert (clocked.run_at, clocked.expires_at) == (LATER, LATER + timedelta(minutes=1))
        assert (clocked.payload["args"], clocked.idempotency_key, following.priority) == ([5], "beat:clocked", -3)
        assert timedelta(minutes=59) < following.run_at - following.created_at <= timedelta(hours=1)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such type": ({"task": "shop.tasks.gone"}, "no job type is named 'shop.tasks.gone'; write it, or give --map"),
    "both days": ({"crontab": {"day_of_month": "1", "day_of_week": "1"}}, "restricts both day fields"),
    "wraps": ({"crontab": {"hour": "22-3"}}, "22-3"),
    "often": ({"interval": {"every": 5, "period": "microseconds"}}, "every"),
    "too long": ({"interval": {"every": 2 * 10**9, "period": "days"}}, "its interval is 2000000000 'days'"),
    "too long, once": (
        {"interval": {"every": 2 * 10**9, "period": "days"}, "one_off": True},
        "its interval is 2000000000 'days'",
    ),
    "no unit": ({"interval": {"every": 5, "period": "fortnights"}}, "its interval is 5 'fortnights'"),
    "no step": ({"crontab": {"month_of_year": "*/0"}}, "a step of 0"),
    "expires never": (
        {"clocked": {"clocked_time": LAST}, "expire_seconds": 2**31 - 1},
        "it would expire 2147483647 s after 9999-12-30",
    ),
    "deep": ({"args": "[" * 50_000 + "]" * 50_000}, "cannot be read as JSON"),
    "long queue": ({"queue": "q" * 200}, "has 200 characters"),
    "sun": ({"solar": {"event": "sunset", "latitude": 52, "longitude": 13}}, "it follows the sun"),
    "no JSON": ({"args": "[1"}, "its args, '[1', cannot be read as JSON"),
    "no list": ({"args": "{}"}, "should be a list"),
    "unfit": ({"kwargs": '{"colour": 1}'}, "unexpected keyword argument 'colour'"),
    "ends": ({"expires": LATER}, "a schedule here does not end"),
    "begins": ({"start_time": LATER}, "a schedule here begins at once"),
    "priority": ({"priority": 200}, "200"),
    "nothing": ({"crontab": None}, "neither an interval nor a crontab"),
}


def test_what_cannot_be_carried_is_named_with_the_reason_and_keeps_no_other_from_it(engine: Engine, row: Row) -> None:
    times: dict[str, Any] = {"interval": {"every": 1, "period": "days"}}
    for name, (fields, _said) in REFUSED.items():
        given = {**(times if {"crontab", "interval", "solar", "clocked"}.isdisjoint(fields) else {}), **fields}
        row(name, **{key: value for key, value in given.items() if value is not None})
    row("own", task="celery.backend_cleanup", **times)
    row("over", expires=EARLIER, **times)
    row("good", headers='{"a": 1}', expire_seconds=9, **times)
    came, code = import_beat()
    assert {name: name in came and said in came[name][1] for name, (_, said) in REFUSED.items()} == dict.fromkeys(
        REFUSED, True
    )
    assert {name for name, found in came.items() if found[0] == "refused"} == set(REFUSED)
    assert (came["own"][0], came["over"][0], code) == ("not needed", "not needed", 1)
    assert "do not expire" in came["good"][1]
    assert "headers stays behind" in came["good"][1]
    assert [found[0] for found in schedules(engine)] == ["good"]


def test_a_row_that_cannot_be_read_keeps_no_other_from_it(
    engine: Engine, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    row("gone", crontab={"minute": "1"})
    row("good", crontab={"minute": "2"})

    def unknown(crontab: Any, alias: str, names: Any, values: Any) -> Any:
        if "1" in values:
            raise ValidationError("Invalid timezone 'Mars/Olympus'")
        return real(alias, names, values)

    model = apps.get_model("django_celery_beat", "CrontabSchedule")
    real = model.from_db
    monkeypatch.setattr(model, "from_db", classmethod(unknown))
    came, code = import_beat()
    assert (came["gone"], code) == (("refused", "it cannot be read: Invalid timezone 'Mars/Olympus'"), 1)
    assert [found[0] for found in schedules(engine)] == ["good"]


def test_a_schedule_that_somebody_has_changed_stays_and_is_named(engine: Engine, row: Row) -> None:
    row("good", interval={"every": 1, "period": "days"})
    import_beat()
    Schedule.objects.using(engine.alias).update(queue="other")
    came, code = import_beat()
    assert (came["good"][0], code) == ("refused", 1)
    assert "with another queue" in came["good"][1]
    assert Schedule.objects.using(engine.alias).get().queue == "other"


def test_the_beginnings_of_names_can_be_mapped(engine: Engine, row: Row) -> None:
    row("a", task="shop.tasks.nothing", interval={"every": 1, "period": "days"})
    assert import_beat("--map", "shop.tasks.*=tests.app.jobs.*")[0]["a"][0] == "schedule"


@pytest.mark.parametrize(("given", "said"), [
    (["shop.tasks.send"], "--map is 'shop.tasks.send'"),
    (["shop.*=shop.jobs"], "--map is 'shop.*=shop.jobs'"),
    (["a=b", "a=c"], "give it once"),
])  # fmt: skip
def test_a_mapping_that_cannot_be_used_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said.replace("*", r"\*")) as refused:
        call_command("jobs", "import-beat", *[word for text in given for word in ("--map", text)])
    assert refused.value.returncode == 2


def test_without_the_tables_of_beat_it_says_so() -> None:
    removed = {"remove": ["tests.beat", "django_celery_beat"]}
    with modify_settings(INSTALLED_APPS=removed), pytest.raises(CommandError, match="not in INSTALLED_APPS") as refused:
        call_command("jobs", "import-beat")
    assert refused.value.returncode == 2
