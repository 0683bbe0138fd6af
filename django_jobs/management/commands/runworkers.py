from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentTypeError
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_jobs import log, registry
from django_jobs.conf import conf, queue_name
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import ConfigurationError
from django_jobs.workers.supervisor import USAGE, Supervisor
from django_jobs.workers.worker import Plan


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 1000:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return number


def _queues(text: str) -> tuple[str, ...]:
    try:
        return tuple(queue_name(name) for name in text.split(","))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


class Command(BaseCommand):
    help = "Run jobs until told to stop (TERM or INT; a second one ends the grace)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", type=_queues, help="serve only these queues: a,b (default: QUEUES, or all)")
        parser.add_argument("--processes", type=_count, help="worker processes (default: PROCESSES)")
        parser.add_argument("--threads", type=_count, help="threads in each process (default: THREADS)")
        parser.add_argument("--burst", action="store_true", help="end when nothing is due; later retries stay")

    def handle(self, *args: Any, **options: Any) -> None:
        if not hasattr(os, "fork"):
            raise CommandError("runworkers needs a system that can fork, such as Linux.", returncode=USAGE)
        _show_log(options["verbosity"])
        try:
            code = Supervisor(_plan(options)).run()
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=USAGE) from error
        if code:
            sys.exit(code)


def _plan(options: dict[str, Any]) -> Plan:
    settings = conf()
    settings = replace(
        settings,
        processes=options["processes"] or settings.processes,
        threads=options["threads"] or settings.threads,
    )
    queues = options["queues"] or settings.queues
    for name in queues or ():
        if name not in registry.queues():
            log.queue_without_type(name)
    alias = jobs_alias()
    engine(alias)
    return Plan(
        alias=alias,
        settings=settings,
        queues=queues,
        types=tuple(registry.names()),
        supervisor_pid=os.getpid(),
        burst=options["burst"],
    )


def _show_log(verbosity: int) -> None:
    """Show our log lines on stderr unless the project says where they go."""
    if log.logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log.logger.addHandler(handler)
    log.logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
