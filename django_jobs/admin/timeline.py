"""The runs of a job and the time between them, as stretches of a line that is drawn to scale.

They come from the row alone: the times it has, and the lines of its history, of which the first and the last nine are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs.admin import figures
from django_jobs.admin.shown import as_clock, exact
from django_jobs.engines.causes import ACTS, ASKED_TO_STOP, CALLED_OFF, HISTORY_LIMIT, LOSSES, REQUEUED, TOO_LATE
from django_jobs.models import Job

WIDTH = 1000
# So that a run of a second among days is seen.
LEAST_WIDTH = 4.0
NO_FAILURES = ("snoozed", "stopped", "released")
RUNS = ("running", "done", "failed", "lost", "back", "cancelled")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a job's time: `kind` is a word for style sheets, `text` what a person reads of it."""

    kind: str
    start: datetime
    end: datetime
    text: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody did to the job, or time did."""

    at: datetime
    text: str


@dataclass(slots=True)
class Told:
    """A job's time as far as it was told: up to `at`, when `runs` runs were over."""

    at: datetime
    runs: int = 0
    is_over: bool = False
    stretches: list[Stretch] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)

    def until(self, at: datetime, runs: int, kind: str = "waiting", is_kept: bool = True) -> None:
        """Tell what was before a moment, when `runs` runs were over.

        Those that left no line were claims that were given back, unless not all is kept.
        """
        missing = runs - self.runs
        if missing > 0 and not is_kept:
            text = ngettext("%(n)d run of which nothing is kept", "%(n)d runs of which nothing is kept", missing)
            self._add("gap", at, text % {"n": missing})
        else:
            self._add(kind, at)
        self.runs = max(runs, self.runs)

    def run(self, kind: str, at: datetime, text: str, runs: int) -> None:
        self._add(kind, max(at, self.at), text, whole=True)
        self.runs = runs

    def _add(self, kind: str, end: datetime, text: str = "", whole: bool = False) -> None:
        if end > self.at or whole:
            self.stretches.append(Stretch(kind, self.at, max(end, self.at), text))
            self.at = max(end, self.at)


def told(job: Any, history: Any) -> Told:
    """Return the time of a job, with the database's `clock`; `history` is what may be shown of its history."""
    found = Told(job.created_at)
    lines = history if isinstance(history, list) else []
    for place, line in enumerate(lines):
        if isinstance(line, dict) and (at := _moment(line, job.clock)) is not None:
            _line(found, line, at, is_kept=place != 1 or len(lines) < HISTORY_LIMIT)
    if job.status == Job.Status.READY:
        _waits(found, job)
    elif job.status == Job.Status.RUNNING:
        _last_run(found, job, "running", job.clock)
    elif not found.is_over and found.runs < job.token and job.last_started_at is not None:
        _last_run(found, job, {"done": "done", "cancelled": "cancelled"}.get(job.status, "failed"), job.finished_at)
    else:
        found.until(job.finished_at, found.runs)
    return found


def _line(found: Told, line: dict[str, Any], at: datetime, is_kept: bool) -> None:
    cause, error, run = str(line.get("cause")), str(line.get("error") or ""), _whole(line.get("run"), found.runs)
    if cause == ASKED_TO_STOP:  # while a run goes on
        found.acts.append(Act(at, f"{cause} {error}"))
    elif cause in (*ACTS, TOO_LATE):
        # A run that succeeded leaves no line.
        found.until(at, run, "ended" if cause == REQUEUED else "waiting", is_kept and cause != REQUEUED)
        found.is_over = cause in (CALLED_OFF, TOO_LATE)
        found.acts.append(Act(at, f"{cause} {error}"))
    else:
        seconds = line.get("seconds")
        length = timedelta(seconds=seconds if isinstance(seconds, int | float) and 0 <= seconds < 10**9 else 0)
        found.until(at - length, run - 1, is_kept=is_kept)
        found.is_over = False
        kind = "lost" if cause in LOSSES else "back" if cause in NO_FAILURES else "failed"
        found.run(kind, at, _("run %(run)d, %(length)s, ended as %(cause)s: %(error)s") % {
            "run": run, "length": figures.length(length), "cause": cause, "error": error[:200]}, run)  # fmt: skip


