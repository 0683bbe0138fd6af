"""What a measurement is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compared.marks import Count
from benchmarks.compared.peer import Peer
from benchmarks.compared.servers import Servers
from benchmarks.compared.trial import Trial

WARM = 20  # jobs whose time does not count: connections are made, statements prepared


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    count: Count | None = None


@dataclass(frozen=True)
class Bench:
    servers: Servers
    pythons: dict[str, Path]
    short: bool
    seconds: float  # what a drain should last

    def trial(self, peer: Peer, jobs: int, handler: str = "nothing", keep: str = "") -> Trial:
        return Trial(peer, self.pythons[peer.name], self.servers, jobs, handler=handler, keep=keep)

    def jobs(self, peer: Peer, most: float = float("inf"), times: float = 1.0) -> int:
        """Return how many jobs last about as long as they should, for a peer that cannot do more than `most` a second."""
        return max(200, int(min(peer.rate, most) * self.seconds * times))


Measure = Callable[[Bench, Peer], Iterator[Figure]]
Together = Callable[[Bench, list[Peer]], Iterator[tuple[Peer, Figure]]]
