"""The archive on SQLite: a plain table, and statements that hold the file's lock for moments only."""

from __future__ import annotations

import json
from datetime import timedelta

from django_jobs.engines.archive import Ages, Archive, Forbidden, Moved, Part
from django_jobs.engines.sqlite_parts import NOW
from django_jobs.models import ArchivedJob
from django_jobs.models.clock import Clock

_KEPT = ", ".join(
    str(field.column) for field in ArchivedJob._meta.local_fields if field.name not in ("archived_at", "requeued_as")
)
_CHOSEN = "id IN (SELECT value FROM json_each(%s))"


class SQLiteArchive(Archive):
    most = 200  # everybody who writes waits meanwhile
    by_partitions = False

    def prepare(self) -> None:
        pass

    def move(self, part: Part, ages: Ages, keep: bool) -> Moved:
        # Looked for without the lock, and looked at again with it.
        found = list(self.old(part, ages).values_list("pk", flat=True)[: part.limit])
        if found:
            with self.engine.acting(), self.engine.connection.cursor() as cursor:
                found = list(self.old(part, ages).filter(pk__in=found).values_list("pk", flat=True))
                chosen = [json.dumps(found)]
                if keep:
                    cursor.execute(
                        f"INSERT INTO django_jobs_archivedjob ({_KEPT}, archived_at) "
                        f"SELECT {_KEPT}, {NOW} FROM django_jobs_job WHERE {_CHOSEN}",
                        chosen,
                    )
                cursor.execute(f"DELETE FROM django_jobs_job WHERE {_CHOSEN}", chosen)
        return Moved(len(found), found[-1] if found else None, len(found) < part.limit and self.young(part, ages))

    def forgettable(self, age: timedelta) -> list[str]:
        return []

    def drop(self, partition: str) -> None:
        raise Forbidden

    def delete(self, age: timedelta, limit: int) -> int:
        old = ArchivedJob.objects.using(self.alias).filter(archived_at__lt=Clock() - age)
        found = list(old.values_list("pk", flat=True)[:limit])
        if found:
            with self.engine.acting():
                ArchivedJob.objects.using(self.alias).filter(pk__in=found).delete()
        return len(found)
