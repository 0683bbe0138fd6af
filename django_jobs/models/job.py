from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from django_jobs.exceptions import JobDoesNotExist
from django_jobs.models.clock import Clock
from django_jobs.models.record import JobRecord


class JobQuerySet(models.QuerySet["Job"]):
    """The words in which jobs are asked for."""

    def ready(self) -> JobQuerySet:
        return self.filter(status=Job.Status.READY)

    def due(self) -> JobQuerySet:
        """Jobs that a worker may claim now, by the database's clock."""
        return self.ready().filter(parked__isnull=True, run_at__lte=Clock())

    def retries(self) -> JobQuerySet:
        """Jobs that wait for another attempt after at least one that failed."""
        return self.ready().filter(attempts__gt=0)

    def parked(self) -> JobQuerySet:
        # In two parts, each of which has its partial index.
        return self.filter(Q(parked__in=[Job.Parked.TYPE, Job.Parked.PAUSE]) | Q(parked=Job.Parked.SUSPECT))

    def running(self) -> JobQuerySet:
        return self.filter(status=Job.Status.RUNNING)

    def dead_letters(self) -> JobQuerySet:
        """Jobs that ended without success and want a person."""
        return self.filter(status__in=Job.DEAD_LETTERS)


class JobManager(models.Manager["Job"].from_queryset(JobQuerySet)):  # type: ignore[misc]
    pass


class Job(JobRecord):
    """One call of a registered function, to be run once successfully. Times are the database's clock."""

    objects: ClassVar[JobManager] = JobManager()
    # Of what an enqueue returned: whether its idempotency key had this job already, so that nothing was stored.
    reused = False

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = [
            ("requeue_job", _("Can requeue jobs")),
            ("cancel_job", _("Can cancel jobs")),
            ("edit_job", _("Can change arguments, priority and due time of jobs")),
            ("pause_queue", _("Can pause and resume queues and types")),
        ]
        indexes = [
            models.Index(
                "queue",
                F("priority").desc(),
                "run_at",
                "id",
                name="django_jobs_claim",
                condition=Q(status="ready", parked__isnull=True),
            ),
            # Not on locked_until: heartbeats would then leave an entry here each time.
            models.Index(
                fields=["locked_by"],
                name="django_jobs_running",
                condition=Q(status="running"),
                opclasses=["varchar_pattern_ops"],
            ),
            models.Index(
                "type",
                "queue",
                F("priority").desc(),
                "run_at",
                "id",
                name="django_jobs_parked",
                # Without the suspects, which have their own: the planner is not to take one for the other.
                condition=Q(parked__in=["type", "pause"]),
            ),
            # Seldom any: they are run in due order, whatever their queue.
            models.Index(fields=["run_at", "id"], name="django_jobs_suspects", condition=Q(parked="suspect")),
            # What did not end well, which is little: the many that are done cost no entry.
            models.Index(
                fields=["status", "finished_at"],
                name="django_jobs_unsuccessful",
                condition=Q(status__in=["dead", "failed", "cancelled"]),
            ),
            # In these two the admin pages through them in due order, and from the last ended. A job that succeeds at once is
            # in neither: measured (PostgreSQL 15, a thousand at a time), not a byte of WAL, and 0.3 of 15 us from insert to end.
            models.Index(
                fields=["run_at", "id"],
                name="django_jobs_retries",
                condition=Q(status="ready", parked__isnull=True, attempts__gt=0),
            ),
            models.Index(
                fields=["finished_at", "id"],
                name="django_jobs_dead_letters",
                condition=Q(status__in=["dead", "failed"]),
            ),
            # Only what may expire has an entry.
            models.Index(
                fields=["expires_at"],
                name="django_jobs_expiring",
                condition=Q(status="ready", expires_at__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["idempotency_key"],
                name="django_jobs_key",
                condition=Q(idempotency_key__isnull=False),
                opclasses=["varchar_pattern_ops"],  # the admin looks for keys by their beginning
            ),
            models.CheckConstraint(
                name="django_jobs_status",
                condition=Q(status__in=["ready", "running", "done", "failed", "dead", "cancelled"]),
            ),
            models.CheckConstraint(
                name="django_jobs_lease",
                condition=Q(status="running", locked_by__isnull=False, locked_until__isnull=False)
                | (~Q(status="running") & Q(locked_by__isnull=True, locked_until__isnull=True)),
            ),
            models.CheckConstraint(
                name="django_jobs_finished",
                condition=Q(status__in=["ready", "running"], finished_at__isnull=True)
                | (~Q(status__in=["ready", "running"]) & Q(finished_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="django_jobs_key_holds", condition=Q(key_holds__in=["window", "unfinished", "waiting"])
            ),
            models.CheckConstraint(
                name="django_jobs_parked_ready", condition=Q(parked__isnull=True) | Q(status="ready")
            ),
            models.CheckConstraint(
                name="django_jobs_numbers",
                condition=Q(
                    priority__gte=-100,
                    priority__lte=100,
                    attempts__gte=0,
                    max_attempts__gte=1,
                    losses__gte=0,
                    token__gte=0,
                    # Far from where the database could not count on: a row set to that by hand would stop every claim.
                    token__lte=10**15,
                ),
            ),
        ]

    def refresh(self) -> Job:
        """Read this job again from the jobs' database and return it; raise JobDoesNotExist when it is gone.

        One that was archived meanwhile is as it was then.
        """
        from django_jobs.models.archived_job import ArchivedJob  # which needs this one

        try:
            self.refresh_from_db(using=self._state.db)
        except Job.DoesNotExist:
            archived = ArchivedJob.objects.using(self._state.db).filter(pk=self.pk).first()
            if archived is None:
                raise JobDoesNotExist(f"There is no job {self.pk}: it was deleted.") from None
            for field in Job._meta.concrete_fields:
                setattr(self, field.attname, getattr(archived, field.attname))
        return self

    def cancel(self, *, why: str = "", by: str = "") -> Job:
        """End this job as cancelled or, while it runs, ask its run to stop; return it as it is then.

        A running handler is told within a heartbeat, and the job is cancelled when its run has ended, however it did; a
        result that it returned is kept. `why` and `by` are kept in the history. Raises StateConflict when it has ended,
        and JobDoesNotExist when it is gone.
        """
        from django_jobs.queue import operate

        operate.cancel(self.pk, why=why, by=by)
        return self.refresh()

    def requeue(self, *, why: str = "", by: str = "") -> Job:
        """Have this job, which ended, run again at once with all its attempts; return it as it is then.

        For one that was archived meanwhile a new job is made, without the idempotency key, and returned. Raises StateConflict
        when it has not ended or another job has its key, and JobDoesNotExist when it is gone.
        """
        from django_jobs.queue import operate

        again = operate.requeue(self.pk, why=why, by=by)
        return self.refresh() if again == self.pk else Job.objects.using(self._state.db).get(pk=again)

    def wait(self, timeout: float) -> Job:
        """Wait up to `timeout` seconds until this job has ended, in whatever way; return it as it is then.

        It asks the database until then, at most some times a second. Raises WaitTimeout, a TimeoutError, when it has not
        ended, JobDoesNotExist when it is gone, and InvalidJob inside a transaction, where no worker could see it.
        """
        from django_jobs.queue import operate

        return operate.wait(self, timeout)
