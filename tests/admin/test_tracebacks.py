"""Errors as a person reads them."""

from __future__ import annotations

import os
import re

import pytest

from django_jobs.admin import tracebacks
from django_jobs.admin.tracebacks import readable, said
from django_jobs.workers.errors import full_text

pytestmark = pytest.mark.fast
MARKUP = "<script>alert('x')</script>"


def fails(deep: int) -> None:
    if deep:
        fails(deep - 1)
    raise ValueError(f"no order {MARKUP}\n  of two lines")


def error(deep: int = 0) -> str:
    try:
        try:
            fails(deep)
        except ValueError as cause:
            os.fspath(3)  # type: ignore[call-overload]
            raise AssertionError from cause
    except TypeError as found:
        return full_text(found)
    raise AssertionError


def plain(markup: str) -> str:
    return re.sub(r"<[^>]*>", "", markup)


def test_what_happened_comes_first_and_the_whole_text_after_it() -> None:
    page = readable(error())
    assert plain(page).startswith("TypeError: expected str, bytes or os.PathLike object, not int")
    assert "which came from:" in page
    assert "ValueError: no order" in page
    assert MARKUP not in page
    assert "&lt;script&gt;" in page


def test_what_an_error_says_may_have_lines() -> None:
    with pytest.raises(ValueError, match="no order") as found:
        fails(0)
    assert said(full_text(found.value)) == f"ValueError: no order {MARKUP}\n  of two lines"


@pytest.mark.parametrize(
    "text", ["", "  \n", "Snoozed", "lost\nlines", "Traceback (most recent call last):", '  File "x']
)
def test_a_text_that_is_no_traceback_is_shown_as_it_is(text: str) -> None:
    assert text.strip() in plain(readable(text)).replace("&quot;", '"')


def test_frames_of_the_project_are_set_off_from_those_of_python_and_of_packages() -> None:
    kinds = re.findall(r'<span class="dj-(ours|others)">  File &quot;([^&]*)', readable(full_text_of_json()))
    assert ("ours", __file__) in kinds
    assert any(kind == "others" and "/json/" in path for kind, path in kinds)


def full_text_of_json() -> str:
    import json

    try:
        json.loads("{")
    except ValueError as found:
        return full_text(found)
    raise AssertionError


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("/srv/shop/jobs.py", False),
        ("/srv/.venv/lib/python3.11/site-packages/requests/api.py", True),
        ("<frozen importlib._bootstrap>", True),
        (tracebacks.__file__, True),
        (os.__file__, True),
        (__file__, False),
    ],
)
def test_which_files_are_the_projects_own(path: str, others: bool) -> None:
    assert tracebacks.is_not_ours(path) == others


def test_a_long_traceback_is_folded_and_a_short_one_is_not() -> None:
    assert "<details" not in readable(full_text_of_json()[:200])
    assert "<details" in readable(error(deep=12))


def test_a_traceback_without_end_is_cut() -> None:
    assert len(readable("Traceback (most recent call last):\n" + '  File "x", line 1\n' * 100_000)) < 1_000_000
