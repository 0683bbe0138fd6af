"""Measure django_jobs beside other queues and a bare psycopg loop, each in its own environment at its best documented setting.

Rounds are interleaved: in each, every measurement is made of every peer in turn, and medians with their ranges are what
counts, since absolute figures move by a third from run to run. Each peer is a folder of a few lines below
`benchmarks/peers/`, which says why it is set as it is; versions are in `benchmarks/peers/peers.toml`. Environments are
made with venv and pip when they are first needed. PostgreSQL and Redis are started here, alike for all, durable.

Every run of a handler is counted by its job's number, so jobs lost and run twice are told beside each rate. A peer that
cannot be installed, or fails at something, is reported as such, and the rest goes on. Writes JSON, tables and pictures.
Ends with 1 when django_jobs lost or doubled a job, or failed at something.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.compared import limits, rates, states
from benchmarks.compared.bench import Bench, Measure, Together
from benchmarks.compared.peer import Peer, PeerError, interpreter, listed, versions
from benchmarks.compared.plots import draw
from benchmarks.compared.report import Results, about
from benchmarks.compared.servers import Servers
from benchmarks.throughput import ROOT

FAILURES = (PeerError, psycopg.Error, subprocess.SubprocessError, OSError, ValueError)

MEASURES: dict[str, tuple[Measure, ...]] = {
    "enqueue": (rates.enqueue,),
    "bulk": (rates.bulk,),
    "drain": (partial(rates.drain, 1), partial(rates.drain, 2), partial(rates.drain, 4)),
    "latency": (rates.latency,),
    "wait": (rates.waiting,),
    "compute": (rates.computing,),
    "payload": (partial(rates.payload, 100), partial(rates.payload, 2_048), partial(rates.payload, 51_200)),
    "snapshot": (rates.snapshot,),
    "finished": (partial(rates.finished, 1_000_000), partial(rates.finished, 10_000_000)),
}
# Of all peers at once, in the first round only.
TOGETHER: dict[str, Together] = {"idle": states.idle, "kill": states.kill}
NAMES = [*MEASURES, *TOGETHER]
LONG = {"drain": 2, "finished": 1}  # a short run makes only so many of these measurements


def main() -> int:
    options = _options(listed())
    started = time.monotonic()
    with Servers() as servers:
        pythons, missing = _install(options)
        bench = Bench(servers, pythons, options.short, options.seconds)
        peers = [peer for peer in options.peers if peer.name in pythons]
        results = Results(about("", _versions(pythons, peers), options.rounds), peers, failures=missing)
        try:
            _measure(bench, options, results)
        except KeyboardInterrupt:
            print("stopped; what was found is written")
        results.about["servers"] = servers.versions()
    results.write(options.output)
    text = "\n".join([results.markdown(), *limits.lines(results)])
    (options.output / "comparison.md").write_text(text)
    draw(results, options.output)
    print(text)
    print(f"{(time.monotonic() - started) / 60:.1f} minutes; JSON, tables and pictures are in {options.output}")
    return int(any(results.faults("django_jobs")) or any(name == "django_jobs" for name, _, _ in results.failures))


def _options(peers: dict[str, Peer]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="these of them: name,name (default: all)")
    parser.add_argument("--measure", help=f"these measurements: name,name (default: all, {', '.join(NAMES)})")
    parser.add_argument(
        "--short",
        action="store_true",
        help="no kill -9, 10 M finished rows or 4 processes, small rounds: under half an hour",
    )
    parser.add_argument("--rounds", type=int, help="rounds of each (default: 3 when short, else 5)")
    parser.add_argument("--seconds", type=float, help="what a drain should last (default: 1.5 when short, else 5)")
    parser.add_argument(
        "--cache", type=Path, default=_cache(), help="directory for the environments (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        help="directory for what is found (default: %(default)s)",
    )
    options = parser.parse_args()
    options.peers = [peers[name] for name in _named(parser, options.only, list(peers))]
    options.measures = _named(parser, options.measure, NAMES)
    if options.short and not options.measure:
        options.measures.remove("kill")
    options.rounds = options.rounds or (3 if options.short else 5)
    options.seconds = options.seconds or (1.5 if options.short else 5.0)
    return options


def _named(parser: argparse.ArgumentParser, given: str | None, known: list[str]) -> list[str]:
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return names


def _cache() -> Path:
    user = os.environ.get("XDG_CACHE_HOME") or (
        Path.home() / ".cache" if Path.home().is_dir() else tempfile.gettempdir()
    )
    return Path(user) / "django_jobs-benchmarks"


def _install(options: argparse.Namespace) -> tuple[dict[str, Path], list[tuple[str, str, str]]]:
    """Return the Python of each peer that could be installed, and why the others could not."""
    pythons, missing = {}, []
    for peer in options.peers:
        try:
            pythons[peer.name] = interpreter(peer, options.cache)
        except (PeerError, subprocess.SubprocessError, OSError) as error:
            missing.append((peer.name, "left out", str(error)))
            print(f"{peer.name} is left out: {error}", flush=True)
    return pythons, missing


def _versions(pythons: dict[str, Path], peers: list[Peer]) -> dict[str, str]:
    return {peer.name: versions(pythons[peer.name]).get(peer.distribution, "") for peer in peers if not peer.own}


def _measure(bench: Bench, options: argparse.Namespace, results: Results) -> None:
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        for name in options.measures:
            if name in MEASURES:
                for measure in MEASURES[name][: LONG.get(name) if options.short else None]:
                    _each(bench, name, measure, results)
            elif number == 0:
                _together(bench, name, results)


def _each(bench: Bench, name: str, measure: Measure, results: Results) -> None:
    for peer in results.peers:
        try:
            for figure in measure(bench, peer):
                results.add(peer, figure)
        except FAILURES as error:
            results.fail(peer, name, error)


def _together(bench: Bench, name: str, results: Results) -> None:
    try:
        for peer, figure in TOGETHER[name](bench, results.peers):
            results.add(peer, figure)
    except FAILURES as error:
        for peer in results.peers:
            results.fail(peer, name, error)


if __name__ == "__main__":
    sys.exit(main())
