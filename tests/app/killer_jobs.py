"""Jobs of the tests that end more than themselves, each in its way, and those that run beside them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from django.db import connections

from django_jobs import Context, job
from tests import router
from tests.app.models import Effect

CHUNK = 8 * 1024 * 1024
ALL_OF_IT = 512 * 1024 * 1024


def effect(key: str, run: int = 0) -> None:
    Effect.objects.using(router.jobs_alias).create(key=key, run=run, pid=os.getpid())


@job(takes_context=True)
def kill_by(context: Context, key: str, how: str) -> None:
    """Leave an effect, and end the process, or what it stands on."""
    effect(key, context.run)
    _WAYS[how]()
    time.sleep(60)


@job(takes_context=True)
def kill_session_of_server(context: Context, key: str) -> None:
    """Leave an effect, and have the server's process of this connection end, as if the query crashed it."""
    effect(key, context.run)
    with connections[router.jobs_alias].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@job
def do_good(key: str, seconds: float = 0.05) -> None:
    """Work for a while, and leave one effect however often it is run."""
    time.sleep(seconds)
    Effect.objects.using(router.jobs_alias).get_or_create(key=key, defaults={"pid": os.getpid()})


def _use_all_memory() -> None:
    """Take memory until there is no more; where nothing limits it, the kernel kills the process then, as here."""
    taken: list[bytearray] = []
    while len(taken) * CHUNK < ALL_OF_IT:
        taken.append(bytearray(CHUNK))
    _kill_itself()


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_tree() -> None:
    """Kill the supervisor and all below it, and so whoever might have seen it."""
    leader = os.getsid(0)
    os.kill(leader, signal.SIGKILL)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                pass
    _kill_itself()


def _fall_down() -> None:
    ctypes.string_at(0)


_WAYS: dict[str, Callable[[], object]] = {
    "segfault": _fall_down,
    "exit": lambda: os._exit(9),
    "memory": _use_all_memory,
    "kernel": _kill_itself,
    "tree": _kill_tree,
    "template": lambda: os.kill(os.getppid(), signal.SIGKILL),
}
