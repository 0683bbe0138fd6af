from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import durations

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("length", "written", "spelled"),
    [
        (0, "0s", "0 s"),
        (0.000001, "0.000001s", "0.000001 s"),
        (2.5, "2.5s", "2.5 s"),
        (90, "90s", "90 s"),
        (120, "2m", "2 min"),
        (5400, "90m", "90 min"),
        (43200, "12h", "12 h"),
        (86400, "1d", "1 day"),
        (315_360_000, "3650d", "3650 days"),
    ],
)
def test_a_duration_is_written_in_its_largest_whole_unit_and_read_back(
    length: float, written: str, spelled: str
) -> None:
    found = timedelta(seconds=length)
    assert (durations.written(found), durations.spelled(found)) == (written, spelled)
    assert durations.seconds(written) == length


def test_what_is_no_duration_is_none() -> None:
    for text in ("", "soon", "-5", "5 m", "1h30m", "11y", "1e3", "\N{ARABIC-INDIC DIGIT FIVE}", "9" * 13, "inf", "nan"):
        assert durations.seconds(text) is None, text
