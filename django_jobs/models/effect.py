from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs.models.job import Job
from django_jobs.models.record import JobRecord


class EffectQuerySet(models.QuerySet["Effect"]):
    def unanswered(self) -> EffectQuerySet:
        """Effects outside the database that were asked for, and of which no answer was seen yet."""
        return self.filter(kind=Effect.Kind.OUTSIDE, answered_at__isnull=True)

    def may_have_happened(self) -> EffectQuerySet:
        """Unanswered effects whose job does not run now, so that nobody has them under way."""
        return self.unanswered().exclude(self.job_runs())

    def left_by(self, job: JobRecord) -> EffectQuerySet:
        """What a job was the last to ask for and may have had, the newest first; nothing while the job runs."""
        return self.may_have_happened().filter(job_id=job.pk).order_by("-asked_at")

    def job_runs(self) -> Exists:
        """Whether the job of an effect runs now."""
        return Exists(Job.objects.using(self.db).running().filter(pk=OuterRef("job_id")))


class EffectManager(models.Manager["Effect"].from_queryset(EffectQuerySet)):  # type: ignore[misc]
    pass


class Effect(models.Model):
    """What `once` and `outside` know of a key: that its effect took place, or was asked for. Times are the database's."""

    class Kind(models.TextChoices):
        ONCE = "once", _("in the database")
        OUTSIDE = "outside", _("outside the database")

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(_("where"), max_length=10, choices=Kind.choices)
    key = models.CharField(_("key"), max_length=255)
    # No foreign key: jobs are deleted without looking here.
    job_id = models.BigIntegerField(_("job"), null=True, blank=True)
    asks = models.IntegerField(_("times asked"), db_default=1)
    asked_at = models.DateTimeField(_("asked at"), db_default=Now())
    answered_at = models.DateTimeField(_("answered at"), null=True, blank=True)
    result = models.JSONField(_("result"), null=True, blank=True)
    note = models.TextField(_("who settled it, and why"), db_default="", blank=True)

    objects: ClassVar[EffectManager] = EffectManager()

    class Meta:
        verbose_name = _("effect")
        verbose_name_plural = _("effects")
        indexes = [
            models.Index(fields=["asked_at"], name="django_jobs_effect_age"),
            models.Index(
                F("asked_at").desc(),
                name="django_jobs_effect_open",
                condition=Q(kind="outside", answered_at__isnull=True),
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["kind", "key"], name="django_jobs_effect_key"),
            models.CheckConstraint(name="django_jobs_effect_kind", condition=Q(kind__in=["once", "outside"])),
        ]

    def __str__(self) -> str:
        return self.key
