from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Worker(models.Model):
    """One worker process that claims jobs: a row for each incarnation, gone when it ended.

    `supervisor` is the same for all processes of one `runworkers`, and for no others. What a person asks of a process is
    `asked`, and heard with its next heartbeat. `stacks_asked_at` is there while its stacks are asked for and have not come.
    """

    class Asked(models.TextChoices):
        NOTHING = "", _("to work")
        QUIET = "quiet", _("to claim nothing more")
        STOP = "stop", _("to stop, with all processes of its runworkers")

    id = models.CharField(_("incarnation"), max_length=32, primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    supervisor_pid = models.IntegerField(_("supervisor's process id"))
    supervisor = models.CharField(_("supervisor's incarnation"), max_length=32, blank=True, db_default="")
    queues = models.JSONField(_("queues served"), null=True, blank=True)
    types = models.JSONField(_("types known"))
    threads = models.IntegerField(_("threads"))
    listens = models.BooleanField(_("woken by NOTIFY"), db_default=False)
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat at"), db_default=Now())
    asked = models.CharField(_("asked"), max_length=8, blank=True, choices=Asked.choices, db_default=Asked.NOTHING)
    stacks_asked_at = models.DateTimeField(_("stacks asked for at"), null=True, blank=True)
    stacks = models.TextField(_("stacks"), blank=True, db_default="")
    stacks_at = models.DateTimeField(_("stacks of"), null=True, blank=True)

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        permissions = [("manage_worker", _("Can quiet and stop workers, and have them dump their stacks"))]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
