"""From a job's history to the errors of a task: the class of what was raised, and what is left of its traceback.

Whole tracebacks are kept of the last run that failed, and of the others the line that names the class.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django_jobs.engines.causes import CALLED_OFF, DEADLINE, LOSSES, TOO_LATE
from django_jobs.exceptions import DeadlinePassed, JobsError
from django_jobs.outcomes import Cancel, Fail, Retry

# As `traceback.format_exception_only` writes it.
_NAMED = re.compile(r"(?:The run passed its deadline(?: of \S+ s)?: )?([^\W\d][\w.]*(?:<locals>[\w.]+)?)(?::|$)")
_OUTCOMES = {"retry": Retry, "cancelled": Cancel, CALLED_OFF: Cancel, TOO_LATE: Cancel}


class ErrorText(NamedTuple):
    path: str
    text: str


def class_path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def errors(history: Sequence[Any], last_error: str) -> list[ErrorText]:
    """Return the errors of a job's runs, oldest first; what people did, and runs that were only cut short, are none."""
    entries = [entry for entry in history if isinstance(entry, Mapping) and _is_error(entry)]
    found = [of_entry(entry, str(entry.get("error", ""))) for entry in entries]
    if entries and last_error and not _is_outcome(entries[-1]):
        found[-1] = of_entry(entries[-1], last_error)
    return found


def _is_error(entry: Mapping[str, Any]) -> bool:
    cause = entry.get("cause")
    return cause in ("raised", "failed", DEADLINE, *LOSSES) or cause in _OUTCOMES


def _is_outcome(entry: Mapping[str, Any]) -> bool:
    return entry.get("cause") in _OUTCOMES


def of_entry(entry: Mapping[str, Any], text: str) -> ErrorText:
    """Return the error of a line of the history, with a text that says more of it."""
    return ErrorText(_path(str(entry.get("cause")), str(entry.get("error", "")), text), text)


def _path(cause: str, line: str, text: str) -> str:
    if cause in _OUTCOMES:
        return class_path(_OUTCOMES[cause])
    # An outcome has nothing but its reason.
    if cause == "failed" and line == text:
        return class_path(Fail)
    named = _NAMED.match(line)
    if named is not None and (found := _whole(named.group(1))):
        return found
    return class_path(DeadlinePassed if cause == DEADLINE else JobsError)


def _whole(name: str) -> str | None:
    if "." in name:
        return name
    kind = getattr(builtins, name, None)
    return f"builtins.{name}" if isinstance(kind, type) and issubclass(kind, BaseException) else None
