from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from django_jobs import report, report_schedules
from django_jobs.doctor.examine import examine
from django_jobs.exceptions import ConfigurationError, JobDoesNotExist, StateConflict
from django_jobs.management import acts, adopting, checking, given, remedy, text, text_schedules
from django_jobs.management.acts import Answer
from django_jobs.management.watch import watch
from django_jobs.models import Job
from django_jobs.monitoring.levels import Level
from django_jobs.schedules.status import STATES

LONGEST_LIST = 10_000
# What only the list is narrowed by: most of it is found by reading one row after the other.
NARROWED = [
    ("--priority", "N", "only those of this priority"),
    ("--schedule", "NAME", "only those of this schedule"),
    ("--tag", "TAG", "only those that have this tag"),
    ("--error", "TEXT", "only those whose last error contains this, in any case"),
    ("--argument", "PATH=VALUE", "only those called with this, as args.0=5 or kwargs.customer.id=7"),
    (
        "--since",
        "TIME",
        "only those that ended, started or, without a status, were made then or later: a time, or 30m, 12h, 7d ago",
    ),
    ("--until", "TIME", "only those before"),
]
MOST_SHOWN = 100


class Command(given.Checked):
    _is_check = False
    help = "Look at jobs and act on them; `jobs VERB --help` says more."

    def run_from_argv(self, argv: list[str]) -> None:
        self._is_check = "check" in argv[2:]
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        if self._is_check:
            checking.tell_of_wrong_options(parser)
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        add: Callable[..., CommandParser] = verbs.add_parser
        found = [
            _status(add("status", help="queues, pauses, finished counts and workers")),
            _list(add("list", help="the newest jobs")),
            _show(add("show", help="the whole story of one job")),
            _on_jobs(add("requeue", help="have jobs that ended run again (by filter: dead and failed ones)"), why=True),
            _on_jobs(add("cancel", help="end jobs that wait, ask those that run to stop"), why=True),
            _purge(add("purge", help="delete finished jobs for good")),
            _archive(
                add("archive", help="take old jobs out of the table of jobs now, and drop what was archived long ago")
            ),
            _pause(add("pause", help="start no job of a queue or a type for a while, or make none of a schedule")),
            _pausable(add("resume", help="go on with a paused queue, type or schedule")),
            _schedules(add("schedules", help="when schedules fire next, and how they are doing")),
            checking.options(
                add("check", help="whether something is wrong, as a line and an exit code for monitoring")
            ),
            add("doctor", help="what is wrong, and what to do about it; exit code 1 if something is wrong"),
            adopting.options(add("adopt", help="make this database, a copy of another one's, that of this DEPLOYMENT")),
            _run(add("run", help="make a job of a schedule now; its slots stay where they are")),
            _import_beat(add("import-beat", help="make schedules of the rows of django-celery-beat")),
        ]
        for verb in found:
            verb.add_argument("--json", action="store_true", help="as JSON")

    def execute(self, *args: Any, **options: Any) -> str | None:
        if options.get("verb") != "check":
            return super().execute(*args, **options)
        try:
            super().execute(*args, **options)
        except Exception as error:  # whatever it is: any other exit code would be taken for an answer
            self.stdout.write(checking.unknown(error, options["json"]))
            raise SystemExit(int(Level.UNKNOWN)) from error
        return None

    def handle(self, *args: Any, **options: Any) -> None:
        if options.get("watch") is not None:
            watch(lambda: self._status(options), given.pace(options["watch"]), self.stdout, options["json"])
            return
        if options["verb"] == "check":
            raise SystemExit(checking.run(options, self.stdout.write))
        try:
            verb = options["verb"].replace("-", "_")
            answer = getattr(self, f"_{verb}", None)
            found = answer(options) if answer else getattr(acts, verb)(options, self.stderr.write)
        except (ConfigurationError, JobDoesNotExist, StateConflict) as error:
            raise CommandError(str(error), returncode=2) from error
        except (DatabaseError, InterfaceError) as error:
            raise CommandError(remedy.one_line(error), returncode=2) from error
        as_json = json.dumps(found.data, indent=2, ensure_ascii=False) if options["json"] else None
        self.stdout.write("\n".join(found.lines) if as_json is None else as_json)
        if options["verb"] == "doctor" and not all(row["is_note"] for row in found.data):
            raise SystemExit(1)
        if found.refused:
            raise CommandError(
                f"{found.refused} {found.what} were left as they are, for the reasons above.", returncode=1
            )

    def _adopt(self, options: dict[str, Any]) -> Answer:
        return adopting.adopt(options, self.stderr.write)

    def _status(self, options: dict[str, Any]) -> Answer:
        state = report.status()
        return Answer(state, text.status(state))

    def _doctor(self, options: dict[str, Any]) -> Answer:
        found = examine()
        return Answer([asdict(finding) for finding in found], text.findings(found))

    def _list(self, options: dict[str, Any]) -> Answer:
        limit = given.whole(options["limit"], "a limit", LONGEST_LIST)
        status = given.state(options["status"], Job.Status.values)
        rows = report.jobs(given.sought(options), status=status, limit=limit + 1)
        lines = text.listing(rows[:limit])
        if len(rows) > limit:
            lines.append(f"There are more: these are the {limit} newest. Narrow it, or give --limit.")
        return Answer(rows[:limit], lines)

    def _schedules(self, options: dict[str, Any]) -> Answer:
        count = given.whole(options["next"], "a number of slots (--next)", MOST_SHOWN)
        shown_in = given.time_zone(options["tz"])
        limit = LONGEST_LIST // count
        rows = report_schedules.schedules(
            ids=[found.pk for found in given.schedules(options["names"])] if options["names"] else None,
            state=given.state(options["state"], STATES, "--state"),
            count=count,
            shown_in=shown_in,
            limit=limit + 1,
        )
        lines = text_schedules.schedules(rows[:limit], options["tz"], report_schedules.only_in_code())
        if len(rows) > limit:
            lines.append(f"There are more: these are the first {limit}. Name those that you want, or give --state.")
        return Answer(rows[:limit], lines)

    def _show(self, options: dict[str, Any]) -> Answer:
        story = report.story(report.job(given.job_id(options["id"])))
        return Answer(story, text.story(story))


