"""A storm of faults over trees of workers that run jobs, by a schedule that a seed decides; and what it did to the jobs."""

from __future__ import annotations

import heapq
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path

import psycopg
from django.db import DatabaseError, InterfaceError, connections

from django_jobs.models import Worker
from example_project.postgres import Server
from tests.clocks import wrong_clock
from tests.faults.places import LEASE, THREADS, Enqueuer, Place
from tests.harness import Tree, wait_for
from tests.processes.common import may_fake_time
from tests.processes.outages import NetworkTree
from tests.proxy import Proxy

# Seconds until an act is tried again that found nothing to harm.
SOON = 0.2


@dataclass(slots=True)
class Faults:
    """How often each was done."""

    worker_kills: int = 0
    supervisor_kills: int = 0
    template_kills: int = 0
    tree_kills: int = 0
    freezes: int = 0
    terminated_backends: int = 0
    restarts: int = 0
    swallowed_commits: int = 0
    cuts: int = 0
    silences: int = 0

    @property
    def kills(self) -> int:
        return self.worker_kills + self.supervisor_kills + self.template_kills + self.tree_kills


class Storm:
    """Three trees on one server: the first's clock is two hours fast, the second's slow, the third has a good one.

    Without faketime all clocks are good. The second and the third reach the server by a proxy. Call `rage`, then `calm`,
    from the main thread.
    """

    def __init__(self, server: Server, alias: str, directory: Path, seed: int, rate: float = 30.0) -> None:
        self.faults = Faults()
        self.enqueuer = Enqueuer(rate)
        self._server = server
        self._alias = alias
        self._random = random.Random(seed)
        self._exits = ExitStack()
        self._proxy = self._exits.enter_context(Proxy(("127.0.0.1", server.port)))
        self._direct = Tree(alias, directory)
        by_proxy = directory / "by-proxy"
        by_proxy.mkdir()
        self._behind = NetworkTree(alias, by_proxy, self._proxy.port)
        clocks = [wrong_clock("+2h"), wrong_clock("-2h")] if may_fake_time else [{}, {}]
        self._places = [Place(self._direct, clocks[0]), Place(self._behind, clocks[1]), Place(self._behind, {})]
        # What is to be done next: when, a number that keeps the order, and the act.
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._frozen: dict[int, list[int]] = {}

    def rage(self, seconds: float, restart_every: float = 60.0) -> None:
        """Start the trees and the stream of jobs, and do harm for so long."""
        for place in self._places:
            place.start()
        for place in self._places:
            place.wait_until_ready()
        self.enqueuer.start()
        self._repeat(0.3, 2.0, self._kill)
        self._repeat(1.0, 4.0, self._terminate)
        self._repeat(4.0, 9.0, self._freeze)
        self._repeat(0.5, 2.0, self._proxy.swallow_next)
        self._repeat(5.0, 15.0, self._cut)
        self._repeat(20.0, 40.0, self._silence)
        self._repeat(restart_every * 0.6, restart_every * 1.0, self._restart)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for place in self._places:
                place.keep_alive()
            if self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            else:
                pause = min(0.1, self._due[0][0] - time.monotonic())
                threading.Event().wait(max(pause, 0.0))
        self.enqueuer.end()
        self.faults.swallowed_commits = self._proxy.swallowed

    def calm(self, timeout: float) -> float:
        """Undo what is still being done to them, and wait until all jobs are done; return the seconds that it took."""
        began = time.monotonic()
        self._due.clear()
        self._proxy.calm()
        for pids in self._frozen.values():
            _send(pids, signal.SIGCONT)
        self._frozen.clear()
        while time.monotonic() - began < timeout:
            for place in self._places:
                place.keep_alive()
            if not self._ask("SELECT 1 FROM django_jobs_job WHERE status IN ('ready', 'running') LIMIT 1"):
                break
            threading.Event().wait(0.2)
        else:
            self._show_stacks()
        return time.monotonic() - began

    def _show_stacks(self) -> None:
        """Have every process of the trees write to its log what its threads do."""
        for place in self._places:
            if place.workers is not None:
                place.workers.signal(signal.SIGQUIT)

    def stop(self) -> list[int]:
        """Tell the trees to stop; return their exit codes."""
        codes = [place.workers.stop() for place in self._places if place.workers is not None]
        for place in self._places:
            wait_for(place.has_no_orphans, what="orphans are gone")
        return codes

    def end(self) -> None:
        self.enqueuer.end()
        for pids in self._frozen.values():
            _send(pids, signal.SIGCONT)
        for tree in (self._direct, self._behind):
            tree.end_all()
        self._exits.close()

    @property
    def tree(self) -> Tree:
        return self._direct

    # The faults.

    def _repeat(self, least: float, most: float, act: Callable[[], bool | None]) -> None:
        """Act at intervals by chance; what says that it could not (False) is tried again soon."""

        def again() -> None:
            done = act() is not False
            self._after(self._random.uniform(least, most) if done else SOON, again)

        self._after(self._random.uniform(least, most), again)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._number, act))

    def _kill(self) -> None:
        """Kill a worker process mostly, else a supervisor, a template, or a whole tree at once.

        Processes that run a suspect alone die with their tree only: the death of one by itself is what convicts.
        """
        place = self._random.choice(self._places)
        kind = self._random.choices(("worker", "supervisor", "template", "tree"), (12, 2, 2, 3))[0]
        workers, which = place.workers, self._random.random()
        if workers is None or workers.process.poll() is not None:
            return
        pids = workers.tree_pids()
        if kind == "worker":
            known = self._workers(workers.pid)
            pids = [pid for pid in known if pid in pids]
            pids = [pids[int(which * len(pids))]] if pids else []
        elif kind == "supervisor":
            pids = pids[:1]
        elif kind == "template":
            pids = pids[1:2]
        if pids:
            _send(pids, signal.SIGKILL)
            name = f"{kind}_kills"
            setattr(self.faults, name, getattr(self.faults, name) + 1)

    def _workers(self, supervisor: int) -> list[int]:
        """Return the pids of the worker processes of a tree, but those that run one job alone."""
        rows = Worker.objects.using(self._alias).filter(supervisor_pid=supervisor, threads=THREADS)
        try:
            return sorted(rows.values_list("pid", flat=True))
        except (DatabaseError, InterfaceError):
            connections[self._alias].close()
            return []

    def _freeze(self) -> bool:
        """Stop all processes of a tree until well after their leases have run out."""
        number = self._random.randrange(len(self._places))
        seconds = LEASE * self._random.uniform(1.2, 2.5)
        workers = self._places[number].workers
        if number in self._frozen or workers is None or workers.process.poll() is not None:
            return False
        self._frozen[number] = workers.tree_pids()
        _send(self._frozen[number], signal.SIGSTOP)
        self.faults.freezes += 1
        self._after(seconds, lambda: _send(self._frozen.pop(number), signal.SIGCONT))
        return True

    def _terminate(self) -> bool:
        """End a few sessions of workers, or all of them."""
        limit = self._random.choice((1, 1, 2, 3, 1000))
        found = self._ask(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE application_name LIKE 'django_jobs:%%' AND pid <> pg_backend_pid() ORDER BY md5(pid::text || %s)"
            " LIMIT %s) AS chosen",
            str(self._random.random()),
            limit,
        )
        self.faults.terminated_backends += len(found)
        return bool(found)

    def _restart(self) -> None:
        connections[self._alias].close()
        self._server.restart("immediate")
        self.faults.restarts += 1

    def _cut(self) -> None:
        self._proxy.cut()
        self.faults.cuts += 1

    def _silence(self) -> None:
        """Have the network of two trees say nothing for longer than a lease."""
        silence = ExitStack()
        silence.enter_context(self._proxy.silence(lossy=self._random.random() < 0.5))
        self.faults.silences += 1
        self._after(LEASE * self._random.uniform(1.1, 1.6), silence.close)

    def _ask(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        with suppress(psycopg.OperationalError), psycopg.connect(self._server.url, autocommit=True) as raw:
            return raw.execute(statement, parameters).fetchall()
        return []


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def lines_of(faults: Faults) -> list[tuple[str, int]]:
    """Return the name and number of each fault, in words."""
    return [(item.name.replace("_", " "), getattr(faults, item.name)) for item in fields(faults)]
