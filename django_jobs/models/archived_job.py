from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs.models.job import Job
from django_jobs.models.record import JobRecord


class ArchivedJob(JobRecord):
    """A job that ended and is kept for people to look at. Its id stays, and is never given to another job.

    On PostgreSQL the table has a partition for each day on which jobs were archived, and there the primary key is
    (id, archived_at).
    """

    id = models.BigIntegerField(primary_key=True)
    archived_at = models.DateTimeField(_("archived at"), db_default=Now())
    requeued_as = models.BigIntegerField(_("requeued as job"), null=True, blank=True)
    # What only a job has that waits or runs.
    parked = None
    locked_by = None
    locked_until = None

    objects: ClassVar[models.Manager[ArchivedJob]] = models.Manager()

    class Meta:
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
        permissions = [("requeue_archivedjob", _("Can requeue archived jobs"))]

    def requeue(self, *, why: str = "", by: str = "") -> Job:
        """Have what this job was called with run again, as a new job without its idempotency key; return that.

        Raises StateConflict when that was done before, and JobDoesNotExist when the archive has it no longer.
        """
        from django_jobs.queue import operate

        again = operate.requeue(self.pk, why=why, by=by)
        found: Job = Job.objects.using(self._state.db).get(pk=again)
        return found


def find(alias: str, job_id: int, **annotations: Any) -> Job | ArchivedJob | None:
    """Return a job by its id, from the table of jobs or, since it may be there by then, from the archive."""
    for model in (Job, ArchivedJob):
        found: Job | ArchivedJob | None = (
            model._default_manager.using(alias).filter(pk=job_id).annotate(**annotations).first()
        )
        if found is not None:
            return found
    return None
