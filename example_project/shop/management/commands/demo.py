from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import InterfaceError, OperationalError

from example_project.shop.demo import flow

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = (
        "Run a hardware shop's background jobs on real data, and check that all came out right; then serve a page that "
        "enqueues, and the admin, until Ctrl-C."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="end after the round, without the web server")
        parser.add_argument("--within", type=float, default=180.0, help="seconds until giving up (default: 180)")
        parser.add_argument("--port", type=int, help="of the web server (default: 8000, or any free one)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            code = flow.play(once=options["once"], within=options["within"], port=options["port"], say=self._say)
        except KeyboardInterrupt as stopped:
            number = getattr(stopped, "number", 2)
            self._say(flow.STOPPED)
            code = 128 + number
        except (InterfaceError, OperationalError) as error:
            raise CommandError(f"The database went away or failed: {error}") from error
        if code:
            sys.exit(code)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
