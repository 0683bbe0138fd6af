from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class StatTotal(models.Model):
    """The sums of all minutes of a queue and type that were ever folded, for counters that may only grow.

    With the rows of `Stat` that are minutes still, they are everything that was ever counted.
    """

    queue = models.CharField(_("queue"), max_length=100)
    type = models.CharField(_("type"), max_length=255)
    done = models.BigIntegerField(_("done"), default=0)
    retried = models.BigIntegerField(_("to run again"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    dead = models.BigIntegerField(_("dead"), default=0)
    cancelled = models.BigIntegerField(_("cancelled"), default=0)
    stopped = models.BigIntegerField(_("stopped"), default=0)
    lost_leases = models.BigIntegerField(_("lost leases"), default=0)
    repeats = models.BigIntegerField(_("repeats"), default=0)
    lease_expirations = models.BigIntegerField(_("leases that ran out"), default=0)
    slots_missed = models.BigIntegerField(_("slots missed"), default=0)
    run_seconds = models.FloatField(_("seconds of all runs"), default=0.0)
    wait_seconds = models.FloatField(_("seconds of all waits"), default=0.0)
    runs = models.JSONField(_("runs by duration"), default=list)
    waits = models.JSONField(_("waits by duration"), default=list)

    class Meta:
        verbose_name = _("sum of statistics")
        verbose_name_plural = _("sums of statistics")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["queue", "type"], name="django_jobs_stat_total")]

    def __str__(self) -> str:
        return f"{self.type} on {self.queue}"
