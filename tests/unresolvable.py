"""Settings of a tree whose database's name is not to be resolved while a file is there, as when the DNS fails.

psycopg resolves names by `socket.getaddrinfo`; nothing else here uses it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from tests.settings import *  # noqa: F403

# Reserved for tests: it names nothing anywhere.
NAME = "database.example.test"
DATABASES["default"]["HOST"] = NAME  # noqa: F405
_real = socket.getaddrinfo


def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
    if host != NAME:
        return _real(host, *arguments, **options)
    if Path(os.environ["DJANGO_JOBS_TEST_NO_DNS"]).exists():
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _real("127.0.0.1", *arguments, **options)


socket.getaddrinfo = resolve
