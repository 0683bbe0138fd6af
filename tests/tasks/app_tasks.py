"""Tasks with the options of jobs. Those of `by_path` are in tests/settings.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django

from django_jobs import Retry
from tests.app.models import Effect

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

with_own_options = django.VERSION >= (6, 1) or django.VERSION < (6, 0)


class Broken(Exception):
    """As those of a project."""


@task
def nothing(*args: Any, **kwargs: Any) -> None: ...


@task
def by_path() -> None: ...


@task
def send(address: str, password: str) -> str:
    return address


@task
def leave_effect(key: str, alias: str) -> str:
    Effect.objects.using(alias).create(key=key, run=1, pid=1)
    raise Broken(key)


@task
def ask_to_be_tried_again() -> None:
    raise Retry(delay=0, reason="not yet")


@task
def raise_broken(said: str = "said") -> None:
    raise Broken(said)


@task
def raise_what_nobody_can_import() -> None:
    class Hidden(Exception):
        pass

    raise Hidden("inside")


@task
def return_no_text() -> bytes:
    return b"\xff"


@task
async def asynchronous() -> None: ...


@task
async def raise_asynchronously() -> None:
    raise Broken("in a coroutine")
