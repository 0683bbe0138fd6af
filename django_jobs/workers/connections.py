"""What the connections of worker processes have that those of the site need not have."""

from __future__ import annotations

from typing import Any

from django.db import connections


def configure_connections(role: str, lease: float) -> None:
    """Set up every database of this process, before its first connection, for a long-lived process of ours.

    Connections stay open between jobs, dead peers are noticed within a lease, and the server's list of sessions shows
    the role. What the project's OPTIONS say wins. A pool is left out: threads here keep one connection each.
    """
    connections.close_all()
    for alias in connections:
        settings = connections.settings[alias]
        settings["CONN_MAX_AGE"] = None
        options: dict[str, Any] = dict(settings.get("OPTIONS") or {})
        if settings["ENGINE"].endswith(("postgresql", "postgis")):
            options.pop("pool", None)
            options = {**_postgresql(role, lease), **options}
        elif settings["ENGINE"].endswith("sqlite3"):
            options = {"timeout": 30, **options}
        settings["OPTIONS"] = options


def _postgresql(role: str, lease: float) -> dict[str, Any]:
    third = lease / 3
    return {
        "application_name": f"django_jobs:{role}",
        "connect_timeout": max(2, int(third)),
        "keepalives": 1,
        "keepalives_idle": max(1, int(third)),
        "keepalives_interval": max(1, int(third / 3)),
        "keepalives_count": 3,
        "tcp_user_timeout": int(third * 1000),
    }
