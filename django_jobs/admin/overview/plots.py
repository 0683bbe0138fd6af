"""Plots as SVG that is part of the page: coloured by its style sheet, read aloud by titles, exact where one points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

WIDTH, HEIGHT = 560, 190
NARROW = 340  # for one of three columns, so that its words are as large as those of the others
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 10, 24
_Y = HEIGHT - TOP - BOTTOM
# Where a scale of durations is marked, in seconds.
DURATIONS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot; None where there is nothing to show. `kind` is a word for the style sheet."""

    label: str
    kind: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Lines over the same parts of a time. `parts`: what each is called; `marks`: those named below it, by their place.

    `unit`: what its values are, in words that stand above it. `written`: how values are said; `scaled`: how those of the
    scale are, if otherwise. `is_of_counts`: where all are zero there is nothing to show.
    """

    name: str
    title: str
    about: str
    unit: str
    lines: Sequence[Line]
    parts: Sequence[str]
    marks: dict[int, str]
    written: Callable[[float | None], str]
    scaled: Callable[[float | None], str] | None = None
    is_logarithmic: bool = False
    is_of_counts: bool = True
    at_least: float = 1.0
    width: int = WIDTH

    @property
    def is_empty(self) -> bool:
        known = [value for line in self.lines for value in line.values if value is not None]
        return not known or (self.is_of_counts and not any(known))

    @property
    def _x(self) -> int:
        """How wide what is between the scale and the edge is."""
        return self.width - LEFT - RIGHT

    def svg(self) -> SafeString:
        """Return the plot; its title and what it shows come first, for who cannot see it."""
        said = f"{self.about} {self.unit}: {self._summary()}"
        return format_html(
            '<svg class="dj-plot" viewBox="0 0 {} {}" role="img" aria-labelledby="plot-{} about-{}">'
            '<title id="plot-{}">{}</title><desc id="about-{}">{}</desc>{}{}{}{}{}</svg>',
            *(self.width, HEIGHT, self.name, self.name, self.name, self.title, self.name, said),
            format_html_join("", *self._rules()),
            format_html_join("", *self._times()),
            format_html_join("", '<path class="dj-line dj-line-{}" d="{}"></path>', self._paths()),
            format_html_join("", '<path class="dj-line dj-line-{} dj-dot" d="{}"></path>', self._dots()),
            format_html_join("", *self._hints()),
        )

    def _summary(self) -> str:
        """Say of each line where it ends and how high it gets."""
        said = []
        for line in self.lines:
            known = [value for value in line.values if value is not None]
            if known:
                values = {"line": line.label, "last": self.written(known[-1]), "most": self.written(max(known))}
                said.append(_("%(line)s: last %(last)s, at most %(most)s.") % values)
        return " ".join(said) or _("There is nothing to show.")

    @property
    def _top(self) -> float:
        return max([self.at_least, *(value for line in self.lines for value in line.values if value is not None)])

    def _ticks(self) -> list[float]:
        if not self.is_logarithmic:
            step = _nice(self._top / 3)
            return [step * number for number in range(math.ceil(self._top / step - 1e-9) + 1)]
        below = [tick for tick in DURATIONS if tick < self._top]
        return [*below, *DURATIONS[len(below) : len(below) + 1]] or list(DURATIONS[:2])

    def _height(self, value: float, ticks: Sequence[float]) -> float:
        low, high = ticks[0], ticks[-1]
        if self.is_logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return TOP + _Y * (1 - min((value - low) / (high - low), 1.0))

    def _rules(self) -> tuple[str, Iterator[tuple[object, ...]]]:
        ticks = self._ticks()
        heights = [f"{self._height(tick, ticks):.1f}" for tick in ticks]
        text = (
            '<line class="dj-rule" x1="{}" x2="{}" y1="{}" y2="{}"></line>'
            '<text class="dj-tick" x="{}" y="{}" dy="0.32em" text-anchor="end">{}</text>'
        )
        return text, (
            (LEFT, self.width - RIGHT, at, at, LEFT - 6, at, (self.scaled or self.written)(tick))
            for tick, at in zip(ticks, heights, strict=True)
        )

    def _times(self) -> tuple[str, Iterator[tuple[object, ...]]]:
        text = '<text class="dj-tick" x="{}" y="{}" text-anchor="middle">{}</text>'
        return text, ((f"{self._along(place):.1f}", HEIGHT - 6, label) for place, label in self.marks.items())

    def _along(self, place: int) -> float:
        return LEFT + self._x * (place + 0.5) / max(len(self.parts), 1)

    def _paths(self) -> Iterator[tuple[str, str]]:
        ticks = self._ticks()
        for line in self.lines:
            steps, pen = [], "M"
            for place, value in enumerate(line.values):
                if value is None:
                    pen = "M"
                    continue
                steps.append(f"{pen}{self._along(place):.1f} {self._height(value, ticks):.1f}")
                pen = "L"
            yield line.kind, "".join(steps)

    def _dots(self) -> Iterator[tuple[str, str]]:
        """Return what is alone between gaps, of which a line shows nothing."""
        ticks = self._ticks()
        for line in self.lines:
            around = [None, *line.values, None]
            for place, value in enumerate(line.values):
                if value is not None and around[place] is None and around[place + 2] is None:
                    yield line.kind, f"M{self._along(place):.1f} {self._height(value, ticks):.1f}h0.1"

    def _hints(self) -> tuple[str, Iterator[tuple[object, ...]]]:
        """Return what is said of a part when somebody points at it."""
        wide = self._x / max(len(self.parts), 1)
        text = '<rect class="dj-hint" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
        return text, (
            (f"{LEFT + wide * place:.1f}", TOP, f"{wide:.2f}", _Y, self._hint(place, part))
            for place, part in enumerate(self.parts)
        )

    def _hint(self, place: int, part: str) -> str:
        values = (f"{line.label}: {self.written(line.values[place])}" for line in self.lines)
        return "\n".join((part, *values))


def bar(part: float, kind: str = "good") -> SafeString:
    """Return a bar as long as a share, from 0 to 1, of the place that it has; the number stands beside it."""
    return format_html(
        '<svg class="dj-bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="dj-fill dj-fill-{}" width="{}" height="8"></rect></svg>',
        *(kind, f"{max(0.0, min(part, 1.0)) * 100:.2f}"),
    )


def _nice(value: float) -> float:
    """Return the smallest of 1, 2 and 5 with zeros that is not below a value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))
