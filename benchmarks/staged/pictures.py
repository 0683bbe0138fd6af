"""The incident as a picture: four panels above each other, on one axis of time, with what happened as lines across."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.staged.canvas import PAPER, Canvas, Point
from benchmarks.staged.record import Record, Second

LEFT, RIGHT, WIDTH, TOP, PANEL, BETWEEN, BOTTOM = 60, 20, 960, 92, 120, 46, 40
INK, FAINT, GRID = "#333333", "#777777", "#e3e3e3"
COLOURS = {"confirm": "#0b6e4f", "newsletter": "#3465a4", "read_row": "#c17d11", "report": "#8f5f9f"}
NAMES = {
    "confirm": "confirmations (urgent lane)",
    "newsletter": "newsletter (the herd)",
    "read_row": "rows of the import",
    "report": "reports (schedules)",
}
BAD = "#b3261e"
# Throughput is shown as the mean of so many seconds.
SMOOTH = 3


class _Curve(NamedTuple):
    name: str
    colour: str
    values: list[float]


def draw(record: Record, path: Path) -> None:
    """Write a picture beside `path` with each of the two endings."""
    seconds = record.seconds
    panels = [
        (
            "Age of the oldest job that waits, by type, s",
            _by_type(seconds, lambda each, kind: each.oldest.get(kind, 0.0)),
        ),
        ("Jobs done a second, by type (a scale of powers of ten)", _rates(seconds)),
        ("Dead letters", [_Curve("", BAD, [float(each.dead) for each in seconds])]),
        ("Worker processes that died, in all", [_Curve("", BAD, [float(each.deaths) for each in seconds])]),
    ]
    height = TOP + len(panels) * (PANEL + BETWEEN) - BETWEEN + BOTTOM
    canvas = Canvas(WIDTH, height)
    axis = _Axis(seconds[0].at, seconds[-1].at)
    _legend(canvas)
    _events(canvas, record, axis, height - BOTTOM)
    for number, (title, curves) in enumerate(panels):
        _panel(
            canvas, TOP + number * (PANEL + BETWEEN), title, [each.at for each in seconds], curves, axis, number == 1
        )
    _times(canvas, axis, height - BOTTOM)
    canvas.svg(path.with_suffix(".svg"))
    canvas.png(path.with_suffix(".png"))


class _Axis(NamedTuple):
    first: float
    last: float

    def x(self, at: float) -> float:
        return LEFT + (at - self.first) / max(self.last - self.first, 1.0) * (WIDTH - LEFT - RIGHT)


def _by_type(seconds: Sequence[Second], value: Callable[[Second, str], float]) -> list[_Curve]:
    return [_Curve(kind, colour, [value(each, kind) for each in seconds]) for kind, colour in COLOURS.items()]


def _rates(seconds: Sequence[Second]) -> list[_Curve]:
    found = []
    for kind, colour in COLOURS.items():
        values = []
        for number, each in enumerate(seconds):
            before = seconds[max(number - SMOOTH, 0)]
            passed = max(each.at - before.at, 0.001)
            values.append((each.done.get(kind, 0) - before.done.get(kind, 0)) / passed if number else 0.0)
        found.append(_Curve(kind, colour, values))
    return found


def _panel(
    canvas: Canvas, top: float, title: str, times: list[float], curves: list[_Curve], axis: _Axis, powers: bool
) -> None:
    most = max([1.0, *(value for curve in curves for value in curve.values)])
    ceiling = 10.0 ** math.ceil(math.log10(most)) if powers else _round_up(most)

    def y(value: float) -> float:
        part = math.log10(1 + value) / math.log10(1 + ceiling) if powers else value / ceiling
        return top + PANEL * (1 - part)

    canvas.area((LEFT, top - 20), (LEFT + 7 * len(title), top - 4), PAPER)
    canvas.words((LEFT, top - 8), title, size=13)
    steps = (
        [0.0, *(10.0**power for power in range(int(math.log10(ceiling)) + 1))] if powers else [0, ceiling / 2, ceiling]
    )
    for step in steps:
        canvas.line([(LEFT, y(step)), (WIDTH - RIGHT, y(step))], GRID)
        canvas.words((LEFT - 6, y(step) + 4), f"{step:,g}", size=11, colour=FAINT, anchor="end")
    for curve in reversed(curves):
        points: list[Point] = [(axis.x(at), y(value)) for at, value in zip(times, curve.values, strict=True)]
        canvas.line(points, curve.colour, 2)


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)


def _legend(canvas: Canvas) -> None:
    x = float(LEFT)
    for kind, colour in COLOURS.items():
        canvas.line([(x, 16), (x + 22, 16)], colour, 3)
        canvas.words((x + 28, 20), NAMES[kind])
        x += 60 + 6.6 * len(NAMES[kind])


def _events(canvas: Canvas, record: Record, axis: _Axis, bottom: float) -> None:
    """Draw those that have a short name, each name in the first of three rows in which there is room."""
    ends = [0.0, 0.0, 0.0]
    for event in sorted(record.events, key=lambda event: event.at):
        if not event.short or not axis.first <= event.at <= axis.last:
            continue
        x, width = axis.x(event.at), 6.4 * len(event.short) + 8
        left = min(x + 3, WIDTH - width)
        row = next((row for row, end in enumerate(ends) if end <= left), None)
        colour = BAD if event.short.startswith("alert") else FAINT
        canvas.line([(x, TOP - 54 + 13 * (row or 0)), (x, bottom)], colour, dashed=True)
        if row is not None:
            canvas.area((left - 1, TOP - 56 + 13 * row), (left + width - 8, TOP - 43 + 13 * row), PAPER)
            canvas.words((left, TOP - 46 + 13 * row), event.short, size=11, colour=colour)
            ends[row] = left + width


def _times(canvas: Canvas, axis: _Axis, bottom: float) -> None:
    step = next(step for step in (5, 10, 20, 30, 60, 120) if (axis.last - axis.first) / step <= 14)
    at = math.ceil(axis.first / step) * step
    while at <= axis.last:
        canvas.words((axis.x(at), bottom + 16), f"{at:+d}" if at else "0", size=11, colour=INK, anchor="middle")
        at += step
    canvas.words((WIDTH - RIGHT, bottom + 32), "seconds since the clock change", size=11, colour=FAINT, anchor="end")
