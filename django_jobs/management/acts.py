"""The verbs of `jobs` that change something: options in, one call, and what came of it as data and as lines."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from django_jobs import pausable, pauses, report
from django_jobs.engines import jobs_alias
from django_jobs.engines.archive import archive as archive_of
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.management import beat, given, text
from django_jobs.models import Job
from django_jobs.models.schedule import UNREADABLE
from django_jobs.queue import bulk, operate
from django_jobs.queue.archive import REST, Round
from django_jobs.schedules import holding, status

Say = Callable[[str], None]


class Answer(NamedTuple):
    """What a verb found or did. `refused`: how many jobs, or what it was about, it was refused for."""

    data: Any
    lines: list[str]
    refused: int = 0
    what: str = "jobs"


def requeue(options: dict[str, Any], say: Say) -> Answer:
    # By their ids any that ended; by what they are, the dead letters unless it is said otherwise.
    default = operate.FINISHED if options["ids"] else Job.DEAD_LETTERS
    chosen = given.choice(options, operate.FINISHED, default)
    return _tell(bulk.requeue(chosen, why=options["why"], by=who()), say, ("requeued",))


def cancel(options: dict[str, Any], say: Say) -> Answer:
    chosen = given.choice(options, operate.UNFINISHED, operate.UNFINISHED)
    return _tell(bulk.cancel(chosen, why=options["why"], by=who()), say, ("cancelled", "asked"))


def purge(options: dict[str, Any], say: Say) -> Answer:
    chosen = given.choice(options, (Job.Status.READY, *operate.FINISHED), operate.FINISHED)
    parts = bulk.purge(chosen, with_keys=options["with_keys"], dry_run=options["dry_run"], by=who())
    return _tell(parts, say, ("to be deleted" if options["dry_run"] else "deleted",))


def archive(options: dict[str, Any], say: Say) -> Answer:
    made = Round(archive_of(), rest=0.0 if options["no_pause"] else REST, dry_run=options["dry_run"])
    made.prepare()
    for pause in made.steps():
        threading.Event().wait(pause)
    came = made.came
    for job_id, why in came.reasons.items():
        say(f"Job {job_id} cannot be taken out of the table of jobs: {why}")
    for partition, why in came.in_use.items():
        say(f"The partition {partition} cannot be dropped now: {why}")
    data = {**asdict(came), "reasons": [{"id": job_id, "why": why} for job_id, why in came.reasons.items()]}
    return Answer(data, text.archived(came, options["dry_run"]), came.stuck)


def import_beat(options: dict[str, Any], say: Say) -> Answer:
    types = beat.mapping(options["map"])
    came = beat.bring(types, lower_first=options["lower_first"], dry_run=options["dry_run"])
    refused = [row for row in came if row.became == "refused"]
    for row in refused:
        say(f"{row.name}: {row.text}")
    lines = [f"{row.became:<10}  {row.name}  {row.text}" for row in came if row.became != "refused"]
    if options["dry_run"]:
        lines.append("Nothing was made, because of --dry-run.")
    return Answer([asdict(row) for row in came], lines, len(refused), "rows")


def _tell(parts: Iterable[bulk.Came], say: Say, names: tuple[str, ...]) -> Answer:
    """Count as it goes, and name each job for which it was refused."""
    total = bulk.Came(done=dict.fromkeys(names, 0))
    for number, part in enumerate(parts):
        for what, count in part.done.items():
            total.count(what, count)
        total.refused |= part.refused
        total.anew |= part.anew
        for why in part.refused.values():
            say(why)
        for job_id, again in part.anew.items():
            say(f"Job {job_id} is archived: it is requeued as the new job {again}, without an idempotency key.")
        if number % 10 == 9:
            say(_counts(total) + " so far")
    data = {
        **{what.replace(" ", "_"): count for what, count in total.done.items()},
        "refused": [{"id": job_id, "why": why} for job_id, why in total.refused.items()],
        **(
            {"as_new_jobs": [{"id": job_id, "as": again} for job_id, again in total.anew.items()]} if total.anew else {}
        ),
    }
    return Answer(data, [f"{_counts(total)}."], len(total.refused))


def _counts(total: bulk.Came) -> str:
    words = {"asked": "asked to stop"}
    said = [f"{count} {words.get(what, what)}" for what, count in total.done.items()]
    return ", ".join([*said, *([f"{len(total.refused)} refused"] if total.refused else [])])


def pause(options: dict[str, Any], say: Say) -> Answer:
    kind, name = _what(options)
    if kind == "schedule":
        return _pause_schedule(name, options)
    unknown = _unknown(kind, name)
    if unknown and options["known"]:
        given.refuse(f"{unknown} Nothing was paused.")
    try:
        row = pauses.pause(**{kind: name}, until=given.until(options), why=options["why"], by=who())
    except InvalidJob as error:
        given.refuse(str(error))
    if unknown:
        say(f"{unknown} It is paused all the same; `jobs resume --{kind} {name}` takes it back.")
    found = next((item for item in report.pauses() if (item["kind"], item["name"]) == (row.kind, row.name)), None)
    end = f"until {found['until']}" if found and found["until"] else "until it is resumed"
    return Answer(found, [f"The {row.kind} {row.name!r} is paused {end}. What runs goes on."])


def _pause_schedule(name: str, options: dict[str, Any]) -> Answer:
    for option in ("until", "for"):
        if options[option] is not None:
            given.refuse(
                f"--{option} is {options[option][:80]!r}; a schedule is paused until it is resumed: leave it out."
            )
    paused = given.schedule(name).pause(by=who(), why=options["why"])
    said = "is paused until it is resumed. Jobs that it made stay" if paused else "was paused already"
    return Answer({"kind": "schedule", "name": name, "paused": paused}, [f"The schedule {name!r} {said}."])


def resume(options: dict[str, Any], say: Say) -> Answer:
    kind, name = _what(options)
    if kind == "schedule":
        resumed = given.schedule(name).resume(by=who())
    else:
        resumed = pauses.resume(**{kind: name})
    said = "is resumed" if resumed else "was not paused"
    return Answer({"kind": kind, "name": name, "resumed": resumed}, [f"The {kind} {name!r} {said}."])


def run(options: dict[str, Any], say: Say) -> Answer:
    schedule = given.schedule(options["schedule"])
    try:
        job = schedule.run_now(by=who(), why=options["why"])
    except (InvalidJob, InvalidJobType) as error:
        given.refuse(str(error))
    except UNREADABLE as error:
        given.refuse(
            f"The schedule {schedule.name!r} is broken, so nothing was made: {status.unreadable(error).reason}"
        )
    held_by = holding.said(holding.holding(schedule, holding.pauses(jobs_alias())))
    waits = f" It waits: {held_by}." if held_by else ""
    return Answer(
        {"id": job.pk, "schedule": schedule.name, "held_by": held_by},
        [f"Job {job.pk} of the schedule {schedule.name!r} is made.{waits}"],
    )


def _what(options: dict[str, Any]) -> tuple[str, str]:
    """Return which kind of thing is named, and its name."""
    found = {
        "queue": given.queue(options["queue"]),
        "type": given.type_name(options["type"]),
        "schedule": options["schedule"],
    }
    named = [(kind, name) for kind, name in found.items() if name is not None]
    if len(named) != 1:
        given.refuse("Give one of --queue, --type and --schedule.")
    return named[0]


def _unknown(kind: str, name: str) -> str:
    """Return what is to be said of a name that nothing has; empty if something has it."""
    known = pausable.known()
    if name in known.of(kind):
        return ""
    what = "queue" if kind == "queue" else "job type"
    like = " or ".join(map(repr, known.like(kind, name)))
    meant = f"; did you mean {like}?" if like else "."
    return f"No {what} {name!r} is known to the code, a worker, a schedule or a job{meant}"


def who() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # no name for this user id, as in a container
        return ""
