"""Time zones: refused clearly, fingerprinted, and when their clocks change."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from django_jobs import zones
from django_jobs.exceptions import JobsError
from django_jobs.zones import BadZone, Change, changes, data_of, forget, zone

pytestmark = pytest.mark.fast

HOUR = timedelta(hours=1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that zones are looked for in before all others."""
    forget()
    zoneinfo.reset_tzpath([str(tmp_path), *zoneinfo.TZPATH])
    yield tmp_path
    zoneinfo.reset_tzpath()
    forget()


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have this host have no zone data, neither the system's nor the package's."""
    for name in ["tzdata", *(name for name in sys.modules if name.startswith("tzdata."))]:
        monkeypatch.setitem(sys.modules, name, None)
    zoneinfo.reset_tzpath([str(tmp_path)])
    forget()
    yield
    zoneinfo.reset_tzpath()
    forget()


def test_a_zone_is_found_by_its_name() -> None:
    assert str(zone("Europe/Berlin")) == "Europe/Berlin"
    assert zone("UTC").key == "UTC"


@pytest.mark.parametrize(
    "key",
    [
        *(
            "",
            " ",
            "../x",
            "../../etc/passwd",
            "/etc/x",
            "localtime",
            "right/Europe/Berlin",
            "posix/UTC",
            "/usr/share/zoneinfo/UTC",
            "America",
            "America/",
            "a\x00b",
            "\x00",
        ),
        *(
            "Mars/Olympus",
            "CEST",
            "europe/berlin",
            " UTC",
            "UTC\n",
            "\ud800",
            "Zürich",
            "tzdata.zi",
            "x" * 256,
            "x/" * 9_000,
        ),
        *("Europe/../Europe/Berlin", "Europe/./Berlin", "Europe//Berlin", "."),
        *(None, 1, b"UTC", UTC, ["UTC"], True),
    ],
)
def test_what_is_no_zone_is_refused_by_one_error(key: Any) -> None:
    with pytest.raises(BadZone, match=r"^Time zone .* is not known here; give a name .*\.$") as refused:
        zone(key)
    assert isinstance(refused.value, JobsError)
    assert isinstance(refused.value, ValueError)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200
    with pytest.raises(BadZone):
        data_of(str(key) if isinstance(key, list) else key)


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_empty_or_long_name_is_refused_without_a_look_at_the_disk(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(zones, "ZoneInfo", looks.append)
    with pytest.raises(BadZone):
        zone(key)
    assert looks == []


def test_a_zone_whose_data_are_damaged_or_a_folder_is_refused(folder: Path) -> None:
    for name, content in (("Short", b"TZif"), ("Text", b"no zone at all" * 9), ("Empty", b""), ("Cut", b"")):
        (folder / name).write_bytes(content or zones._bytes_of("Europe/Berlin")[: 300 if name == "Cut" else 0])
        with pytest.raises(BadZone):
            zone(name)
    (folder / "Folder").mkdir()
    with pytest.raises(BadZone):
        zone("Folder")


def test_a_zone_that_cannot_be_opened_is_refused(folder: Path) -> None:
    (folder / "Closed").symlink_to("Closed")
    (folder / "Under").write_bytes(b"")
    for key in ("Closed", "Under/Neath"):
        with pytest.raises(BadZone):
            zone(key)


def test_the_fingerprint_is_that_of_the_data_that_are_used(folder: Path) -> None:
    berlin = data_of("Europe/Berlin")
    assert len(berlin) == 16
    assert int(berlin, 16)
    assert data_of("UTC") != berlin
    (folder / "Europe").mkdir()
    (folder / "Europe" / "Berlin").write_bytes(zones._bytes_of("Europe/Helsinki"))
    assert data_of("Europe/Berlin") == berlin, "kept like the zone itself"
    forget()
    assert data_of("Europe/Berlin") == data_of("Europe/Helsinki") != berlin
    assert datetime(2024, 1, 1, tzinfo=zone("Europe/Berlin")).utcoffset() == 2 * HOUR
    (folder / "Europe" / "Berlin").write_bytes(zones._bytes_of("UTC"))
    forget()
    assert data_of("Europe/Berlin") == data_of("UTC")


def test_zones_stay_a_pair_with_their_fingerprints_however_many_are_in_use(folder: Path) -> None:
    names = [f"Zone{number}" for number in range(20)]  # of zones that nobody holds Python keeps eight

    def put(key: str) -> None:
        for name in names:
            (folder / name).write_bytes(zones._bytes_of(key))

    def pairs() -> set[tuple[timedelta, str]]:
        return {(offset(name), data_of(name)) for name in names}

    def offset(name: str) -> timedelta:
        return zones.offset_of(zone(name), datetime(2024, 1, 1))

    put("Europe/Berlin")
    berlin = {(HOUR, data_of("Europe/Berlin"))}
    assert pairs() == berlin
    put("Asia/Tokyo")
    assert pairs() == berlin
    forget()
    assert pairs() == {(9 * HOUR, data_of("Asia/Tokyo"))}


@pytest.mark.parametrize("key", ["localtime", "posixrules", "right/Europe/Berlin", "posix/Europe/Berlin"])
def test_what_lies_beside_the_zones_is_refused_where_it_is_there(folder: Path, key: str) -> None:
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    (folder / key).write_bytes(zones._bytes_of("Europe/Berlin"))
    assert zoneinfo.ZoneInfo(key).key == key
    with pytest.raises(BadZone):
        zone(key)


def test_without_any_data_there_is_utc_and_a_word_on_what_to_install(no_data: None) -> None:
    assert zone("UTC").key == "UTC"
    for moment in (datetime.min, datetime(2024, 7, 1), datetime.max):
        assert zones.offset_of(zone("UTC"), moment) == timedelta(0)
    assert zone("UTC").tzname(datetime(2024, 7, 1)) == "UTC"
    assert changes(zone("UTC"), datetime(2024, 1, 1, tzinfo=UTC), 1) == []
    assert data_of("UTC") == ""
    for key in ("Europe/Berlin", "Etc/UTC"):
        with pytest.raises(BadZone) as refused:
            zone(key)
        assert str(refused.value) == (
            f"Time zone {key!r} is not known here; there is no time zone data but UTC: install the system's, "
            "or the package tzdata."
        )


def test_the_next_changes_are_those_strictly_after_a_moment() -> None:
    spring = Change(datetime(2024, 3, 31, 1, tzinfo=UTC), HOUR, 2 * HOUR)
    autumn = Change(datetime(2024, 10, 27, 1, tzinfo=UTC), 2 * HOUR, HOUR)
    second = timedelta(seconds=1)
    berlin = zone("Europe/Berlin")
    assert changes(berlin, spring.at - timedelta(microseconds=1), 2) == [spring, autumn]
    assert changes(berlin, spring.at, 1) == [autumn]
    assert changes(berlin, (spring.at - second).astimezone(berlin), 1) == [spring]
    assert (spring.is_gap, autumn.is_gap) == (True, False)
    assert changes(berlin, spring.at, 0) == []


def test_a_change_is_found_to_the_second() -> None:
    assert changes(zone("Africa/Monrovia"), datetime(1971, 1, 1, tzinfo=UTC), 5) == [
        Change(datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC), -timedelta(minutes=44, seconds=30), timedelta(0))
    ]


def test_a_missing_day_is_one_change() -> None:
    assert changes(zone("Pacific/Apia"), datetime(2011, 12, 1, tzinfo=UTC), 1) == [
        Change(datetime(2011, 12, 30, 10, tzinfo=UTC), -10 * HOUR, 14 * HOUR)
    ]


def test_changes_are_looked_for_within_three_years_and_the_calendar() -> None:
    assert changes(zone("UTC"), datetime(2024, 1, 1, tzinfo=UTC), 2) == []
    assert len(changes(zone("Europe/Berlin"), datetime(2024, 1, 1, tzinfo=UTC), 99)) == 6
    berlin = zone("Europe/Berlin")
    assert changes(berlin, datetime.max.replace(tzinfo=UTC), 2) == []
    assert changes(berlin, datetime.min.replace(tzinfo=UTC), 2) == []
    assert [change.at.year for change in changes(berlin, datetime(9999, 5, 1, tzinfo=UTC), 9)] == [9999]
