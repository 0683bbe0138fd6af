"""Tracebacks as a person reads them: what happened first, and where in the project's own code."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from django_jobs.admin.shown import CUT
from django_jobs.engines.causes import CAME_FROM

SAID_LIMIT = 1_000
# Longer ones are folded.
LINES_OPEN = 16
_FRAME = re.compile(r'^  File "([^"\n]*)", line \d+')
_BEGINS = "Traceback (most recent call last):"
_OTHERS = ("site-packages", "dist-packages", "<frozen")
_PYTHON = (Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_NOT_OURS = tuple(f"{place}/" for place in (Path(__file__).parent.parent, *_PYTHON))


def readable(text: str) -> str:
    """Return an error that was stored, with its last line on top; what is long is folded. All is escaped."""
    if not text.strip():
        return ""
    lines = _marked(text[:CUT])
    body = format_html_join("\n", '<span class="{}">{}</span>', lines)
    whole = format_html('<pre class="dj-text dj-traceback">{}</pre>', body)
    if len(lines) > LINES_OPEN:
        number = _("%d lines") % len(lines)
        label = format_html('{} <span class="quiet">{}</span>', _("Traceback"), number)
        whole = format_html('<details class="dj-folded dj-trace"><summary>{}</summary>{}</details>', label, whole)
    ours = [line.strip() for kind, line in lines if kind == "dj-ours" and _FRAME.match(line)]
    where = format_html('<p class="quiet dj-small dj-where">{}</p>', ours[-1]) if ours else ""
    return format_html('<p class="dj-said">{}</p>{}{}', said(text), where, whole if len(lines) > 1 else "")


def said(text: str) -> str:
    """Return what an error says: of a chain of them the last, without its traceback."""
    lines = text.partition(CAME_FROM)[0].strip("\n").split("\n")
    if lines[0].strip() == _BEGINS:
        indented = [place for place, line in enumerate(lines) if line.startswith("  File ")]
        after = indented[-1] + 1 if indented else 1
        while after < len(lines) and lines[after].startswith("    "):
            after += 1
        lines = lines[after:] or lines[-1:]
    found = "\n".join(lines).strip()
    return found if len(found) <= SAID_LIMIT else f"{found[:SAID_LIMIT]}…"


def _marked(text: str) -> list[tuple[str, str]]:
    """Return the lines, each with a class for style sheets: that of a frame is that of the lines of code below it."""
    return list(_kinds(text.rstrip().split("\n")))


def _kinds(lines: list[str]) -> Iterator[tuple[str, str]]:
    frame = ""
    for line in lines:
        if found := _FRAME.match(line):
            frame = "dj-others" if is_not_ours(found[1]) else "dj-ours"
        elif not line.startswith("    "):
            frame = ""
        yield frame or "dj-line", line


def is_not_ours(path: str) -> bool:
    """Tell whether a file is of Python, of an installed package, or of django_jobs itself."""
    return path.startswith(_NOT_OURS) or any(part in path for part in _OTHERS)
