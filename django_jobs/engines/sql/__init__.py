"""The statements of the PostgreSQL engine, one to a file."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_PARAMETER = re.compile(r"%\((\w+)\)s")


@cache
def statement(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.sql").read_text()


@cache
def numbered(name: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement as the server takes it, with $1, $2, ... for its parameters, and the names of those in order."""
    text = statement(name)
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text).encode(), names
