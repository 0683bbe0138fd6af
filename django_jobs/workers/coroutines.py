"""Calling async handlers from an executor's thread, whose connections their ORM calls use."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync


def run_async(
    function: Callable[..., Awaitable[Any]], arguments: list[Any], keywords: dict[str, Any], begun: Callable[[], None]
) -> Any:
    """Run an async function to its end, in a loop of its own, and return or raise what it does.

    `begun` is called in its task before it.
    """
    value, error = async_to_sync(_ended)(function, arguments, keywords, begun)
    if error is not None:
        raise error
    return value


async def _ended(
    function: Callable[..., Awaitable[Any]], arguments: list[Any], keywords: dict[str, Any], begun: Callable[[], None]
) -> tuple[Any, BaseException | None]:
    # Errors travel as values: a loop takes those that are no Exception, SystemExit for one, as meant for itself.
    pid = os.getpid()
    try:
        begun()
        return await function(*arguments, **keywords), None
    except GeneratorExit:
        raise
    except BaseException as error:
        return None, error
    finally:
        if os.getpid() != pid:
            os._exit(0)  # the handler forked, and this is the copy of the loop's thread
