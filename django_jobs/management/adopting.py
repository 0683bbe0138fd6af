"""`jobs adopt`: makes the jobs' database that of this deployment, after it has said what waits in it."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Count
from django.db.models.functions import Now

from django_jobs import deployment
from django_jobs.conf import conf
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import StateConflict
from django_jobs.management.acts import Answer, Say, who
from django_jobs.management.given import agreed, refuse
from django_jobs.models import Job, Schedule, ScheduleState, Worker
from django_jobs.queue import bulk, operate
from django_jobs.queue.choose import Choice

WHY = "it was left over when the database was adopted"
TYPES_NAMED = 10


def options(parser: CommandParser) -> CommandParser:
    parser.add_argument("--cancel", action="store_true", help="cancel what waits, and what ran when it was copied")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def adopt(options: dict[str, Any], say: Say) -> Answer:
    found, ours = engine(jobs_alias()), conf().deployment
    before = deployment.stored(found)
    if before.name == (ours or "") and not options["cancel"]:
        return Answer({"deployment": ours, "instance": before.instance}, [f"The database is {_whose(ours)} already."])
    _refuse_if_in_use(before)
    data: dict[str, Any] = {"was": before.name or None, "deployment": ours, **_waiting()}
    if not options["yes"]:
        _ask(options, say, before, data)
    lines = []
    if options["cancel"]:
        data |= _cancelled(say)
        lines = [f"{data['cancelled']} cancelled, {data['asked']} to be when their lease has run out."]
        if data["refused"]:
            return Answer(data, [*lines, "The database is not adopted: some could not be cancelled."], data["refused"])
        # No job is made for what they had still to run then, nor for the slots since.
        ScheduleState.objects.using(jobs_alias()).filter(schedule__enabled=True).begin_anew()
    data["instance"] = deployment.adopt(found, ours, who()).instance
    return Answer(data, [*lines, f"The database is {_whose(ours)} from now on."])


def _whose(name: str | None) -> str:
    return "nobody's (DEPLOYMENT is not set)" if name is None else f"that of the deployment {name!r}"


def _refuse_if_in_use(before: deployment.Stored) -> None:
    """What somebody works on is the original, and no copy: its workers would all stop."""
    rows = Worker.objects.using(jobs_alias()).filter(heartbeat_at__gt=Now() - timedelta(seconds=conf().lease))
    living = [str(row) for row in rows.only("host", "pid").order_by("host", "pid")[:3]]
    if living:
        raise StateConflict(
            f"Workers of {_whose(before.name or None)} are at work in this database ({', '.join(living)}), so it is no copy that "
            "was left to itself. Is it the one you mean? If so, stop them first."
        )


def _waiting() -> dict[str, Any]:
    jobs = Job.objects.using(jobs_alias())
    ready = (
        jobs.filter(status=Job.Status.READY)
        .values_list("type")
        .annotate(number=Count("pk"))
        .order_by("-number", "type")
    )
    return {
        "waiting": dict(ready),
        "running": jobs.filter(status=Job.Status.RUNNING).count(),
        "schedules": Schedule.objects.using(jobs_alias()).filter(enabled=True).count(),
    }


def _ask(options: dict[str, Any], say: Say, before: deployment.Stored, data: dict[str, Any]) -> None:
    ours, waiting = data["deployment"], data["waiting"]
    say(f"This database is {_whose(before.name or None)}, and is to be {_whose(ours)}. There are in it:")
    say(f"  {sum(waiting.values())} jobs that wait")
    for name, number in list(waiting.items())[:TYPES_NAMED]:
        say(f"    {number} {name}")
    if len(waiting) > TYPES_NAMED:
        say(f"    and those of {len(waiting) - TYPES_NAMED} more types")
    say(f"  {data['running']} jobs that ran when it was copied, and would run again")
    say(f"  {data['schedules']} schedules that are enabled (`jobs pause --schedule NAME`)")
    if options["cancel"]:
        say("The jobs are cancelled, and the schedules begin anew.")
    else:
        say("Your workers will run them; with --cancel they are cancelled instead.")
    if options["json"] or not sys.stdin.isatty():
        refuse("Nothing was done: there is nobody to be asked. Give --yes if that is what you want.")
    if not agreed("Adopt it?", say):
        refuse("Nothing was done.")


def _cancelled(say: Say) -> dict[str, int]:
    total = {"cancelled": 0, "asked": 0, "refused": 0}
    for part in bulk.cancel(Choice(states=operate.UNFINISHED), why=WHY, by=who()):
        for what, count in part.done.items():
            total[what] += count
        total["refused"] += len(part.refused)
        for why in part.refused.values():
            say(why)
    return total
