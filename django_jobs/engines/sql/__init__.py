"""The statements of the PostgreSQL engine, one to a file."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def statement(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.sql").read_text()
