"""Tasks as the documentation of Django has them, and others that end in each way."""

from __future__ import annotations

import json
import logging
import os
import signal
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import django
from django.contrib.auth.models import Group
from django.core.mail import send_mail
from django.db import router

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
    from django.tasks.signals import task_finished, task_started
else:
    from django_tasks import task
    from django_tasks.signals import task_finished, task_started

logger = logging.getLogger(__name__)


# The documentation's examples, as they are there.


@task
def email_users(emails: list[str], subject: str, message: str) -> int:
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)


@task(priority=2, queue_name="emails")
def email_users_soon(emails: list[str], subject: str, message: str) -> int:
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)


@task(takes_context=True)
def email_users_with_context(context: Any, emails: list[str], subject: str, message: str) -> int:
    logger.debug(f"Attempt {context.attempt} to send user email. Task result id: {context.task_result.id}.")
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)


@task()
def double_dictionary(key: Any) -> Any:
    return {key: key * 2}


@task
def process_data(data: Any) -> None: ...


@task
def my_task(thing_num: int) -> str:
    return Group.objects.using(router.db_for_write(Group)).get(name=str(thing_num)).name


# Others.


@task
def calculate_meaning_of_life() -> int:
    return 42


@task
async def calculate_slowly() -> int:
    return 42


@task(takes_context=True)
async def async_with_context(context: Any, word: str) -> list[Any]:
    return [word, context.attempt]


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task(takes_context=True)
def seen_from_inside(context: Any, word: str) -> dict[str, Any]:
    result = context.task_result
    return {
        "word": word,
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "args": result.args,
        "path": result.task.module_path,
        "queue": result.task.queue_name,
        "priority": result.task.priority,
        "backend": result.backend,
        "started": result.started_at is not None and result.last_attempted_at is not None,
        "workers": len(result.worker_ids),
        "is_finished": result.is_finished,
    }


class Unlucky(Exception):
    """As those of a project."""


@task
def fail(said: str) -> None:
    raise Unlucky(said)


@task
def fail_with_value_error() -> None:
    raise ValueError("This task failed")


@task
def leave() -> None:
    raise SystemExit(3)


@task(takes_context=True)
def fail_at_first(context: Any) -> int:
    if context.attempt == 1:
        raise Unlucky("at first")
    return int(context.attempt)


@task
def return_no_json() -> datetime:
    return datetime(2026, 1, 1)


@task
def return_tuple() -> Any:
    return 1, [b"bytes", {"key": (None, 2.5)}]


@task
def wait_for(path: str) -> str:
    while not Path(path).exists():
        Event().wait(0.005)
    return "seen"


@task(takes_context=True)
def kill_its_worker_at_first(context: Any) -> int:
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(context.attempt)


@task
def append(path: str, word: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{word}\n")


# The worker's process tells of its signals in a file, if it is asked to by an argument.


def tell(name: str, sender: type, task_result: Any) -> None:
    path = task_result.kwargs.get("told_in")
    if path is not None:
        said = [
            name,
            f"{sender.__module__}.{sender.__qualname__}",
            task_result.id,
            str(task_result.status),
            os.getpid(),
        ]
        with Path(path).open("a") as file:
            file.write(json.dumps(said) + "\n")


def tell_of_start(sender: type, task_result: Any, **kwargs: Any) -> None:
    tell("started", sender, task_result)


def tell_of_end(sender: type, task_result: Any, **kwargs: Any) -> None:
    tell("finished", sender, task_result)


task_started.connect(tell_of_start)
task_finished.connect(tell_of_end)


@task
def told(told_in: str, fails: bool = False) -> str:
    if fails:
        raise Unlucky("and told")
    return "told"
