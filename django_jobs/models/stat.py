from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

# Upper ends in seconds of the classes of waits and runs; the last class has no end.
CLASSES = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)
COUNTERS = (
    "done",
    "retried",
    "failed",
    "dead",
    "cancelled",
    "stopped",
    "lost_leases",
    "repeats",
    "lease_expirations",
    "slots_missed",
)
# What is added up when rows become one: beside these the classes and the attempts.
SUMS = (*COUNTERS, "run_seconds", "wait_seconds")
# Those that end a job for good: in which attempt that was is counted up to this one, which stands for all later ones.
FINAL = frozenset({"done", "failed", "dead", "cancelled"})
LAST_ATTEMPT = 10
MINUTE = 60  # seconds, of which a row is until it is folded


class Counts(models.Model):
    """What is added up."""

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

    class Meta:
        abstract = True


class Stat(Counts):
    """What became of runs and slots within one minute or, when that is an hour ago, within ten, a day ago, within an hour.

    While it is new there is a row for each worker process that ran something, which it alone writes, with every few
    batches of outcomes: of a process that was killed the last seconds are missing. `runs` and `waits` say how many runs
    took, and how many jobs waited from when they were due until they were claimed, as long as each of CLASSES says.
    `repeats` are runs after one that was lost. `attempts` says how many jobs ended for good in their first, second, ...
    attempt; the tenth stands for all later ones.

    What others than worker processes did is in rows of their own, written once and in the transaction that did it:
    `lease_expirations`, runs that were taken back since their lease ran out; `slots_missed` of schedules, by the queue and
    type of their jobs; and jobs that were ended while nobody ran them to their end, as those lost too often (`dead`). Not in
    it are jobs that were cancelled while they waited; they themselves tell.
    """

    minute = models.DateTimeField(_("from"))
    seconds = models.IntegerField(_("for so many seconds"), default=60)
    queue = models.CharField(_("queue"), max_length=100)
    type = models.CharField(_("type"), max_length=255)
    incarnation = models.CharField(_("worker's incarnation"), max_length=32, blank=True, default="")
    runs = models.JSONField(_("runs by duration"))
    waits = models.JSONField(_("waits by duration"))
    attempts = models.JSONField(_("jobs that ended, by attempt"), default=list)

    class Meta:
        verbose_name = _("statistics of a minute")
        verbose_name_plural = _("statistics")
        constraints = [
            models.UniqueConstraint(
                fields=["minute", "seconds", "queue", "type", "incarnation"], name="django_jobs_stat_key"
            )
        ]
        # What was not folded yet is read for every scrape.
        indexes = [models.Index(fields=["minute"], name="django_jobs_stat_new", condition=Q(seconds=MINUTE))]

    def __str__(self) -> str:
        return f"{self.type} on {self.queue} at {self.minute:%Y-%m-%d %H:%M}"
