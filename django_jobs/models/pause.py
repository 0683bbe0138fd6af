from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs.models.clock import Clock


class PauseQuerySet(models.QuerySet["Pause"]):
    def in_force(self) -> PauseQuerySet:
        """Pauses that have not ended by themselves, by the database's clock."""
        return self.filter(Q(until__isnull=True) | Q(until__gt=Clock()))

    def names(self, kind: Pause.Kind) -> set[str]:
        """Return the names of the queues, or types, that are paused now."""
        return set(self.in_force().filter(kind=kind).values_list("name", flat=True))


class PauseManager(models.Manager["Pause"].from_queryset(PauseQuerySet)):  # type: ignore[misc]
    pass


class Pause(models.Model):
    """A queue or a type of which no job is started, until a time or until somebody resumes it."""

    class Kind(models.TextChoices):
        QUEUE = "queue", _("queue")
        TYPE = "type", _("type")

    kind = models.CharField(_("what is paused"), max_length=5, choices=Kind.choices)
    name = models.CharField(_("its name"), max_length=255)
    until = models.DateTimeField(_("until"), null=True, blank=True)
    by = models.CharField(_("by"), max_length=255, db_default="", blank=True)
    why = models.TextField(_("why"), db_default="", blank=True)
    created_at = models.DateTimeField(_("since"), db_default=Now())

    objects: ClassVar[PauseManager] = PauseManager()

    class Meta:
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], name="django_jobs_pause_once"),
            models.CheckConstraint(name="django_jobs_pause_kind", condition=Q(kind__in=["queue", "type"])),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
