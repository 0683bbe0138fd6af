"""How the queue's own tables are doing, by what the database has counted anyway: no table is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django_jobs.engines.asking import rows
from django_jobs.engines.base import Engine
from django_jobs.engines.sql import statement

# The table of jobs, and behind it the parts of the archive, each of which is counted for itself.
_TABLES = """
SELECT false AS is_part, oid::regclass::text, pg_total_relation_size(oid), pg_stat_get_live_tuples(oid),
       pg_stat_get_dead_tuples(oid)
  FROM pg_class
 WHERE oid = to_regclass('django_jobs_job')
UNION ALL
SELECT true, inhrelid::regclass::text, pg_total_relation_size(inhrelid), pg_stat_get_live_tuples(inhrelid), 0
  FROM pg_inherits
 WHERE inhparent = to_regclass('django_jobs_archivedjob')
"""


# Below these nothing is worth a word: the database removes dead rows by thousands. An age of a snapshot is in seconds.
BLOAT_ROWS, BLOAT_SHARE = 50_000, 0.5
OLD_SNAPSHOT = 300.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Who keeps dead rows from being removed.

    `kind`: "session"; "prepared", a transaction prepared for a second phase; "slot", a replication slot. `application_name`
    is the name of those. `seconds`: since its transaction began; None if the user may not see it, or it has none. `state`:
    as pg_stat_activity says, empty if the user may not see it.
    """

    kind: str
    seconds: float | None
    pid: int | None
    application_name: str
    user: str
    state: str
    database: str

    @property
    def is_old(self) -> bool:
        """Whether somebody should look: a slot keeps dead rows until its standby follows, however long that takes."""
        return self.kind == "slot" or (self.seconds is not None and self.seconds > OLD_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the archive. `size`: bytes, with its indexes; `rows`: an estimate."""

    name: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Health:
    """`live_rows`, `dead_rows`: estimates of the table of jobs; `size`: its bytes, with its indexes.

    `snapshot`: the oldest that holds something back, however young; None if there is none.
    """

    live_rows: int
    dead_rows: int
    size: int
    snapshot: Snapshot | None
    partitions: list[Partition]

    @property
    def dead_share(self) -> float:
        """Return the share of rows that are dead, from 0 to 1."""
        return self.dead_rows / max(self.live_rows + self.dead_rows, 1)

    @property
    def is_bloated(self) -> bool:
        """Whether somebody should look why dead rows are not removed."""
        return self.dead_rows > BLOAT_ROWS and self.dead_share > BLOAT_SHARE


def health(engine: Engine) -> Health | None:
    """Return how the tables are doing, in one statement; None on SQLite, or when the table of jobs is not there."""
    if engine.name != "postgresql":
        return None
    asked = f"SELECT * FROM ({_TABLES}) part LEFT JOIN ({statement('snapshot')}) held ON true ORDER BY 1, 2"
    jobs, *parts = rows(engine, asked) or [(True,)]
    if jobs[0]:
        return None
    _is_part, _name, size, live, dead, *held = jobs
    partitions = [Partition(*part[1:4]) for part in parts]
    return Health(live, dead, size, None if held[0] is None else _snapshot(held), partitions)


def oldest_snapshot(engine: Engine) -> Snapshot | None:
    """Return who holds the oldest snapshot of a PostgreSQL that keeps our dead rows, other than this session."""
    held = rows(engine, statement("snapshot"))
    return _snapshot(held[0]) if held else None


def _snapshot(row: Sequence[Any]) -> Snapshot:
    return Snapshot(*row[:-1])  # all but what they are ordered by
