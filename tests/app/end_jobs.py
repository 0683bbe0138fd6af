"""One handler, in a plain and in an async form, that ends in every way in which a handler can end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import connections

from django_jobs import Backoff, Cancel, Context, Fail, Retry, Snooze, job
from tests import router

BACKOFF = Backoff(base=40, factor=1, cap=40)


def outcome(how: str) -> Any:
    return {"Retry": Retry(50, "asked"), "Snooze": Snooze(60), "Fail": Fail("no use"), "Cancel": Cancel("not wanted")}[
        how
    ]


def raised(how: str) -> BaseException:
    errors: dict[str, BaseException] = {
        "raised": RuntimeError("it failed"),
        "SystemExit": SystemExit(3),
        "fail_on": ValidationError("never"),
        "fail_on and retry_on": FileNotFoundError("never"),
        "not in retry_on": KeyError("unexpected"),
    }
    return errors[how] if how in errors else outcome(how)


def cut_connection() -> None:
    """Have the server end the session of the very statement that runs."""
    with connections[router.jobs_alias].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@job(
    takes_context=True,
    backoff=BACKOFF,
    retry_on=(RuntimeError, OSError, SystemExit),
    fail_on=(ValidationError, FileNotFoundError),
)
def end_as(context: Context, how: str, given: str) -> Any:
    match given, how:
        case "returned", "result":
            return 5
        case "returned", _:
            return outcome(how)
        case "passed", _:
            while not context.should_stop:
                time.sleep(0.01)
            raise RuntimeError("stopped too late")
        case "cut", _:
            return cut_connection()
    raise raised(how)


@job(
    takes_context=True,
    backoff=BACKOFF,
    retry_on=(RuntimeError, OSError, SystemExit),
    fail_on=(ValidationError, FileNotFoundError),
)
async def aend_as(context: Context, how: str, given: str) -> Any:
    match given, how:
        case "returned", "result":
            return 5
        case "returned", _:
            return outcome(how)
        case "passed", _:
            await asyncio.sleep(60)
        case "cut", _:
            return await sync_to_async(cut_connection)()
    raise raised(how)
