from __future__ import annotations

import os
import sys
from argparse import BooleanOptionalAction
from dataclasses import replace
from typing import Any

from django.conf import settings as project
from django.core.management.base import CommandParser

from django_jobs import log, registry
from django_jobs.conf import conf, queue_name, worker_count
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import ConfigurationError
from django_jobs.management.given import Checked, refuse, show_log
from django_jobs.tasks import discovery
from django_jobs.workers import broken_start
from django_jobs.workers.plan import Plan


def _count(given: str | int | None, option: str, default: int) -> int:
    if given is None:
        return default
    try:
        text = str(given)
        return worker_count(int(text[:20]) if text.isascii() and text.isdecimal() else given)
    except ValueError as error:
        raise ConfigurationError(f"{option} is {given!r}; {error}.") from None


def _queues(given: str | None, default: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if given is None:
        return default
    try:
        return tuple(queue_name(name) for name in given.split(","))
    except ValueError as error:
        raise ConfigurationError(f"--queues: {error}.") from None


class Command(Checked):
    help = "Run jobs until told to stop (TERM or INT; a second one ends the grace)."

    _from_command_line = False

    def run_from_argv(self, argv: list[str]) -> None:
        self._from_command_line = True
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", help="serve only these queues: a,b (default: QUEUES, or all)")
        parser.add_argument("--processes", help="worker processes (default: PROCESSES)")
        parser.add_argument("--threads", help="threads in each process (default: THREADS)")
        parser.add_argument("--no-scheduler", action="store_true", help="leave schedules to `runscheduler` or others")
        parser.add_argument(
            "--reload",
            action=BooleanOptionalAction,
            help="start the workers again when code changes (default: with DEBUG, unless --burst is given)",
        )
        parser.add_argument("--burst", action="store_true", help="end when nothing is due; later retries stay")

    def handle(self, *args: Any, **options: Any) -> None:
        broken_start.is_over()
        if not hasattr(os, "fork"):
            refuse("runworkers needs a system that can fork, such as Linux.")
        from django_jobs.workers import reloading  # cannot be imported where there is no fork
        from django_jobs.workers.supervisor import Supervisor

        show_log(options["verbosity"])
        try:
            plan = _plan(options)
            if self._is_to_reload(options):
                sys.exit(reloading.run())
            _warn_of_queues(plan)
            code = Supervisor(plan).run()
        except ConfigurationError as error:
            refuse(str(error))
        if code:
            sys.exit(code)

    def _is_to_reload(self, options: dict[str, Any]) -> bool:
        from django_jobs.workers import reloading

        if options["reload"] and options["burst"]:
            raise ConfigurationError("--burst ends when nothing is due, and --reload never does: give one of them.")
        if reloading.is_watched():
            return False
        wanted: bool | None = options["reload"]
        # What is started again is the command line: there is none of ours where code calls the command.
        return project.DEBUG and not options["burst"] and self._from_command_line if wanted is None else wanted


def _warn_of_queues(plan: Plan) -> None:
    for name in plan.queues or ():
        if name not in registry.queues():
            log.queue_without_type(name)


def _plan(options: dict[str, Any]) -> Plan:
    discovery.know_loaded()
    settings = conf()
    settings = replace(
        settings,
        processes=_count(options["processes"], "--processes", settings.processes),
        threads=_count(options["threads"], "--threads", settings.threads),
    )
    queues = _queues(options["queues"], settings.queues)
    alias = jobs_alias()
    engine(alias)
    return Plan(
        alias=alias,
        settings=settings,
        queues=queues,
        types=tuple(registry.names()),
        supervisor_pid=os.getpid(),
        burst=options["burst"],
        schedule=not options["no_scheduler"],
    )
