"""Arguments and return values as Tasks have them: what JSON has no word for becomes what it comes back as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_jobs.exceptions import InvalidJob
from django_jobs.payload import DEPTH_LIMIT

# What the type of a task, and each of its jobs, has in `meta`.
META = "task"


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value with lists for sequences, dicts for mappings and text for bytes, as the framework says.

    What else is no JSON stays as it is, and so does what is nested too deep: whoever stores it names the place and the remedy.
    """
    if value is None or isinstance(value, str | int | float) or depth > DEPTH_LIMIT:
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidJob(f"bytes that are not UTF-8 ({error}); pass base64.b64encode(value).decode().") from None
    if isinstance(value, Mapping):
        return {plain(key, depth + 1): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytearray | memoryview):
        return [plain(item, depth + 1) for item in value]
    return value
