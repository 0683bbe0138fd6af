"""What is known of a job, in the table of jobs and, once it has ended, in the archive."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs.texts import Text


class JobRecord(models.Model):
    """One call of a registered function, and what became of it. Times are the database's clock."""

    class Status(models.TextChoices):
        READY = "ready", _("ready")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")
        DEAD = "dead", _("dead")
        CANCELLED = "cancelled", _("cancelled")

    DEAD_LETTERS = (Status.DEAD, Status.FAILED)

    class Parked(models.TextChoices):
        TYPE = "type", _("type unknown to the worker that met it")
        PAUSE = "pause", _("paused")
        SUSPECT = "suspect", _("suspect, to be run alone")

    class KeyHolds(models.TextChoices):
        """How long an idempotency key is taken: cleared by whatever ends that time."""

        WINDOW = "window", _("as long as its row is there")
        UNFINISHED = "unfinished", _("until the job has ended")
        WAITING = "waiting", _("until the job is claimed")

    id = models.BigAutoField(primary_key=True)
    type = models.CharField(_("type"), max_length=255)
    queue = models.CharField(_("queue"), max_length=100, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    payload = models.JSONField(_("arguments"))
    idempotency_key = models.CharField(_("idempotency key"), max_length=255, null=True, blank=True)
    key_holds = models.CharField(
        _("key holds"), max_length=10, choices=KeyHolds.choices, db_default=KeyHolds.WINDOW.value
    )
    status = models.CharField(_("status"), max_length=10, choices=Status.choices, db_default=Status.READY.value)
    parked = models.CharField(_("parked"), max_length=10, choices=Parked.choices, null=True, blank=True)
    run_at = models.DateTimeField(_("due at"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    timeout = models.FloatField(_("timeout in seconds"), null=True, blank=True)
    attempts = models.IntegerField(_("attempts"), db_default=0)
    max_attempts = models.IntegerField(_("attempts allowed"), db_default=8)
    losses = models.IntegerField(_("losses in a row"), db_default=0)
    # It may have killed its process, and has not ended by itself since: it is run alone, and parked while it waits.
    suspect = models.BooleanField(_("suspect"), db_default=False)
    token = models.BigIntegerField(_("runs"), db_default=0)
    locked_by = models.CharField(_("locked by"), max_length=64, null=True, blank=True)
    locked_until = models.DateTimeField(_("locked until"), null=True, blank=True)
    cancel_reason = models.TextField(_("who cancelled it, and why"), null=True, blank=True)
    last_error = models.TextField(_("last error"), db_default="", blank=True)
    history = models.JSONField(_("runs that did not succeed"), db_default=[])
    progress = models.JSONField(_("progress"), null=True, blank=True)
    result = models.JSONField(_("result"), null=True, blank=True)
    meta = models.JSONField(_("meta"), db_default={})
    schedule = models.CharField(_("schedule"), max_length=255, null=True, blank=True)
    slot = models.DateTimeField(_("slot"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    started_at = models.DateTimeField(_("first started at"), null=True, blank=True)
    last_started_at = models.DateTimeField(_("last started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.type} {self.pk}"

    @property
    def tags(self) -> list[str]:
        return list(self.meta.get("tags", []))

    @property
    def args(self) -> list[Any]:
        return list(self.payload["args"])

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(self.payload["kwargs"])

    @property
    def attempt(self) -> int:
        """Which attempt the job waits for, is in, or ended with: `attempts` counts only those that failed.

        0 for one that ended without a run.
        """
        if self.status in (self.Status.READY, self.Status.RUNNING):
            return min(self.attempts + 1, self.max_attempts)
        if self.status in (self.Status.DONE, self.Status.FAILED):
            return self.attempts + 1
        return max(self.attempts, min(self.token, 1))

    def explain(self) -> Text:
        """Say in a sentence why this job is where it is, by the database's clock.

        In English, whatever language is active; templates show it in the active one, and so says `translated()` of it.
        """
        from django_jobs.explain import explain  # the sentence needs workers and settings, which import models

        return explain(self)
