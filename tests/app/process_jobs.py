"""Jobs of tests/processes: handlers that try what a worker process must survive."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import subprocess
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from django.db import connections, transaction

from django_jobs import Cancel, Context, Fail, Retry, Snooze, job
from tests import router
from tests.app.models import Effect


def effect(key: str, run: int = 0, pid: int | None = None) -> None:
    Effect.objects.using(router.jobs_alias).create(key=key, run=run, pid=pid or os.getpid())


def wait_for_path(path: Path, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)


@job(takes_context=True)
def end_by_file(context: Context, key: str, directory: str) -> int:
    """Leave "<key>:start"; when <directory>/<key>.<run> is there, raise if it says so, else return the run."""
    effect(f"{key}:start", context.run)
    path = Path(directory) / f"{key}.{context.run}"
    wait_for_path(path)
    if path.read_text() == "raise":
        raise RuntimeError(f"run {context.run} fails")
    return context.run


@job(takes_context=True)
def hold_in_one_call(context: Context, key: str, seconds: int) -> None:
    """Hold the interpreter for whole seconds in one call into C that does not let go of it."""
    effect(f"{key}:start", context.run)
    ctypes.PyDLL(None).sleep(seconds)
    effect(f"{key}:end", context.run)


@job(takes_context=True)
def start_subprocess(context: Context, key: str, path: str) -> int:
    """Start a subprocess, leave its pid as "<key>:start", wait for the file and return the signals that it ignores."""
    process = subprocess.Popen(["sleep", "600"])
    effect(f"{key}:start", context.run, process.pid)
    wait_for_path(Path(path))
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.kill()
    process.wait()
    return int(status.split("SigIgn:")[1].split()[0], 16)


@job
def leave_orphans(number: int) -> None:
    """Start processes in the background whose parent is gone before they are."""
    for _ in range(number):
        subprocess.run(["sh", "-c", "sleep 0.1 &"], check=True)


@job
def terminate_fork() -> int | None:
    """Fork as multiprocessing does, terminate the copy, and return its exit code."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_say_and_wait, args=(theirs,))
    process.start()
    ours.recv()
    process.terminate()
    process.join(10)
    code = process.exitcode
    process.kill()
    return code


def _say_and_wait(connection: Connection) -> None:
    connection.send("here")
    time.sleep(60)


@job(takes_context=True)
def fork_and_return(context: Context, key: str) -> str:
    """Fork, and return in both processes."""
    pid = os.fork()
    if pid:
        effect(key, context.run, pid)
    return key


@job(takes_context=True)
def die_by_exit(context: Context, key: str, code: int) -> None:
    effect(key, context.run)
    os._exit(code)


@job(takes_context=True)
def query_after(context: Context, key: str, path: str) -> int:
    """Open a transaction, leave "<key>:start", wait for the file, and ask the database once more."""
    alias = router.jobs_alias
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
        threading.Thread(target=_effect_and_close, args=(f"{key}:start", context.run)).start()
        wait_for_path(Path(path))
        return Effect.objects.using(alias).count()


def _effect_and_close(key: str, run: int) -> None:
    effect(key, run)
    connections.close_all()


@job(takes_context=True)
def report_and_return(context: Context, steps: int) -> None:
    for step in range(1, steps + 1):
        context.progress(step, steps, "\ud800 step\x00")


@job(takes_context=True)
def use_up_descriptors(context: Context, key: str, left: int) -> None:
    """In its first run: leave the process no file descriptor, or so many: a socket takes one, waiting for it another."""
    connections.close_all()
    if context.run == 1:
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for descriptor in taken[-left:] if left else []:
            os.close(descriptor)


@job(takes_context=True, max_attempts=3)
def end_when_asked(context: Context, key: str, how: str) -> Any:
    """Leave "<key>:start", go on until asked to stop, leave "<key>:asked", and end in the way given."""
    effect(f"{key}:start", context.run)
    while not context.should_stop:
        time.sleep(0.01)
    effect(f"{key}:asked", context.run)
    match how:
        case "raise":
            raise RuntimeError("told to stop")
        case "die":
            os._exit(7)
    return {"return": "half done", "snooze": Snooze(0), "retry": Retry(0), "fail": Fail("no"), "cancel": Cancel()}[how]


if "DJANGO_JOBS_TEST_WITHOUT_NEWER" not in os.environ:

    @job
    def newer(number: int) -> int:
        return number
