from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class BulkAct(models.Model):
    """An act of a person upon all jobs that a filter finds, carried out in small steps by a job. Times are the database's.

    Meant are the jobs with ids from `start`, which is not one of them, up to `upto`; those up to `after` were gone through.
    """

    class Act(models.TextChoices):
        REQUEUE = "requeue", _("requeue")
        CANCEL = "cancel", _("cancel")
        DELETE = "delete", _("delete")
        MOVE = "move", _("change queue")

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        RUNNING = "running", _("running")
        CANCELLED = "cancelled", _("cancelled")
        DONE = "done", _("done")

    UNDER_WAY = (State.WAITING, State.RUNNING)

    # Made with the form: what is sent twice makes one act.
    token = models.UUIDField(_("form"), unique=True)
    act = models.CharField(_("act"), max_length=10, choices=Act.choices)
    sought = models.JSONField(_("filter"))
    queue = models.CharField(_("to queue"), max_length=100, db_default="", blank=True)
    with_keys = models.BooleanField(_("also what has a key that holds"), db_default=False)
    per_minute = models.IntegerField(_("per minute"), null=True, blank=True)
    by = models.CharField(_("by"), max_length=255, db_default="", blank=True)
    why = models.TextField(_("why"), db_default="", blank=True)
    counted = models.BigIntegerField(_("found when it was confirmed"), null=True, blank=True)
    is_capped = models.BooleanField(_("or more"), db_default=False)
    start = models.BigIntegerField(_("from behind id"))
    upto = models.BigIntegerField(_("up to id"))
    after = models.BigIntegerField(_("gone through up to id"))
    done = models.BigIntegerField(_("done"), db_default=0)
    asked = models.BigIntegerField(_("asked to stop"), db_default=0)
    refused = models.BigIntegerField(_("refused"), db_default=0)
    # The first of them, each an id and a sentence.
    refusals = models.JSONField(_("refusals"), db_default=[])
    state = models.CharField(_("state"), max_length=10, choices=State.choices, db_default=State.WAITING.value)
    job_id = models.BigIntegerField(_("job"), null=True, blank=True)
    # Of the job's runs the latest that took a step: an earlier one, which may live on, takes none any more.
    run = models.BigIntegerField(_("run"), db_default=0)
    # With a pace: since when jobs are counted, and how many since.
    paced_at = models.DateTimeField(_("paced since"), null=True, blank=True)
    paced = models.IntegerField(_("since then"), db_default=0)
    # What its rate is worked out from: since when, and how many had been gone through by then.
    began_at = models.DateTimeField(_("goes on since"), null=True, blank=True)
    began_with = models.BigIntegerField(_("gone through before"), db_default=0)
    stepped_at = models.DateTimeField(_("last step at"), null=True, blank=True)
    created_at = models.DateTimeField(_("confirmed at"), db_default=Now())
    finished_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    class Meta:
        verbose_name = _("bulk action")
        verbose_name_plural = _("bulk actions")
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(
                name="django_jobs_bulkact_act", condition=Q(act__in=["requeue", "cancel", "delete", "move"])
            ),
            models.CheckConstraint(
                name="django_jobs_bulkact_state", condition=Q(state__in=["waiting", "running", "cancelled", "done"])
            ),
            models.CheckConstraint(
                name="django_jobs_bulkact_pace", condition=Q(per_minute__isnull=True) | Q(per_minute__gte=1)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.act} {self.pk}"

    @property
    def handled(self) -> int:
        """How many jobs it has come to, whatever came of them."""
        return self.done + self.refused
