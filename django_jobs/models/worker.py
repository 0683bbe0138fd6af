from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.db.models import BooleanField, Case, Q, Value, When
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs.conf import conf


def beats() -> Q:
    """Choose the workers that live: their heartbeat is younger than a lease."""
    return Q(heartbeat_at__gt=Now() - timedelta(seconds=conf().lease))


class WorkerQuerySet(models.QuerySet["Worker"]):
    def live(self) -> WorkerQuerySet:
        return self.filter(beats()).defer("stacks")

    def marked(self) -> WorkerQuerySet:
        """All workers, each with the database's time as `clock`, and whether it is `live`."""
        live = Case(When(beats(), then=Value(True)), default=Value(False), output_field=BooleanField())
        return self.annotate(clock=Now(), live=live)


class WorkerManager(models.Manager["Worker"].from_queryset(WorkerQuerySet)):  # type: ignore[misc]
    pass


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

    objects: ClassVar[WorkerManager] = WorkerManager()

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        permissions = [("manage_worker", _("Can quiet and stop workers, and have them dump their stacks"))]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def claims(self) -> bool:
        """Whether it takes jobs while it lives: one that was asked to be quiet, or to stop, claims nothing more."""
        return self.asked == Worker.Asked.NOTHING

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def serves_any(self, queues: Sequence[str] | None) -> bool:
        """Tell whether it serves one of these queues, or any if None is given."""
        return queues is None or any(map(self.serves, queues))


def unserved(queues: Iterable[str], live: Sequence[Worker]) -> list[str]:
    """Return those of the queues that none of these workers claims from."""
    claiming = [worker for worker in live if worker.claims]
    return [queue for queue in queues if not any(worker.serves(queue) for worker in claiming)]
