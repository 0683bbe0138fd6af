from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

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
