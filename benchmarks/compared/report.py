"""What was found, as JSON with every figure and as tables of medians with their ranges."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.compared.bench import Figure
from benchmarks.compared.peer import Peer

TABLES = {
    "Speed and cost": (
        "enqueue", "bulk", "drain 1", "drain 2", "drain 4", "worker CPU", "server CPU", "latency p50", "latency p99",
    ),
    "When it is not that simple": (
        "sleep 5 ms, 32 threads", "compute 1 ms", "payload 100 B", "payload 2,048 B", "payload 51,200 B",
        "held snapshot", "1 M finished", "10 M finished",
    ),
    "Idle, and killed": ("idle memory", "idle statements", "idle CPU", "kill -9"),
}  # fmt: skip
NEVER = "*never*: not within 330 s."


@dataclass
class Results:
    about: dict[str, Any]
    peers: list[Peer]
    figures: dict[str, dict[str, list[Figure]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, peer: Peer, figure: Figure) -> None:
        self.figures[peer.name][figure.name].append(figure)
        print(
            f"{peer.name:<16} {figure.name:<24} {_number(figure.value):>9} {figure.unit}{_faults(figure)}", flush=True
        )

    def fail(self, peer: Peer, measure: str, error: Exception) -> None:
        self.failures.append((peer.name, measure, f"{type(error).__name__}: {error}"))
        print(f"{peer.name:<16} {measure:<24} FAILED  {error}", flush=True)

    def values(self, name: str, figure: str) -> list[float]:
        return [each.value for each in self.figures[name].get(figure, [])]

    def faults(self, name: str) -> tuple[int, int]:
        counts = [each.count for found in self.figures[name].values() for each in found if each.count]
        return sum(count.lost for count in counts), sum(count.doubled for count in counts)

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "comparison.json").write_text(json.dumps(self._data(), indent=1))

    def markdown(self) -> str:
        lines = [
            f"{self.about['date']}, {self.about['machine']}; {self.about['servers']}; {self.about['rounds']} rounds.",
            "",
        ]
        for title, columns in TABLES.items():
            lines += self._table(title, columns)
        lines += [NEVER, ""] if self.figures_of("kill -9") else []
        lines += [f"* {name}, {measure}: {error.splitlines()[0]}" for name, measure, error in self.failures]
        return "\n".join(lines) + "\n"

    def figures_of(self, figure: str) -> list[Figure]:
        return [each for found in self.figures.values() for each in found.get(figure, [])]

    def _table(self, title: str, columns: tuple[str, ...]) -> list[str]:
        shown = [column for column in columns if any(column in self.figures[peer.name] for peer in self.peers)]
        if not shown:
            return []
        units = {each.name: each.unit for found in self.figures.values() for kind in found.values() for each in kind}
        heads = [f"{column}, {units[column]}" for column in shown]
        lines = [f"**{title}**", "", f"| | {' | '.join(heads)} | lost, doubled |", f"|---|{'--:|' * (len(shown) + 1)}"]
        for peer in self.peers:
            cells = [_cell([each.value for each in self.figures[peer.name].get(column, [])]) for column in shown]
            lost, doubled = self.faults(peer.name)
            lines.append(f"| {self._title(peer)} | {' | '.join(cells)} | {lost}, {doubled} |")
        return [*lines, ""]

    def _title(self, peer: Peer) -> str:
        version = self.about["versions"].get(peer.name)
        return f"{peer.title} {version}" if version else peer.title

    def _data(self) -> dict[str, Any]:
        found = {
            name: {
                figure: {
                    "unit": each[0].unit,
                    "values": [None if math.isinf(one.value) else one.value for one in each],
                    "counts": [_count(one) for one in each],
                }
                for figure, each in kinds.items()
            }
            for name, kinds in self.figures.items()
        }
        return {**self.about, "peers": found, "failures": self.failures}


def about(servers: str, versions: dict[str, str], rounds: int) -> dict[str, Any]:
    cores = os.cpu_count() or 1
    machine = (
        f"{platform.system()} on {platform.machine()}, {cores} cores for everything, Python {platform.python_version()}"
    )
    return {"date": str(date.today()), "machine": machine, "servers": servers, "versions": versions, "rounds": rounds}


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    middle = _number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))}-{_number(max(values))})"


def _number(value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _faults(figure: Figure) -> str:
    return f"  lost {figure.count.lost}, doubled {figure.count.doubled}" if figure.count else ""


def _count(figure: Figure) -> dict[str, int] | None:
    return vars(figure.count) if figure.count else None
