"""Telling idle workers, after the commit, that a job is ready. Whatever goes wrong here costs one poll and nothing else.

Every NOTIFY takes a lock for the whole cluster at its commit, so that not each job has one: a process sends at most one
for a queue in WINDOW_SECONDS, and whoever was woken by it looks for longer than that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

from django.db import transaction
from django.utils.module_loading import import_string

from django_jobs import log, test_environment
from django_jobs.conf import Conf, conf
from django_jobs.engines import engine
from django_jobs.engines.base import Engine
from django_jobs.engines.values import NewJob, Settlement, Word

WINDOW_SECONDS = 0.05
# After an error nothing is sent for so long: the next would be likely to meet the same.
ERROR_SECONDS = 1.0
# What takes the place of workers with IMMEDIATE, in tests: of the test kit, which nothing that runs in production imports.
IN_PLACE = "django_jobs.testing.immediate.told"
MOST_QUEUES = 1_000


class _Window:
    """When the next NOTIFY of each queue may be sent by this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[tuple[str, str], float] = {}
        self._held_until = 0.0

    def take(self, alias: str, queue: str) -> bool:
        now = time.monotonic()
        if now < self._next.get((alias, queue), 0.0):
            return False
        with self._lock:
            if now < self._held_until or now < self._next.get((alias, queue), 0.0):
                return False
            if len(self._next) >= MOST_QUEUES:
                self._next.clear()
            self._next[alias, queue] = now + WINDOW_SECONDS
            return True

    def hold(self, seconds: float) -> None:
        self._held_until = time.monotonic() + seconds

    def renew(self) -> None:
        """In a forked process, where the lock may be held by a thread that is not there."""
        self._lock = threading.Lock()


_window = _Window()
_for_workers = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_window.renew)


def ready(found: Engine, queue: str | None) -> None:
    """Tell idle workers that a job of a queue is due, or of any with None, as soon as the caller's transaction commits.

    At once outside a transaction; not at all where Django does not tell when one ends, after `set_autocommit(False)`.
    """
    settings = conf()
    if _are_run_in_place(settings):
        import_string(IN_PLACE)(found)
        return
    if not found.notifies or not settings.listen:
        return
    connection = found.connection
    if not connection.in_atomic_block:
        if connection.autocommit:
            _send(found.alias, queue or "")
        return
    blocks: Any = connection.atomic_blocks
    if blocks[0]._from_testcase:
        return  # never committed, and a test may count the hooks
    hook, hooks = _hook(found.alias, queue or ""), connection.run_on_commit
    # Of many enqueues in a row the first one's is enough: a savepoint that is rolled back has taken it away.
    if not (hooks and hooks[-1][1] is hook):
        transaction.on_commit(hook, using=found.alias, robust=True)


def word_for(found: Engine, queue: str) -> Word | None:
    """Return what is to be sent along with a job that is stored now, if it is to be told of and is a transaction of its own."""
    connection = found.connection
    # What is not connected yet says of itself that it does not commit by itself.
    settings = conf()
    if not found.notifies or not settings.listen or _are_run_in_place(settings):
        return None
    if connection.in_atomic_block or not connection.autocommit:
        return None
    return Word(queue) if _window.take(found.alias, queue) else None


def _are_run_in_place(settings: Conf) -> bool:
    return settings.immediate and not _for_workers and test_environment.is_set_up()


@contextmanager
def for_workers() -> Iterator[None]:
    """Have this process, and those that it forks, leave jobs to the workers that they are, whatever IMMEDIATE says."""
    global _for_workers
    before, _for_workers = _for_workers, True
    try:
        yield
    finally:
        _for_workers = before


def passed_on(found: Engine, word: Word) -> None:
    """Send a word that did not go along with what was stored."""
    if not word.sent:
        _tell(found.alias, word.queue)
    elif word.error is not None:
        _failed(word.error)


def ready_if_due(found: Engine, jobs: Iterable[NewJob]) -> None:
    """Do so for each queue in which one of these jobs is due now."""
    terms = {id(job.terms): job.terms for job in jobs}.values()
    for queue in {one.queue for one in terms if one.is_due}:
        ready(found, queue)


def ready_again(found: Engine, settlements: Iterable[Settlement], statuses: Mapping[int, str]) -> None:
    """Do so, for any queue, if one of these ends of runs made its job ready, and due without a delay."""
    if any(statuses.get(item.run.id) == "ready" and not item.delay for item in settlements):
        ready(found, None)


@lru_cache(maxsize=MOST_QUEUES)
def _hook(alias: str, queue: str) -> Callable[[], None]:
    return partial(_send, alias, queue)


def _send(alias: str, queue: str) -> None:
    if _window.take(alias, queue):
        _tell(alias, queue)


def _tell(alias: str, queue: str) -> None:
    try:
        engine(alias).notify(queue)
    except Exception as error:
        _failed(error)


def _failed(error: Exception) -> None:
    _window.hold(ERROR_SECONDS)
    log.wake_up_failed(error)
