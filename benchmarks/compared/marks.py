"""What handlers left in the directory of a trial (see benchmarks.peers.tally), read by the driver."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.tally import HEAD


@dataclass(frozen=True)
class Count:
    jobs: int
    runs: int
    lost: int
    doubled: int


class Marks:
    def __init__(self, directory: Path, jobs: int) -> None:
        self._directory = directory
        self._jobs = jobs

    def executed(self) -> int:
        """Return how many jobs ran, those that ran in two processes counted twice."""
        return sum(self._jobs - runs.count(0) for runs in self._runs())

    def first(self) -> float:
        """Return the monotonic time of the first run."""
        return min(float(struct.unpack_from("d", path.read_bytes())[0]) for path in self._directory.glob("*.runs"))

    def count(self) -> Count:
        runs = [sum(each) for each in zip(*self._runs(), strict=True)] or [0] * self._jobs
        return Count(self._jobs, sum(runs), runs.count(0), sum(each > 1 for each in runs))

    def waits(self) -> list[float]:
        """Return for each job the seconds from when it was sent until its handler started."""
        sent = _doubles((self._directory / "sent").read_bytes())
        started = [_doubles(path.read_bytes())[: len(sent)] for path in self._directory.glob("*.starts")]
        first = [min((at for at in each if at), default=0.0) for each in zip(*started, strict=True)]
        return [at - before for before, at in zip(sent, first, strict=True) if at]

    def kept_up(self) -> float:
        """Return how many jobs started a second, from the moment the first was sent."""
        sent = _doubles((self._directory / "sent").read_bytes())
        return len(sent) / (self.last_start() - sent[0])

    def last_start(self) -> float:
        paths = self._directory.glob("*.starts")
        return max(max(_doubles(path.read_bytes())) for path in paths)

    def _runs(self) -> list[bytes]:
        found = (path.read_bytes() for path in self._directory.glob("*.runs"))
        return [runs[HEAD:] for runs in found if len(runs) == HEAD + self._jobs]


def _doubles(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"{len(data) // 8}d", data)
