from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class AlertQuerySet(models.QuerySet["Alert"]):
    def open(self) -> AlertQuerySet:
        return self.filter(cleared_at__isnull=True)

    def untold(self) -> AlertQuerySet:
        """Alerts of which somebody is still to be told something."""
        return self.exclude(to_tell=[])


class AlertManager(models.Manager["Alert"].from_queryset(AlertQuerySet)):  # type: ignore[misc]
    pass


class Alert(models.Model):
    """A threshold that was passed, from then until it is kept again. Times are the database's clock.

    `name`: the queue whose oldest due job waits too long; empty for dead letters. `value`: what it was at the last look,
    in seconds or jobs. `to_tell`: what is to be told, how, and what the value was then, in this order, as
    ["raised", "mail", 120]; supervisors take turns, and one that has taken it has it until `taken_until`.
    """

    class Kind(models.TextChoices):
        DEAD_LETTERS = "dead_letters", _("dead letters")
        QUEUE_AGE = "queue_age", _("oldest due job of a queue")

    kind = models.CharField(_("of what"), max_length=20, choices=Kind.choices)
    name = models.CharField(_("its name"), max_length=100, blank=True, default="")
    value = models.FloatField(_("value"))
    limit = models.FloatField(_("threshold"))
    raised_at = models.DateTimeField(_("raised at"), db_default=Now())
    cleared_at = models.DateTimeField(_("cleared at"), null=True, blank=True)
    to_tell = models.JSONField(_("to be told"), default=list)
    tries = models.IntegerField(_("tries"), default=0)
    taken_until = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[AlertManager] = AlertManager()

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        default_permissions = ()
        constraints = [
            # Whoever is the first to see a threshold passed raises the alert.
            models.UniqueConstraint(
                fields=["kind", "name"], name="django_jobs_alert_once", condition=Q(cleared_at__isnull=True)
            ),
            models.CheckConstraint(name="django_jobs_alert_kind", condition=Q(kind__in=["dead_letters", "queue_age"])),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()
