"""Calling async handlers from an executor's thread, whose connections their ORM calls use."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync


def run_async(
    function: Callable[..., Awaitable[Any]], arguments: list[Any], keywords: dict[str, Any], begun: Callable[[], None]
) -> Any:
    """Run an async function to its end, in a loop of its own; `begun` is called in its task before it."""
    return async_to_sync(_run)(function, arguments, keywords, begun)


async def _run(
    function: Callable[..., Awaitable[Any]], arguments: list[Any], keywords: dict[str, Any], begun: Callable[[], None]
) -> Any:
    pid = os.getpid()
    try:
        begun()
        return await function(*arguments, **keywords)
    finally:
        if os.getpid() != pid:
            os._exit(0)  # the handler forked, and this is the copy of the loop's thread
