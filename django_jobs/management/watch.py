"""Showing again and again how things are, until Ctrl-C."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable

from django.core.management.base import OutputWrapper
from django.db import DatabaseError, InterfaceError, connections

from django_jobs.engines import jobs_alias
from django_jobs.management import remedy, text
from django_jobs.management.acts import Answer

HOME, REST_OF_LINE, REST_OF_SCREEN, CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"


def watch(look: Callable[[], Answer], seconds: float, out: OutputWrapper, as_json: bool) -> None:
    """Show what `look` finds every so many seconds: in place on a terminal, in blocks, or as a line of JSON each time.

    It returns on Ctrl-C, or when nobody reads any more. A database that is away is said, and looked for again.
    """
    pause = threading.Event()
    show = _as_json if as_json else _on_terminal if out.isatty() else _in_blocks
    try:
        if show is _on_terminal:
            out.write(CLEAR, ending="")
        while True:
            show(_looked(look), seconds, out)
            out.flush()
            pause.wait(seconds)
    except KeyboardInterrupt:
        if show is _on_terminal:
            out.write("")
    except BrokenPipeError:
        pass


def _looked(look: Callable[[], Answer]) -> Answer:
    try:
        return look()
    except (DatabaseError, InterfaceError) as error:
        said = remedy.one_line(error)
        connections[jobs_alias()].close()
        return Answer({"error": said}, [said])


def _as_json(found: Answer, seconds: float, out: OutputWrapper) -> None:
    out.write(json.dumps(found.data, ensure_ascii=False))


def _in_blocks(found: Answer, seconds: float, out: OutputWrapper) -> None:
    out.write("\n".join([*found.lines, ""]))


def _on_terminal(found: Answer, seconds: float, out: OutputWrapper) -> None:
    width, height = shutil.get_terminal_size()
    lines = [f"Every {seconds:g} s; Ctrl-C ends.", "", *found.lines]
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more lines; make the window higher."]
    drawn = "".join(f"{text.plain(line)[:width]}{REST_OF_LINE}\n" for line in lines)
    out.write(HOME + drawn + REST_OF_SCREEN, ending="")
