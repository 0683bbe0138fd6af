from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.models.stat import Counts


class StatTotal(Counts):
    """The sums of all minutes of a queue and type that were ever folded, for counters that may only grow.

    With the rows of `Stat` that are minutes still, they are everything that was ever counted.
    """

    queue = models.CharField(_("queue"), max_length=100)
    type = models.CharField(_("type"), max_length=255)
    runs = models.JSONField(_("runs by duration"), default=list)
    waits = models.JSONField(_("waits by duration"), default=list)

    class Meta:
        verbose_name = _("sum of statistics")
        verbose_name_plural = _("sums of statistics")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["queue", "type"], name="django_jobs_stat_total")]

    def __str__(self) -> str:
        return f"{self.type} on {self.queue}"
