"""Whose the jobs' database is: that of the deployment whose name is stored in it. No other one's workers run its jobs.

A dump of production that is restored for staging says that it is production's, and so no customer gets mails from staging.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import NamedTuple

from django.db import transaction

from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.exceptions import ConfigurationError
from django_jobs.log import say
from django_jobs.models import Deployment
from django_jobs.models.clock import Clock

# Not by the ORM: worker processes ask, and share more memory as long as they have not used it.
_STORED = "SELECT name, instance FROM django_jobs_deployment WHERE id = 1"
# By the key, which a table has only when a restore is through with it: in the midst of one this fails, and makes no row.
_FIRST = "INSERT INTO django_jobs_deployment (id, instance, name) VALUES (1, %s, %s) ON CONFLICT (id) DO NOTHING"
_NAME = "UPDATE django_jobs_deployment SET name = %s WHERE id = 1 AND name = ''"
# Of heartbeats: what runs is not at stake, and an idle tree is to ask little.
EVERY = 6


class Stored(NamedTuple):
    """What the database says. `name` is empty where no deployment with a name has used it."""

    name: str
    instance: str


def stored(engine: Engine) -> Stored:
    found = rows(engine, _STORED)
    return Stored(*found[0]) if found else Stored("", "")


def begin(engine: Engine, name: str | None) -> None:
    """Take a database that is nobody's; raise ConfigurationError if it is another deployment's."""
    found = stored(engine)
    if not found.instance or (name and not found.name):
        with engine.connection.cursor() as cursor:
            cursor.execute(_FIRST, [uuid.uuid4().hex, ""])
            if name:
                cursor.execute(_NAME, [name])
                if cursor.rowcount:
                    say(logging.INFO, "The jobs' database is from now on that of the deployment %r", name)
        found = stored(engine)
    if said := _mismatch(found, name):
        raise ConfigurationError(said)


def mismatch(engine: Engine, name: str | None) -> str:
    """Say why workers of this deployment must not run what is in the database; nothing if they may."""
    return _mismatch(stored(engine), name)


def _mismatch(found: Stored, name: str | None) -> str:
    if found.name in ("", name):
        return ""
    ours = "DEPLOYMENT is not set" if name is None else f"DEPLOYMENT is {name!r}"
    return (
        f"The jobs' database is that of the deployment {found.name!r} (instance {found.instance[:8]}), and {ours}: its jobs are "
        "not run. If it is a copy, `manage.py jobs adopt` says what waits in it and makes it yours; with --cancel nothing of "
        "that is run."
    )


def adopt(engine: Engine, name: str | None, by: str) -> Stored:
    """Make the database that of the deployment `name`, or nobody's; return what it says now."""
    new = Stored(name or "", uuid.uuid4().hex)
    with transaction.atomic(using=engine.alias):
        Deployment.objects.using(engine.alias).update_or_create(
            pk=1, defaults={"name": new.name, "instance": new.instance, "adopted_by": by[:255], "adopted_at": Clock()}
        )
    return new


class Owner:
    """Asks again whose the database is: with each new connection, and every EVERY heartbeats.

    It may be restored from another one's dump while workers wait for it, or under their hands. Claims ask it themselves,
    and bring nothing of one that is another's; this is for those who say so and stop.
    """

    def __init__(self, engine: Engine, name: str | None, heartbeat: float) -> None:
        self._engine = engine
        self._name = name
        self._seconds = EVERY * heartbeat
        self._raw: object = None
        self._again_at = 0.0
        self._said = ""

    def refuses(self) -> str:
        """Say why no job is to be run, nothing if they may be."""
        raw, now = self._engine.connection.connection, time.monotonic()
        if raw is None or raw is not self._raw or now >= self._again_at:
            self._said = self._asked()
            self._raw, self._again_at = self._engine.connection.connection, now + self._seconds
        return self._said

    def _asked(self) -> str:
        try:
            # Makes the row anew if it is gone, as after a flush; no claim brings anything till then.
            begin(self._engine, self._name)
        except ConfigurationError as error:
            return str(error)
        return ""
