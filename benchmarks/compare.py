"""Measure django_jobs beside other queues and a bare psycopg loop, each in its own environment at its best setting.

Rounds are interleaved: in each, every measurement is made of every peer in turn, and medians with their ranges are what
counts, since absolute figures move by a third from run to run. Each peer is a folder of a few lines below
`benchmarks/peers/`, which says why it is set as it is; versions are in `benchmarks/peers/peers.toml`. Environments are
built with `venv` and pip when they are first needed. PostgreSQL and Redis are started here, alike for all, durable.

Every run of a handler is counted by its job's number, so jobs lost and run twice are told beside each rate.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.compared.measures import MEASURES, Bench, Figure
from benchmarks.compared.peer import Peer, PeerError, interpreter, listed
from benchmarks.compared.servers import Servers


def main() -> int:
    peers = listed()
    options = _options(peers)
    found: list[tuple[str, int, Figure]] = []
    with Servers() as servers:
        pythons = _install(options)
        bench = Bench(servers, pythons, options.short, options.seconds)
        for number in range(options.rounds):
            for measure in options.measures:
                for peer in options.peers:
                    if peer.name not in pythons:
                        continue
                    try:
                        for figure in MEASURES[measure](bench, peer):
                            found.append((peer.name, number, figure))
                            print(number, f"{peer.name:<16}", figure, flush=True)
                    except PeerError as error:
                        print(number, peer.name, measure, error)
    return 0


def _options(peers: dict[str, Peer]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="these peers: name,name (default: all)")
    parser.add_argument("--measure", help=f"these measurements of {', '.join(MEASURES)} (default: all)")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--cache", type=Path, default=_cache(), help=f"for the environments (default: {_cache()})")
    options = parser.parse_args()
    options.peers = [peers[name] for name in _named(parser, options.only, peers)]
    options.measures = _named(parser, options.measure, MEASURES)
    return options


def _named(parser: argparse.ArgumentParser, given: str | None, known: dict) -> list[str]:
    names = given.split(",") if given else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return names


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if Path.home().is_dir() else tempfile.gettempdir())
    return Path(home) / "django_jobs-benchmarks"


def _install(options: argparse.Namespace) -> dict[str, Path]:
    pythons = {}
    for peer in options.peers:
        try:
            pythons[peer.name] = interpreter(peer, options.cache)
        except PeerError as error:
            print(f"{peer.name} is left out: {error}")
    return pythons


if __name__ == "__main__":
    sys.exit(main())
