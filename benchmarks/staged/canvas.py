"""A few lines, areas and words, drawn as SVG and as PNG from the same list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PAPER = "#ffffff"
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Line:
    points: Sequence[Point]
    colour: str
    width: float
    dashed: bool


@dataclass(frozen=True, slots=True)
class _Area:
    corner: Point
    other: Point
    colour: str


@dataclass(frozen=True, slots=True)
class _Words:
    at: Point
    text: str
    size: int
    colour: str
    # "start", "middle" or "end" is at the point.
    anchor: str


class Canvas:
    def __init__(self, width: int, height: int) -> None:
        self._width = width
        self._height = height
        self._parts: list[_Line | _Area | _Words] = []

    def line(self, points: Sequence[Point], colour: str, width: float = 1.0, *, dashed: bool = False) -> None:
        self._parts.append(_Line(points, colour, width, dashed))

    def area(self, corner: Point, other: Point, colour: str) -> None:
        self._parts.append(_Area(corner, other, colour))

    def words(self, at: Point, text: str, *, size: int = 12, colour: str = "#333333", anchor: str = "start") -> None:
        self._parts.append(_Words(at, text, size, colour, anchor))

    def svg(self, path: Path) -> None:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'width="{self._width}" height="{self._height}" font-family="sans-serif">'
        )
        paper = f'<rect width="{self._width}" height="{self._height}" fill="{PAPER}"/>'
        path.write_text("\n".join([head, paper, *map(_as_svg, self._parts), "</svg>"]) + "\n")

    def png(self, path: Path, scale: int = 2) -> None:
        image = Image.new("RGB", (self._width * scale, self._height * scale), PAPER)
        drawing = ImageDraw.Draw(image)
        for part in self._parts:
            _draw(drawing, part, scale)
        image.save(path, optimize=True)


def _as_svg(part: _Line | _Area | _Words) -> str:
    match part:
        case _Line():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in part.points)
            dashes = ' stroke-dasharray="4 3"' if part.dashed else ""
            return f'<polyline points="{points}" fill="none" stroke="{part.colour}" stroke-width="{part.width:g}"{dashes}/>'
        case _Area():
            (left, top), (right, bottom) = part.corner, part.other
            size = f'width="{right - left:.1f}" height="{bottom - top:.1f}"'
            return f'<rect x="{left:.1f}" y="{top:.1f}" {size} fill="{part.colour}"/>'
        case _Words():
            x, y = part.at
            style = f'font-size="{part.size}" fill="{part.colour}" text-anchor="{part.anchor}"'
            return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(part.text)}</text>'


def _draw(drawing: ImageDraw.ImageDraw, part: _Line | _Area | _Words, scale: int) -> None:
    match part:
        case _Line():
            points = [(x * scale, y * scale) for x, y in part.points]
            pieces = list(pairwise(points))
            for start, end in _dashes(pieces, scale) if part.dashed else pieces:
                drawing.line([start, end], fill=part.colour, width=max(1, round(part.width * scale)))
        case _Area():
            corners = [(x * scale, y * scale) for x, y in (part.corner, part.other)]
            drawing.rectangle(corners, fill=part.colour)
        case _Words():
            x, y = part.at
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[part.anchor]
            font = ImageFont.load_default(part.size * scale)
            drawing.text((x * scale, y * scale), part.text, fill=part.colour, font=font, anchor=anchor)


def _dashes(pieces: Sequence[tuple[Point, Point]], scale: int) -> list[tuple[Point, Point]]:
    found = []
    for (x, y), (right, bottom) in pieces:
        length = max(abs(right - x), abs(bottom - y), 1.0)
        at = 0.0
        while at < length:
            start, end = at / length, min((at + 4 * scale) / length, 1.0)
            found.append(
                ((x + (right - x) * start, y + (bottom - y) * start), (x + (right - x) * end, y + (bottom - y) * end))
            )
            at += 7 * scale
    return found
