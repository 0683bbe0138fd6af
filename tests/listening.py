"""A plain connection of psycopg that listens, for tests of what is sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from django_jobs.engines.base import Engine
from tests.harness import wait_for


class Heard:
    """What is heard on the channel of an alias's jobs."""

    def __init__(self, parameters: dict[str, Any], channel: str) -> None:
        self._ours = psycopg.connect(**parameters, autocommit=True)
        self._others = psycopg.connect(**parameters, autocommit=True)
        self._channel = channel
        self._ours.execute(f'LISTEN "{channel}"')

    def so_far(self) -> list[str]:
        """Return, in order, what was committed since it was last asked: a message of our own is heard after all of it."""
        last, found = uuid.uuid4().hex, list[str]()
        self._others.execute("SELECT pg_notify(%s, %s)", [self._channel, last])

        def take() -> bool:
            found.extend(notify.payload for notify in self._ours.notifies(timeout=0.1))
            return last in found

        wait_for(take, what="our own message")
        return found[: found.index(last)]

    def close(self) -> None:
        self._ours.close()
        self._others.close()


@contextmanager
def listening(engine: Engine) -> Iterator[Heard]:
    given = engine.connection.settings_dict
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}
    parameters = {to: given[name] for name, to in names.items() if given[name]}
    found = Heard(parameters, engine.channel())
    try:
        yield found
    finally:
        found.close()
