from __future__ import annotations

import signal
import sys
from typing import Any

from django_jobs import notify
from django_jobs.conf import conf
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import ConfigurationError
from django_jobs.management.given import Checked, refuse, show_log
from django_jobs.queue import told
from django_jobs.schedules import log as schedule_log
from django_jobs.tasks import discovery
from django_jobs.workers import teller
from django_jobs.workers.connections import configure_connections
from django_jobs.workers.doorbell import Doorbell
from django_jobs.workers.outage import Outage
from django_jobs.workers.scheduler import Scheduler

LOOK_SECONDS = 1.0
# What a look at the schedules may take to end once it is told to.
END_SECONDS = 5.0
CLEAN, DATABASE_AWAY = 0, 4


class Command(Checked):
    help = (
        "Make the jobs of schedules until told to stop (TERM or INT). Any number may run; `runworkers` does it as well."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        show_log(options["verbosity"])
        discovery.know_loaded()
        try:
            found = Scheduler(engine(jobs_alias()), conf(), Outage("scheduler", conf().lease))
            configure_connections("scheduler", conf().lease)
        except ConfigurationError as error:
            refuse(str(error))
        code = _run(found)
        if code:
            sys.exit(code)


@notify.for_workers()
def _run(scheduler: Scheduler) -> int:
    # A pipe and no event, whose lock the handler might find taken by the very thread that it interrupts.
    bell, beside = Doorbell(), teller.Teller()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: bell.ring())
    told.post_by(beside.put)
    scheduler.start()
    while not bell.wait(LOOK_SECONDS):
        if scheduler.refused:
            refuse(scheduler.refused)
        scheduler.revive()
    scheduler.end(END_SECONDS)
    beside.end(teller.END_SECONDS)
    code = DATABASE_AWAY if scheduler.cut_off else CLEAN
    schedule_log.scheduler_ended(code)
    return code
