from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, ProgrammingError

from django_jobs import report
from django_jobs.exceptions import ConfigurationError, JobDoesNotExist
from django_jobs.management import text
from django_jobs.models import Job


def _whole(value: str, what: str, high: int) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:20]) <= high):
        raise CommandError(f"{value!r} is not {what}: give a whole number from 1 to {high}.", returncode=2)
    return int(value)


class Command(BaseCommand):
    help = "Look at jobs: `jobs status`, `jobs list`, `jobs show ID`."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        status = verbs.add_parser("status", help="queues, finished counts and workers")
        listing = verbs.add_parser("list", help="the newest jobs")
        listing.add_argument("--status", choices=Job.Status.values)
        listing.add_argument("--queue")
        listing.add_argument("--type")
        listing.add_argument("--limit", default="20", help="at most so many (default: 20)")
        show = verbs.add_parser("show", help="the whole story of one job")
        show.add_argument("id", help="as `jobs list` shows it")
        for verb in (status, listing, show):
            verb.add_argument("--json", action="store_true", help="as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found, lines = self._answer(options)
        except (ConfigurationError, JobDoesNotExist) as error:
            raise CommandError(str(error), returncode=2) from error
        except (OperationalError, ProgrammingError) as error:
            said = str(error).strip().split("\n")[0]
            raise CommandError(
                f"The jobs' database cannot be asked ({said}); is it there, and was `manage.py migrate` run?",
                returncode=2,
            ) from error
        self.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) if options["json"] else "\n".join(lines))

    def _answer(self, options: dict[str, Any]) -> tuple[Any, list[str]]:
        if options["verb"] == "status":
            state = report.status()
            return state, text.status(state)
        if options["verb"] == "list":
            rows = report.jobs(
                status=options["status"],
                queue=options["queue"],
                type_name=options["type"],
                limit=_whole(options["limit"], "a limit", 10_000),
            )
            return rows, text.listing(rows)
        story = report.story(report.job(_whole(options["id"], "the id of a job", 2**63 - 1)))
        return story, text.story(story)
