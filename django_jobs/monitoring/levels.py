"""The words of a check that a monitoring system runs: levels, thresholds, and the line that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is; the value is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """One value with its thresholds, None for none; `unit` as performance data has it ("s", or nothing for a number).

    It is bad above a threshold; with `least`, below it. `text` says what is wrong, when it is.
    """

    name: str
    value: float
    warning: float | None
    critical: float | None
    text: str = ""
    unit: str = ""
    least: bool = False

    @property
    def level(self) -> Level:
        if self._passes(self.critical):
            return Level.CRITICAL
        return Level.WARNING if self._passes(self.warning) else Level.OK

    def _passes(self, limit: float | None) -> bool:
        if limit is None:
            return False
        return self.value < limit if self.least else self.value > limit

    @property
    def data(self) -> str:
        limits = [self._range(limit) for limit in (self.warning, self.critical)]
        return ";".join([f"{_label(self.name)}={_number(self.value)}{self.unit}", *limits, "0"])

    def _range(self, limit: float | None) -> str:
        return "" if limit is None else f"{_number(limit)}{':' if self.least else ''}"


def worst(found: Sequence[Measured]) -> Level:
    return max((item.level for item in found), default=Level.OK)


def line(found: Sequence[Measured], well: str) -> str:
    """Return what a monitoring system reads: the level, what is wrong, worst first, or `well`, and the values."""
    wrong = sorted((item for item in found if item.level), key=lambda item: -item.level)
    said = "; ".join(item.text for item in wrong) or well
    return f"{worst(found).name} - {in_a_line(said)} | {' '.join(item.data for item in found)}"


def in_a_line(text: str) -> str:
    """Return a text without what ends the text of such a line."""
    return " ".join(text.split()).replace("|", "/")


def _label(name: str) -> str:
    plain = name.replace("'", "_").replace("=", "_").replace("|", "_")
    return f"'{plain}'" if " " in plain else plain


def _number(value: float) -> str:
    return f"{round(value, 3):.3f}".rstrip("0").rstrip(".")