def _status(parser: CommandParser) -> CommandParser:
    parser.add_argument(
        "--watch",
        nargs="?",
        const="2",
        action=given.Once,
        metavar="SECONDS",
        help="show it again every so many seconds (default: 2), until Ctrl-C",
    )
    return parser


def _list(parser: CommandParser) -> CommandParser:
    _filter(parser, "ready, running, done, failed, dead or cancelled")
    for name, metavar, words in NARROWED:
        parser.add_argument(name, metavar=metavar, action=given.Once, help=words)
    parser.add_argument("--limit", default="20", metavar="N", help="at most so many (default: 20)")
    return parser


def _show(parser: CommandParser) -> CommandParser:
    parser.add_argument("id", help="as `jobs list` shows it")
    return parser


def _on_jobs(parser: CommandParser, *, why: bool = False) -> CommandParser:
    parser.add_argument("ids", nargs="*", metavar="ID", help="as `jobs list` shows it")
    _filter(parser, "only those in this state")
    parser.add_argument("--limit", metavar="N", help="at most so many, in the order of their ids")
    if why:
        parser.add_argument("--why", default="", metavar="TEXT", help="is kept with the job")
    return parser


def _purge(parser: CommandParser) -> CommandParser:
    _on_jobs(parser)
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        action=given.Once,
        help="only those that ended before: seconds, or as 30m, 12h, 7d",
    )
    parser.add_argument("--with-keys", action="store_true", help="also those whose idempotency key still has to hold")
    parser.add_argument("--dry-run", action="store_true", help="count them and delete nothing")
    return parser


def _archive(parser: CommandParser) -> CommandParser:
    parser.add_argument("--dry-run", action="store_true", help="count them and do nothing; every row is looked at")
    parser.add_argument(
        "--no-pause", action="store_true", help="do not pause after each step, as when nothing else runs"
    )
    return parser


def _pause(parser: CommandParser) -> CommandParser:
    _pausable(parser)
    parser.add_argument("--until", metavar="TIME", action=given.Once, help="resume by itself then, as 2030-12-31T18:00")
    parser.add_argument(
        "--for", metavar="TIME", action=given.Once, help="resume by itself after so long, as 90, 30m, 12h"
    )
    parser.add_argument("--why", default="", metavar="TEXT", help="is shown to those who ask, or logged")
    parser.add_argument("--known", action="store_true", help="refuse a name that no code, worker, schedule or job has")
    return parser


def _pausable(parser: CommandParser) -> CommandParser:
    for name in ("--queue", "--type", "--schedule"):
        parser.add_argument(name, metavar="NAME", action=given.Once)
    return parser


def _schedules(parser: CommandParser) -> CommandParser:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--next", default="1", metavar="N", help="so many of the slots to come (default: 1)")
    parser.add_argument(
        "--tz", metavar="ZONE", action=given.Once, help="show times in this zone, not in each one's own"
    )
    parser.add_argument("--state", metavar="STATE", action=given.Once, help=", ".join(STATES))
    return parser


def _run(parser: CommandParser) -> CommandParser:
    parser.add_argument("schedule", metavar="SCHEDULE", help="its name, as `jobs schedules` shows it")
    parser.add_argument("--why", default="", metavar="TEXT", help="is logged")
    return parser


def _import_beat(parser: CommandParser) -> CommandParser:
    parser.add_argument(
        "--map",
        metavar="OLD=NEW",
        action="append",
        default=[],
        help="the job type for a task, as shop.tasks.send=shop.jobs.send, or for many, as shop.tasks.*=shop.jobs.*",
    )
    parser.add_argument("--lower-first", action="store_true", help="a lower priority is the more urgent, as with Redis")
    parser.add_argument("--dry-run", action="store_true", help="say what would be made and make nothing")
    return parser


def _filter(parser: CommandParser, states: str) -> None:
    parser.add_argument("--status", metavar="STATE", action=given.Once, help=states)
    parser.add_argument("--queue", metavar="NAME", action=given.Once, help="only those of this queue")
    parser.add_argument("--type", metavar="NAME", action=given.Once, help="only those of this type")
