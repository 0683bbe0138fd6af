"""`runworkers --reload` where code cannot be imported at the start: it waits for a change, as `runserver` does.

Django does so for `runserver` alone, known by its name: another command is not even found before all apps have been imported. So
what would end this process is waited out where Python shows it, and the whole command is started again.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.utils import autoreload

from django_jobs.workers import reload_log

# By it a child knows whose it is, and that it is not to watch as well.
WATCHED_BY = "DJANGO_JOBS_WATCHED_BY"
INSTALLED = ("site-packages", "dist-packages")


def wait_out() -> None:
    """From now on, and until the start is over, have the command wait for a change instead of ending by an exception."""
    if hasattr(os, "fork") and _is_to_reload(sys.argv):
        sys.excepthook = partial(_shown, sys.excepthook)


def is_over() -> None:
    """The command has been found and runs: from now on an exception ends it."""
    hook = sys.excepthook
    if isinstance(hook, partial) and hook.func is _shown:
        sys.excepthook = hook.args[0]


def is_child() -> bool:
    return os.environ.get(WATCHED_BY, "") == str(os.getppid())


def watch_apps(reloader: Any) -> None:
    """Have the code of the apps watched: also what only the workers import, and modules that come later."""
    for config in apps.app_configs.values():  # as far as they have been imported
        if not any(part in INSTALLED for part in Path(config.path).parts):
            reloader.watch_dir(config.path, "**/*.py")


def _is_to_reload(argv: list[str]) -> bool:
    if argv[1:2] != ["runworkers"] or is_child() or {"--no-reload", "--burst"}.intersection(argv):
        return False
    return "--reload" in argv or bool(settings.DEBUG)


def _shown(show: Any, kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    show(kind, error, traceback)
    if not issubclass(kind, Exception):
        return
    try:
        path = _change_after(error)
    except KeyboardInterrupt:
        return
    reload_log.starts_again(path)
    arguments = [str(argument) for argument in autoreload.get_child_arguments()]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(arguments[0], arguments)


def _change_after(error: BaseException) -> Path:
    """Return the first file that changes; the one that raised the error is watched, though it is no module."""

    def fail() -> None:
        raise error

    try:
        autoreload.check_errors(fail)()
    except Exception:
        pass  # it keeps the name of the file
    changed: list[Path] = []

    def note(file_path: Path, **kwargs: Any) -> bool:
        changed.append(file_path)
        return True  # else Django would end this process

    reloader = autoreload.get_reloader()
    watch_apps(reloader)
    autoreload.file_changed.connect(note)
    ticker = reloader.tick()  # each step looks at all files, and takes about a second
    next(ticker)
    reload_log.waits_at_start()
    while not changed:
        next(ticker)
    return changed[0]
