"""What is compared, and the environment that each peer runs in."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIST = Path(__file__).parent.parent / "peers" / "peers.toml"


class PeerError(Exception):
    """A peer cannot be installed, or did not do what it was asked."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    name: str
    title: str
    broker: str
    rate: int
    unfinished: str
    finished: str = ""
    install: tuple[str, ...] = ()
    python: str = "3.11"
    database: int = 0

    @property
    def own(self) -> bool:
        return not self.install

    @property
    def distribution(self) -> str:
        return re.split(r"[\[=]", self.install[0])[0]


def listed() -> dict[str, Peer]:
    found = tomllib.loads(LIST.read_text())
    return {
        name: Peer(name=name, **{**given, "install": tuple(given.get("install", ()))}) for name, given in found.items()
    }


def interpreter(peer: Peer, cache: Path) -> Path:
    """Return the Python that has the peer installed: made in the cache when it is not there, kept by its versions."""
    if peer.own:
        return Path(sys.executable)
    base = _base(peer)
    mark = hashlib.sha256(repr((str(base), peer.install)).encode()).hexdigest()[:8]
    home = cache / f"{peer.name}-{mark}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        _run([str(base), "-m", "venv", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", *peer.install])
        (home / "ready").touch()
    return python


def versions(python: Path) -> dict[str, str]:
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    found: dict[str, str] = json.loads(_run([str(python), "-c", code]))
    return found


def _base(peer: Peer) -> Path:
    least = tuple(map(int, peer.python.split(".")))
    if sys.version_info >= least:
        return Path(sys.executable)
    for minor in range(least[1], least[1] + 3):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "-V"], capture_output=True, check=False).returncode == 0:
            return Path(found)
    raise PeerError(f"{peer.name} needs Python {peer.python} or newer: run this with one, or put one on the PATH")


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise PeerError(f"{' '.join(command[-4:])} ended with {done.returncode}: {done.stdout.strip()[-400:]}")
    return done.stdout