def _last_run(found: Told, job: Any, kind: str, end: datetime) -> None:
    began = job.last_started_at or found.at
    found.until(began, job.token - 1)
    words = {"running": _("running"), "done": _("done"), "cancelled": _("cancelled")}.get(kind, _("ended"))
    text = _("run %(run)d, %(length)s, %(words)s") % {
        "run": job.token,
        "length": figures.length(end - began),
        "words": words,
    }
    found.run(kind, end, text, job.token)


def _waits(found: Told, job: Any) -> None:
    runs = max(job.token, found.runs)
    if runs > found.runs:
        found.until(job.clock, runs)
    elif job.run_at > job.clock:
        found.until(job.clock, runs, "scheduled")
        found.until(job.run_at, runs, "ahead")
    else:
        found.until(max(job.run_at, found.at), runs, "scheduled")
        found.until(job.clock, runs, _what_for(job))


def _what_for(job: Any) -> str:
    """Return what a job that is due waits for, as its sentence says: a pause holds a suspect, too."""
    if getattr(job, "held", False):
        return "held"
    return "alone" if job.parked == Job.Parked.SUSPECT else "due"


def _moment(line: dict[str, Any], clock: datetime) -> datetime | None:
    try:
        return as_clock(parse_datetime(str(line.get("at") or "")), clock)
    except ValueError:
        return None


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def drawn(job: Any, history: Any) -> dict[str, Any] | None:
    """Return what the template draws, or None where there is no length of time to draw."""
    found = told(job, history)
    stretches = [item for item in found.stretches if item.end >= item.start]
    if not stretches or stretches[-1].end <= stretches[0].start:
        return None
    start, end = stretches[0].start, stretches[-1].end
    scale = WIDTH / (end - start).total_seconds()

    def at(moment: datetime) -> float:
        return min(max((moment - start).total_seconds() * scale, 0.0), float(WIDTH))

    return {
        "width": WIDTH,
        "bars": list(_bars(stretches, at)),
        "acts": [{"x": f"{at(act.at):.2f}", "text": act.text} for act in found.acts],
        "now": f"{at(job.clock):.2f}" if job.status == Job.Status.READY and end > job.clock else "",
        "starts": exact(start),
        "ends": _("now") if end == job.clock else exact(end),
        "length": figures.length(end - start),
        "legend": list(_legend(stretches)),
        "is_cut": isinstance(history, list) and len(history) >= HISTORY_LIMIT,
        "says": ngettext("%(n)d run is drawn", "%(n)d runs are drawn", _runs(stretches)) % {"n": _runs(stretches)},
    }


def _runs(stretches: Sequence[Stretch]) -> int:
    return sum(item.kind in RUNS for item in stretches)


def _bars(stretches: Sequence[Stretch], at: Any) -> Iterator[dict[str, Any]]:
    """Return where each stretch is drawn; runs last, so that none is hidden."""
    for item in sorted(stretches, key=lambda item: item.kind in RUNS):
        left, width = at(item.start), at(item.end) - at(item.start)
        if item.kind in RUNS and width < LEAST_WIDTH:
            width = LEAST_WIDTH
            left = min(left, WIDTH - width)
        words = f"{names()[item.kind]}, {figures.length(item.end - item.start)}" if not item.text else item.text
        yield {"kind": item.kind, "x": f"{left:.2f}", "width": f"{width:.2f}", "text": words, "run": item.kind in RUNS}


def _legend(stretches: Sequence[Stretch]) -> Iterator[dict[str, Any]]:
    """Return the kinds that there are, each with how often and how long in all."""
    for kind, name in names().items():
        of_it = [item for item in stretches if item.kind == kind]
        if of_it:
            length = figures.length(sum((item.end - item.start for item in of_it), timedelta()))
            number = f"{len(of_it)} × " if kind in RUNS and len(of_it) > 1 else ""  # noqa: RUF001 - times
            yield {"kind": kind, "name": name, "length": f"{number}{name}, {length}"}


def names() -> dict[str, str]:
    return {
        "scheduled": _("waited for its time"),
        "ahead": _("until its time"),
        "due": _("due, waits for a worker"),
        "held": _("due, held by a pause"),
        "alone": _("due, waits to be run alone"),
        "waiting": _("waited"),
        "running": _("running"),
        "done": _("done"),
        "failed": _("failed"),
        "lost": _("lost"),
        "back": _("went back, no failure"),
        "cancelled": _("ran, then cancelled"),
        "ended": _("ended, before a requeue"),
        "gap": _("not kept"),
    }
