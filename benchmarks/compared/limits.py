"""What django_jobs is held to, beside the others: ratios within each round, and their medians."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.compared.report import Results

OURS = "django_jobs"


@dataclass(frozen=True)
class Limit:
    figure: str
    beside: str
    bound: float
    least: bool = True  # or the most that is allowed


LIMITS = [
    Limit("drain 1", "pgqueuer", 1.0),
    Limit("drain 1", "bare", 0.6),
    Limit("drain 1", "celery", 25),
    Limit("drain 1", "django_tasks_db", 80),
    Limit("drain 2", "pgqueuer", 1.0),
    Limit("drain 2", "bare", 0.6),
    Limit("enqueue", "bare", 0.8),
    Limit("bulk", "pgqueuer", 2.0),
    Limit("latency p50", "bare", 1.2, least=False),
    Limit("latency p99", "bare", 1.2, least=False),
    *(
        Limit("latency p50", peer, 1.0, least=False)
        for peer in ("pgqueuer", "chancy", "oban", "procrastinate", "django_tasks_db")
    ),
]
ALONE = [("idle memory", 60.0), ("idle CPU", 0.1), ("idle statements", 2.0)]
HELD = 0.8


def lines(results: Results) -> list[str]:
    """Return a line of Markdown for each limit whose figures are there."""
    found = [_beside(results, limit) for limit in LIMITS] + [_alone(results, *each) for each in ALONE]
    shown = [line for line in [*found, _held(results)] if line]
    return ["**What it is held to** (medians of the ratios within each round)", "", *shown, ""] if shown else []


def _beside(results: Results, limit: Limit) -> str:
    ratios = _ratios(results.values(OURS, limit.figure), results.values(limit.beside, limit.figure))
    if not ratios:
        return ""
    middle = statistics.median(ratios)
    holds = middle >= limit.bound if limit.least else middle <= limit.bound
    word = "at least" if limit.least else "at most"
    shown = f"{middle:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    return f"* {_mark(holds)}: {limit.figure}, {shown} times {limit.beside}; {word} {limit.bound:g}"


def _alone(results: Results, figure: str, most: float) -> str:
    values = results.values(OURS, figure)
    if not values:
        return ""
    middle = statistics.median(values)
    return f"* {_mark(middle < most)}: {figure}, {middle:.3g}; under {most:g}"


def _held(results: Results) -> str:
    ratios = _ratios(results.values(OURS, "held snapshot"), results.values(OURS, "drain 1"))
    if not ratios:
        return ""
    middle = statistics.median(ratios)
    return f"* {_mark(middle >= HELD)}: held snapshot, {middle:.2f} times drain 1; at least {HELD:g} (see benchmarks.snapshot)"


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Return the ratios within each round, or that of the medians where one of the two failed in a round."""
    if len(ours) == len(theirs):
        return [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return [statistics.median(ours) / statistics.median(theirs)] if ours and theirs else []


def _mark(holds: bool) -> str:
    return "holds" if holds else "**does not hold**"
