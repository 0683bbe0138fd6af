"""Jobs that log, what the tests have around each run, and receivers in the processes of a tree."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from asgiref.sync import sync_to_async
from django.dispatch import receiver

from django_jobs import Context, job
from django_jobs.models import Job
from django_jobs.signals import job_retrying, job_started, schedule_fired

logger = logging.getLogger("tests.around")


@contextmanager
def say(context: Context) -> Iterator[None]:
    logger.info("around %s %s", context.queue, context.arguments)
    yield
    logger.info("left")


@job
async def talk(word: str) -> None:
    logger.info("%s", word)
    await asyncio.to_thread(logger.info, "%s in a thread", word)
    await sync_to_async(logger.info)("%s with an extra", word, extra={"queue": "mine"})


@job(takes_context=True)
def die_once(context: Context, after: int) -> None:
    """End the process in the first run, when another job is done."""
    while context.run == 1:
        if Job.objects.get(pk=after).status == Job.Status.DONE:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)


if "DJANGO_JOBS_TEST_LOGGING" in os.environ:

    @receiver(job_started)
    def _say_started(sender: object, **said: object) -> None:
        logger.info("started")

    @receiver(job_retrying)
    def _say_lost(sender: object, cause: str, **said: object) -> None:
        logging.getLogger("tests").warning("told that it %s", cause)


if "DJANGO_JOBS_TEST_STUCK_RECEIVER" in os.environ:

    @receiver(schedule_fired)
    def _hang(sender: object, **said: object) -> None:
        logger.warning("hears of a slot")
        threading.Event().wait()
