"""The form of a schedule: what it takes, what it refuses and where, and how broken rows are repaired with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.db.models import QuerySet

from django_jobs.models import Schedule, ScheduleState
from tests.admin.schedules import (
    ADD,
    LIST,
    add,
    errors,
    fresh,
    make,
    page,
    save,
    state,
    write,
)
from tests.admin.site import Site, text
from tests.app.jobs import leave_effect, nothing

pytestmark = pytest.mark.django_db(databases="__all__")
SPRING = datetime(2027, 3, 27, 0, tzinfo=UTC)


def names(site: Site) -> list[str]:
    return list(Schedule.objects.using(site.alias).values_list("name", flat=True))


def test_a_schedule_is_made_by_the_form(site: Site) -> None:
    answer = add(
        site,
        args="[7]",
        expression="",
        every="12h",
        missed_grace="90",
        missed_window="7d",
        spread="2.5s",
        queue="mail",
        priority="5",
    )
    assert answer.status_code == 200
    assert names(site) == ["nightly"]
    found = Schedule.objects.using(site.alias).select_related("state").get()
    assert (found.type, found.payload) == (nothing.name, {"args": [7], "kwargs": {}})
    assert (found.every, found.expression) == (timedelta(hours=12), "")
    assert (found.missed_grace, found.missed_window) == (timedelta(seconds=90), timedelta(days=7))
    assert found.spread == timedelta(seconds=2.5)
    assert (found.queue, found.priority, found.timezone, found.enabled) == ("mail", 5, "Europe/Berlin", True)
    assert found.state.wake_at is not None
    assert LogEntry.objects.get().object_repr == "nightly"


@pytest.mark.skipif(not settings.TASKS, reason="Django before 6.0, without the package django-tasks")
def test_the_type_may_be_that_of_a_task(site: Site) -> None:
    path = "tests.tasks.app_tasks.send"
    assert f'<option value="{path}">' in site.client.get(ADD).content.decode()
    answer = add(site, type=path, args='["ada@example.com"]')
    assert "password" in " ".join(errors(answer)["args"])
    add(site, type=path, args='["ada@example.com", "1234"]')
    assert [found.type for found in Schedule.objects.using(site.alias).all()] == [path]


def test_durations_are_shown_as_they_are_written(site: Site) -> None:
    spans = {"every": 5400, "missed_grace": 86400, "missed_window": 45, "spread": 0.5}
    values: dict[str, Any] = {name: timedelta(seconds=seconds) for name, seconds in spans.items()}
    found = make(site, **values)
    html = page(site, found).content.decode()
    for name, shown in (("every", "90m"), ("missed_grace", "1d"), ("missed_window", "45s"), ("spread", "0.5s")):
        assert f'name="{name}" value="{shown}"' in html


def test_saving_what_was_not_edited_changes_nothing_and_no_state(site: Site) -> None:
    found = make(site, payload={"args": [1.0], "kwargs": {}}, every=timedelta(minutes=90), timezone="Europe/Berlin")
    before = (
        Schedule.objects.using(site.alias).values().get(),
        ScheduleState.objects.using(site.alias).values().get(),
    )
    assert save(site, found, expression="", every="90m", args="[1.0]").status_code == 200
    after = (
        Schedule.objects.using(site.alias).values().get(),
        ScheduleState.objects.using(site.alias).values().get(),
    )
    assert after == before
    assert LogEntry.objects.get().get_change_message() == "No fields changed."


def test_new_times_begin_now_and_a_new_queue_leaves_the_state(site: Site) -> None:
    found = make(site, timezone="Europe/Berlin")
    state(found, next_run_at=SPRING, changed_at=SPRING)
    save(site, found, queue="mail")
    assert ScheduleState.objects.using(site.alias).values_list("next_run_at", flat=True).get() is not None
    save(site, found, expression="31 2 * * *")
    assert ScheduleState.objects.using(site.alias).values_list("next_run_at", flat=True).get() is None


def test_the_name_stays_once_it_is_stored(site: Site) -> None:
    found = make(site)
    assert 'name="name"' not in page(site, found).content.decode()
    save(site, found, name="other")
    assert names(site) == ["nightly"]
    assert list(errors(add(site))) == ["name"]


@pytest.mark.parametrize(
    ("values", "field", "says"),
    [
        ({"expression": "61 * * * *"}, "expression", "61"),
        ({"expression": ""}, "expression", "Give a cron expression"),
        ({"every": "5m"}, "every", "not both"),
        ({"expression": "", "every": "soon"}, "every", "give seconds, or a number with s, m, h or d"),
        ({"expression": "", "every": "999999999999d"}, "every", "ten years at most"),
        ({"expression": "", "every": "0"}, "every", "give 1s to ten years"),
        ({"expression": "", "every": "11y"}, "every", "give seconds"),
        ({"timezone": "Mars"}, "timezone", "Mars"),
        ({"timezone": "../x"}, "timezone", "../x"),
        ({"spread": "2d"}, "spread", "the shortest time between two slots"),
        ({"missed_window": "-5"}, "missed_window", "give seconds"),
        ({"missed_limit": "0"}, "missed_limit", "1"),
        ({"priority": "101"}, "priority", "101"),
        ({"priority": "9" * 5000}, "priority", "whole number"),
        ({"queue": "a b"}, "queue", "space"),
        ({"type": "shop.gone"}, "type", "no job of that name is known here"),
        ({"args": "[1"}, "args", "This is not JSON"),
        ({"args": "{}"}, "args", "Give a JSON list"),
        ({"args": "[1, 2]"}, "args", "too many positional arguments"),
        ({"args": "[" * 100_000}, "args", "cannot be read"),
        ({"args": "[" + "9" * 5000 + "]"}, "args", "cannot be read"),
        ({"args": "[NaN]"}, "args", "nan"),
        ({"args": '["\\u0000"]'}, "args", "NUL"),
        ({"kwargs": "[]"}, "kwargs", "Give a JSON object"),
        ({"kwargs": '{"colour": 1}'}, "kwargs", "colour"),
        ({"args": "[1]", "kwargs": '{"number": 1}'}, "kwargs", "multiple values"),
        ({"type": leave_effect.name}, "args", "missing a required argument"),
        ({"nonexistent": "never"}, "nonexistent", "never"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_field_and_nowhere_else(
    site: Site, values: dict[str, str], field: str, says: str
) -> None:
    answer = add(site, **values)
    found = errors(answer)
    assert list(found) == [field]
    assert says in " ".join(found[field])
    assert names(site) == []


@pytest.mark.parametrize(
    ("row", "says", "repaired"),
    [
        ({"timezone": "Mars"}, "Time zone &#x27;Mars&#x27; is not known here", {}),
        ({"expression": "x"}, "expression", {}),
        ({"payload": "5"}, "payload is 5", {"args": "[3]"}),
        ({"payload": "null"}, "payload", {"args": "[3]"}),
        ({"payload": '{"args": 3, "kwargs": {"number": 3}}'}, "payload", {"kwargs": '{"number": 3}'}),
        ({"nonexistent": "foo"}, "foo", {}),
        ({"missed_limit": 0}, "missed_limit is 0", {}),
        ({"priority": 999}, "priority is 999", {}),
        ({"type": "shop.gone"}, "no job of that name is known here", {}),
    ],
)
def test_a_row_broken_by_hand_has_its_page_says_why_and_is_repaired_there(
    site: Site, row: dict[str, Any], says: str, repaired: dict[str, str]
) -> None:
    found = make(site)
    write(found, **row)
    answer = page(site, found)
    assert "broken" in text(answer)
    assert says in answer.content.decode()
    assert save(site, found, **repaired).redirect_chain
    assert fresh(found).timezone == "Europe/Berlin"
    assert fresh(found).next_slots(SPRING, 1)
    assert "broken" not in text(page(site, found))


def test_what_the_form_cannot_read_is_said_once_whatever_is_stored(site: Site) -> None:
    found = make(site)
    write(found, missed_limit=0)
    assert errors(save(site, found, missed_limit="x")) == {"missed_limit": ["Enter a whole number."]}


@pytest.mark.parametrize(
    "values",
    [
        {"every": timedelta(0), "expression": ""},
        {"every": timedelta(seconds=-5), "expression": ""},
        {"every": timedelta(days=99_999), "expression": "", "timezone": "Mars"},
        {"spread": timedelta(seconds=-5)},
        {"missed_grace": timedelta(days=99_999)},
        {"timezone": ""},
        {"expression": "0 0 30 2 *"},
    ],
)
def test_whatever_stands_in_a_row_its_pages_are_there_and_say_what_is_wrong(site: Site, values: dict[str, Any]) -> None:
    found = make(site)
    QuerySet.update(Schedule.objects.using(site.alias).filter(pk=found.pk), **values)
    for answer in (page(site, found), site.client.get(LIST)):
        assert answer.status_code == 200
        assert "broken" in text(answer)
    assert save(site, found, missed_grace="", spread="").redirect_chain


def test_a_broken_one_that_is_paused_says_both(site: Site) -> None:
    found = make(site, enabled=False)
    write(found, expression="x")
    read = text(page(site, found))
    assert "It makes no jobs until it is resumed." in read
    assert "It cannot be run as it is: expression" in read


def test_a_name_broken_by_hand_is_named_and_refused_in_the_form(site: Site) -> None:
    found = make(site)
    write(found, name="")
    answer = save(site, found)
    assert "name is" in " ".join(errors(answer)["__all__"])


def test_what_is_known_is_suggested(site: Site) -> None:
    site.make(queue='"><b>')
    html = site.client.get(ADD).content.decode()
    assert '<datalist id="known-type"><option value="' in html
    assert f'<option value="{nothing.name}">' in html
    assert '<option value="Europe/Berlin">' in html
    assert '"><b>' not in html
