"""Bars of medians with whiskers for the ranges, as SVG: one picture for each figure."""

from __future__ import annotations

import math
import statistics
from html import escape
from pathlib import Path

from benchmarks.compared.report import Results

LEFT, WIDTH, BAR, GAP, TOP = 170, 420, 18, 8, 40
OURS, OTHERS, INK = "#2a6f4e", "#9db4c0", "#333"


def draw(results: Results, directory: Path) -> None:
    names = {figure for found in results.figures.values() for figure in found}
    for name in names:
        rows = [
            (peer.title, peer.name == "django_jobs", [each.value for each in results.figures[peer.name].get(name, [])])
            for peer in results.peers
        ]
        rows = [(title, ours, values) for title, ours, values in rows if values and not math.isinf(max(values))]
        units = [each.unit for found in results.figures.values() for each in found.get(name, [])]
        if rows:
            path = directory / (name.replace(",", "").replace(" ", "-") + ".svg")
            best_first = sorted(rows, key=lambda row: statistics.median(row[2]), reverse=units[0] == "jobs/s")
            path.write_text(_picture(f"{name}, {units[0]}", best_first))


def _picture(title: str, rows: list[tuple[str, bool, list[float]]]) -> str:
    most = max(max(values) for _, _, values in rows) or 1.0
    height = TOP + len(rows) * (BAR + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        f'<text x="{LEFT}" y="24" font-weight="bold">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        parts += _bar(TOP + number * (BAR + GAP), row, WIDTH / most)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(top: int, row: tuple[str, bool, list[float]], scale: float) -> list[str]:
    title, ours, values = row
    middle = statistics.median(values)
    low, high = LEFT + min(values) * scale, LEFT + max(values) * scale
    centre = top + BAR / 2
    shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
    return [
        f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{escape(title)}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{middle * scale:.1f}" height="{BAR}" fill="{OURS if ours else OTHERS}"/>',
        f'<path d="M{low:.1f} {centre}H{high:.1f}M{low:.1f} {top + 5}v8M{high:.1f} {top + 5}v8" stroke="{INK}"/>',
        f'<text x="{max(high, LEFT + middle * scale) + 6:.1f}" y="{top + 14}">{shown}</text>',
    ]
