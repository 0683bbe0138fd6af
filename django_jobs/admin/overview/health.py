from __future__ import annotations

import time
from typing import Any

from django.db import OperationalError
from django.utils.translation import gettext as _

from django_jobs.admin import figures
from django_jobs.admin.overview.asked import Asked
from django_jobs.engines.bounded import TooSlow, is_too_slow
from django_jobs.engines.health import Health, health

# It changes slowly, and is asked for in several statements: kept for so many seconds, by alias.
KEPT_FOR = 60.0
PARTITIONS_SHOWN = 40
# When it was asked for, and what was told: TooSlow if the database did not answer in time.
_kept: dict[str, tuple[float, Health | type[TooSlow] | None]] = {}


def read(asked: Asked) -> dict[str, Any] | None:
    """Return the state of the tables as it was up to a minute ago, and how long ago; None where nothing is told of it.

    Raises TooSlow where the database did not answer in time, and for as long without asking it again.
    """
    now = time.monotonic()
    at, found = _kept.get(asked.alias, (now, None))
    if found is None or now - at > KEPT_FOR:
        at, found = now, _asked_for(asked, now)
        _kept[asked.alias] = at, found
    if isinstance(found, type):
        raise found("The database did not answer when it was asked last.")
    return None if found is None else {"age": round(now - at), **_shown(found)}


def _asked_for(asked: Asked, now: float) -> Health | None:
    try:
        return health(asked.engine)
    except OperationalError as error:
        if is_too_slow(error):
            _kept[asked.alias] = now, TooSlow
        raise


def _shown(found: Health) -> dict[str, Any]:
    old = found.snapshot is not None and found.snapshot.is_old
    facts = [
        (_("size of the table of jobs"), figures.bytes_(found.size), False),
        (_("rows in use"), _("about %s") % figures.number(found.live_rows), False),
        (_("dead rows"), _("about %s") % figures.number(found.dead_rows), found.is_bloated),
        (_("oldest snapshot"), _snapshot(found), old),
    ]
    newest = sorted(found.partitions, key=lambda part: part.name, reverse=True)
    return {
        "facts": facts,
        "partitions": [
            {"name": part.name, "size": figures.bytes_(part.size), "rows": figures.number(max(part.rows, 0))}
            for part in newest[:PARTITIONS_SHOWN]
        ],
        "more": max(0, len(newest) - PARTITIONS_SHOWN),
        "partition_count": len(newest),
        "partition_size": figures.bytes_(sum(part.size for part in newest)),
    }


def _snapshot(found: Health) -> str:
    """Say how old it is, and whose."""
    snapshot = found.snapshot
    if snapshot is None:
        return _("none at the moment")
    age = _("of an age that cannot be seen") if snapshot.seconds is None else figures.seconds(snapshot.seconds)
    whose = [snapshot.application_name or _("without a name")]
    if snapshot.user:
        whose.append(_("user %s") % snapshot.user)
    if snapshot.pid is not None:
        whose.append(_("process %d") % snapshot.pid)
    if snapshot.database:
        whose.append(_("database %s") % snapshot.database)
    if snapshot.state:
        whose.append(snapshot.state)
    return f"{age} ({', '.join(whose)})"
