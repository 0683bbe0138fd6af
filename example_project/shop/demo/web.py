"""The demo's web server: the shop's page and the admin, on a thread of the demo's own process."""

from __future__ import annotations

import logging
import secrets
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import CommandError
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

from example_project.database import VAR

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST, PORT = "127.0.0.1", 8000
USER = "demo"
LOG = VAR / "demo-web.log"


class Server(ThreadedWSGIServer):
    """Listens from the start and answers from `serving` on.

    A port that is only bound is not had: another process that binds it too, and listens first, takes it away.
    """

    def __init__(self, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        # Django's own handler of style sheets serves them whatever DEBUG is.
        self.set_app(StaticFilesHandler(WSGIHandler()))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        with _errors_to_file():
            thread.start()
            try:
                yield
            finally:
                self.shutdown()
                thread.join()


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives
        pass


def opened(port: int | None) -> Server:
    """Take the port that is asked for, or the usual one, or where that cannot be had any that is free."""
    if port is None:
        try:
            return Server(PORT)
        except OSError:  # of several kinds: a port may be kept by the system too
            return Server(0)
    try:
        return Server(port)
    except (OSError, OverflowError) as error:
        raise CommandError(f"The port {port} of {HOST} cannot be had: {error}", returncode=2) from error


def make_admin() -> str:
    """Give the demo's own admin a new password and return it: nobody else has an old one."""
    password = secrets.token_urlsafe(9)
    users = get_user_model()._default_manager
    user, _new = users.update_or_create(
        username=USER, defaults={"is_staff": True, "is_superuser": True, "is_active": True}
    )
    user.set_password(password)
    user.save()
    return password


@contextmanager
def _errors_to_file() -> Iterator[None]:
    """Keep tracebacks of pages: with DEBUG off, Django would only mail them."""
    handler = logging.FileHandler(LOG, mode="w", delay=True)
    handler.setLevel(logging.ERROR)
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
