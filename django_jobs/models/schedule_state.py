from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs.models.clock import Clock

# Rows that are named in one statement.
PART = 500


class ScheduleStateQuerySet(models.QuerySet["ScheduleState"]):
    def begin_anew(self) -> None:
        """Have slots count from now, by the database's clock: the definition has changed, or it was resumed."""
        fresh = {
            "changed_at": Clock(),
            "timing": "",
            "next_run_at": None,
            "pending_slot": None,
            "last_reading": "",
            "error": "",
            "errors": 0,
        }
        nobody = {"paused_by": "", "paused_why": ""}
        self.filter(schedule__enabled=True).update(**fresh, **nobody, wake_at=Clock(), paused_at=None)
        self.filter(schedule__enabled=False).update(**fresh, **nobody, wake_at=None, paused_at=Clock())

    def try_again(self) -> None:
        """Have the scheduler look at broken ones now."""
        self.exclude(error="").filter(schedule__enabled=True).update(wake_at=Clock())

    def add_missing(self, pk: int | None = None) -> None:
        """Make the states of schedules that have none, all or one."""
        schedules: Any = self.model._meta.get_field("schedule").related_model
        lacking = schedules._base_manager.using(self.db).filter(state__isnull=True)
        if pk is not None:
            lacking = lacking.filter(pk=pk)
        for enabled in (True, False):
            wake = {"wake_at": Clock()} if enabled else {}
            while ids := list(lacking.filter(enabled=enabled).values_list("pk", flat=True)[:PART]):
                states = [ScheduleState(schedule_id=pk, changed_at=Clock(), **wake) for pk in ids]
                self.bulk_create(states, ignore_conflicts=True)


class ScheduleStateManager(models.Manager["ScheduleState"].from_queryset(ScheduleStateQuerySet)):  # type: ignore[misc]
    pass


class ScheduleState(models.Model):
    """What the scheduler knows of a schedule; apart from it, so that no form or `save()` carries old values back."""

    schedule = models.OneToOneField("django_jobs.Schedule", models.CASCADE, primary_key=True, related_name="state")
    # When a scheduler is to look at it: at its next slot, at once, or when something is to be tried again.
    wake_at = models.DateTimeField(_("looked at next"), null=True)
    # The first slot after the later of last_slot and changed_at, once a scheduler has found it.
    next_run_at = models.DateTimeField(_("next slot"), null=True)
    changed_at = models.DateTimeField(_("slots count from"), db_default=Now())
    # Of what next_run_at was computed: the timing of the schedule, and the data of its time zone.
    timing = models.TextField(db_default="")
    zone_data = models.CharField(max_length=64, db_default="")
    last_slot = models.DateTimeField(_("last slot"), null=True)
    # The local time that last_slot stands for, by the wall clock, and which pass of it.
    last_reading = models.CharField(max_length=30, db_default="")
    last_fold = models.SmallIntegerField(db_default=0)
    last_fired_at = models.DateTimeField(_("last job made at"), null=True)
    last_fired_slot = models.DateTimeField(_("last slot with a job"), null=True)
    last_job = models.BigIntegerField(_("last job"), null=True)
    pending_slot = models.DateTimeField(_("slot that waits for the run before it"), null=True)
    paused_at = models.DateTimeField(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=255, db_default="")
    paused_why = models.TextField(_("why it was paused"), db_default="")
    error = models.TextField(_("error"), db_default="")
    errors = models.IntegerField(_("errors in a row"), db_default=0)
    fired = models.BigIntegerField(_("jobs made"), db_default=0)
    missed = models.BigIntegerField(_("slots missed"), db_default=0)
    skipped = models.BigIntegerField(_("slots skipped"), db_default=0)
    dropped = models.BigIntegerField(_("slots dropped"), db_default=0)
    looked_at = models.DateTimeField(_("last looked at"), null=True)
    looked_by = models.CharField(_("by"), max_length=255, db_default="")

    objects: ClassVar[ScheduleStateManager] = ScheduleStateManager()

    class Meta:
        verbose_name = _("state of a schedule")
        verbose_name_plural = _("states of schedules")
        default_permissions = ()
        indexes = [
            models.Index(fields=["wake_at"], name="django_jobs_schedule_wake", condition=Q(wake_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return str(self.schedule_id)
