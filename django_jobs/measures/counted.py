"""The numbers of runs that ended, added up, and what is told from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

from django_jobs.models.stat import CLASSES, LAST_ATTEMPT, SUMS

# What is added up of a row: its counters, its two sums of seconds, and its three lists one behind the other.
LISTS = {"runs": len(CLASSES) + 1, "waits": len(CLASSES) + 1, "attempts": LAST_ATTEMPT}
WIDTH = len(SUMS) + sum(LISTS.values())
_STARTS = dict(zip(LISTS, accumulate(LISTS.values(), initial=len(SUMS)), strict=False))


@dataclass(frozen=True, slots=True)
class Quantile:
    """How long the quickest so-and-so-many of a hundred took at most, in seconds, as exactly as it is known.

    It lies from `low` to `high`, the ends of a class of `Stat.CLASSES`. `high` is None in the last class, which has no end.
    """

    low: float
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Ends of runs, by what they were; see `models.Stat`. `attempts`: jobs that ended in their 1st, 2nd, ... attempt."""

    done: int = 0
    retried: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    stopped: int = 0
    lost_leases: int = 0
    repeats: int = 0
    lease_expirations: int = 0
    slots_missed: int = 0
    run_seconds: float = 0.0
    wait_seconds: float = 0.0
    runs: Sequence[int] = (0,) * LISTS["runs"]
    waits: Sequence[int] = (0,) * LISTS["waits"]
    attempts: Sequence[int] = (0,) * LISTS["attempts"]

    @property
    def unsuccessful(self) -> int:
        """Jobs that ended as `failed` or `dead`."""
        return self.failed + self.dead

    @property
    def ended(self) -> int:
        """Runs and waits that ended, however."""
        return self.done + self.unsuccessful + self.retried + self.cancelled + self.stopped

    @property
    def failure_rate(self) -> float | None:
        """The share of jobs that ended as `failed` or `dead` in those that ended so or as `done`; None without any."""
        return _share(self.unsuccessful, self.done + self.unsuccessful)

    @property
    def retry_rate(self) -> float | None:
        """The share of runs that were followed by another attempt in all that ended by themselves; None without any."""
        return _share(self.retried, self.done + self.unsuccessful + self.retried)

    def wait(self, share: float) -> Quantile | None:
        """Return how long that share of jobs (0.95 for the 95th percentile) waited at most; None if none was counted."""
        return quantile(self.waits, share)

    def run(self, share: float) -> Quantile | None:
        """Return how long that share of runs took at most; None if none was counted."""
        return quantile(self.runs, share)


def quantile(counts: Sequence[int], share: float) -> Quantile | None:
    """Return where in the classes of `Stat.CLASSES`, which are so full, a share of what is in them ends."""
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    sums = list(accumulate(counts))
    index = next(index for index, number in enumerate(counts) if number and sums[index] >= wanted)
    return Quantile(CLASSES[index - 1] if index else 0.0, CLASSES[index] if index < len(CLASSES) else None)


def added(vectors: Iterable[Sequence[float]]) -> list[float]:
    """Return the sums of what stands in the same places."""
    return [sum(column) for column in zip(*vectors, strict=True)] or [0] * WIDTH


def counted(vector: Sequence[float]) -> Counted:
    """Return what was added up, by name."""
    values: dict[str, object] = dict(zip(SUMS, vector, strict=False))
    values |= {name: tuple(vector[start : start + LISTS[name]]) for name, start in _STARTS.items()}
    return Counted(**values)  # type: ignore[arg-type]


assert {field.name for field in fields(Counted)} == {*SUMS, *LISTS}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
