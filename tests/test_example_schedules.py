"""The three schedules of the example project."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.core import mail
from django.core.files.storage import storages

from django_jobs import Context
from django_jobs.models import Schedule
from django_jobs.schedules import code
from django_jobs.schedules.sync import sync
from example_project.shop import jobs, takings
from example_project.shop.models import DemoRun, Order, Takings
from example_project.shop.storage import AtomicFileSystemStorage


def at(slot: datetime | None) -> Any:
    return Mock(spec=Context, slot=slot)


def paid(number: int, moment: datetime, cents: int) -> None:
    run = DemoRun.objects.get_or_create(pk=1, defaults={"payment_url": "http://127.0.0.1"})[0]
    Order.objects.create(run=run, number=f"1-{number}", email="a@example.com", total_cents=cents, paid_at=moment)


@pytest.mark.django_db
def test_the_day_on_which_the_clock_is_set_back_has_twenty_five_hours_of_takings() -> None:
    for number, moment in enumerate(
        [
            datetime(2026, 10, 24, 21, 59, tzinfo=UTC),  # the day before, in Berlin
            datetime(2026, 10, 24, 22, 0, tzinfo=UTC),
            datetime(2026, 10, 25, 22, 59, tzinfo=UTC),
            datetime(2026, 10, 25, 23, 0, tzinfo=UTC),  # the day after
        ]
    ):
        paid(number, moment, 10**number)
    slot = datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    for _ in range(2):
        jobs.record_takings(at(slot))
    assert list(Takings.objects.values_list("day", "orders", "cents")) == [(date(2026, 10, 25), 2, 110)]


@pytest.mark.django_db
def test_the_week_is_mailed_with_its_total() -> None:
    for day in range(1, 12):
        Takings.objects.create(day=date(2026, 3, day), orders=day, cents=day * 100)
    jobs.mail_week(at(datetime(2026, 3, 9, 6, 0, tzinfo=UTC)))
    (sent,) = mail.outbox
    assert sent.subject == "Takings of the week to 08 March"
    first_words = [line.split()[0] for line in str(sent.body).splitlines()]
    assert first_words == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Total"]
    assert str(sent.body).endswith("35.00")


def test_only_what_was_left_half_written_long_ago_is_removed(tmp_path: Path, settings: Any) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path)
    labels = tmp_path / "labels" / "run-1"
    labels.mkdir(parents=True)
    names = [".old", ".new", "old.png"]
    for name in names:
        (labels / name).write_text("x")
    long_ago = (labels / ".new").stat().st_mtime - 7200
    for name in (".old", "old.png"):
        os.utime(labels / name, (long_ago, long_ago))
    assert storage.remove_left_over("labels", timedelta(hours=1)) == 1
    assert sorted(path.name for path in labels.iterdir()) == [".new", "old.png"]


def test_the_jobs_storage_can_remove_what_is_left(tmp_path: Path, settings: Any) -> None:
    settings.MEDIA_ROOT = tmp_path
    settings.STORAGES = {"default": {"BACKEND": "example_project.shop.storage.AtomicFileSystemStorage"}}
    assert storages["default"].exists("labels") is False
    assert jobs.tidy_up() == 0


@pytest.mark.django_db
def test_the_schedules_of_the_shop_are_stored_as_the_code_says(
    schedules_of_the_code: dict[str, code.CodeSchedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_schedules", schedules_of_the_code)
    sync("default")
    ours = Schedule.objects.filter(type__startswith="shop.")
    assert {found.name: found.expression or found.every for found in ours} == {
        "shop.mail_week": "0 7 * * mon",
        "shop.record_takings": "30 2 * * *",
        "shop.tidy_up": timedelta(hours=6),
    }
    assert {found.name for found in ours} <= {found.name for found in code.schedules()}


def test_in_the_spring_the_books_are_made_up_when_the_clock_has_jumped_and_once_in_the_autumn() -> None:
    found = Schedule(expression="30 2 * * *", timezone="Europe/Berlin")
    spring = found.next_slots(datetime(2027, 3, 27, 12, tzinfo=UTC), 2)
    autumn = found.next_slots(datetime(2027, 10, 30, 12, tzinfo=UTC), 2)
    assert [takings.day_before(slot) for slot in (*spring, *autumn)] == [
        date(2027, 3, 27),
        date(2027, 3, 28),
        date(2027, 10, 30),
        date(2027, 10, 31),
    ]
    assert spring[0] == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
