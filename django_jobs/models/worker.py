from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Worker(models.Model):
    """One worker process that claims jobs: a row for each incarnation, gone when it ended."""

    id = models.CharField(_("incarnation"), max_length=32, primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    supervisor_pid = models.IntegerField(_("supervisor's process id"))
    queues = models.JSONField(_("queues served"), null=True, blank=True)
    types = models.JSONField(_("types known"))
    threads = models.IntegerField(_("threads"))
    listens = models.BooleanField(_("woken by NOTIFY"), db_default=False)
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat at"), db_default=Now())

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
