from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connections, models, router, transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_jobs.exceptions import shown
from django_jobs.models.clock import database_now, for_row
from django_jobs.models.schedule_state import PART, ScheduleState

T = TypeVar("T")

NAME_LIMIT = 200
# What decides which instants are slots.
TIMING = ("expression", "every", "anchor", "timezone", "nonexistent", "ambiguous")
# What the driver, or a field of Django, raises of a value that it cannot take.
UNREADABLE = (DatabaseError, TypeError, ValueError, OverflowError, RecursionError)
# What decides whether they begin anew: these and whether there are any.
DECIDING = (*TIMING, "enabled")


def project_zone() -> str:
    return settings.TIME_ZONE or "UTC"


def no_arguments() -> dict[str, Any]:
    return {"args": [], "kwargs": {}}


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    def update(self, **values: Any) -> int:
        """Update rows without checking them, as any queryset does; new times begin now, and nothing of the past fires."""
        self._for_write = True
        if values.keys().isdisjoint(DECIDING):
            changed = super().update(**values)
            ScheduleState.objects.using(self.db).try_again()
            return changed
        with transaction.atomic(using=self.db):
            ids = sorted(self.values_list("pk", flat=True))
            before = _deciding(ids, self.db, lock=True)
            rows: models.QuerySet[Schedule] = models.QuerySet(self.model, using=self.db)
            changed = sum(rows.filter(pk__in=part).update(**values) for part in _parts(ids))
            after = _deciding(ids, self.db)
            for part in _parts([pk for pk in ids if before.get(pk) != after.get(pk)]):
                ScheduleState.objects.using(self.db).filter(pk__in=part).begin_anew()
        return changed

    update.alters_data = True  # type: ignore[attr-defined]

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete schedules and their states, also such as cannot be read; the jobs that they made stay."""
        self._for_write = True
        alias, deleted = self.db, 0
        with transaction.atomic(using=alias):
            for part in _parts(sorted(self.values_list("pk", flat=True))):
                # As all who take both: the schedule first.
                rows = Schedule.objects.using(alias).filter(pk__in=part)
                list(rows.order_by("pk").select_for_update().values_list("pk", flat=True))
                ScheduleState.objects.using(alias).filter(schedule__in=part)._raw_delete(alias)
                deleted += rows._raw_delete(alias)
        return deleted, {Schedule._meta.label: deleted} if deleted else {}

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Schedule], *args: Any, **kwargs: Any) -> list[Schedule]:
        """Check and store many schedules. Raises ValidationError naming the schedule, before anything is written."""
        self._for_write = True
        schedules = list(objs)
        anchor = whole_second(self.db) if schedules else None
        for schedule in schedules:
            schedule.anchor = schedule.anchor or anchor
            try:
                schedule.full_clean(validate_unique=False, validate_constraints=False)
            except ValidationError as error:
                place = f"The schedule {shown(schedule.name)}"
                raise ValidationError(
                    {name: [f"{place}: {text}" for text in texts] for name, texts in error.message_dict.items()}
                ) from None
        with transaction.atomic(using=self.db):
            found = super().bulk_create(schedules, *args, **kwargs)
            states = ScheduleState.objects.using(self.db)
            if kwargs.get("update_conflicts"):
                for part in _parts([schedule.name for schedule in schedules]):
                    states.filter(schedule__name__in=part).begin_anew()
            states.add_missing()
        return found


class ScheduleManager(models.Manager["Schedule"].from_queryset(ScheduleQuerySet)):  # type: ignore[misc]
    pass


class Schedule(models.Model):
    """When jobs of a type are to be made, and with which arguments. What the scheduler keeps of it is in ScheduleState.

    Durations are timedelta, or seconds as a number. `save()` checks all values, and raises ValidationError by field.
    """

    class Nonexistent(models.TextChoices):
        """What becomes of a local time that the clock jumps over."""

        AFTER_GAP = "after_gap", _("run at the first instant after the jump")
        SKIP = "skip", _("do not run")

    class Ambiguous(models.TextChoices):
        """What becomes of a local time that comes twice because the clock is set back."""

        FIRST = "first", _("run the first time")
        SECOND = "second", _("run the second time")
        BOTH = "both", _("run both times")

    class Missed(models.TextChoices):
        """What becomes of slots that no scheduler came to in time."""

        LATEST = "latest", _("run once, for the latest")
        SKIP = "skip", _("do not run")
        ALL = "all", _("run for each, up to a limit")

    class Overlap(models.TextChoices):
        """What becomes of a slot while the job of an earlier one waits or runs."""

        ALLOW = "allow", _("run beside it")
        SKIP = "skip", _("do not run")
        QUEUE = "queue", _("run when it has ended, for the latest slot")

    name = models.CharField(_("name"), max_length=NAME_LIMIT, unique=True)
    type = models.CharField(_("job type"), max_length=255)
    payload = models.JSONField(_("arguments"), default=no_arguments)
    expression = models.CharField(_("cron expression"), max_length=255, blank=True, default="")
    every = models.DurationField(_("every"), null=True, blank=True)
    # What `every` counts from: the whole second in which the row was made.
    anchor = models.DateTimeField(_("counts from"), null=True, blank=True, editable=False)
    timezone = models.CharField(_("time zone"), max_length=100, default=project_zone)
    nonexistent = models.CharField(
        _("a time that the clock jumps over"),
        max_length=10,
        choices=Nonexistent.choices,
        default=Nonexistent.AFTER_GAP,
    )
    ambiguous = models.CharField(
        _("a time that comes twice"), max_length=10, choices=Ambiguous.choices, default=Ambiguous.FIRST
    )
    missed = models.CharField(_("missed slots"), max_length=10, choices=Missed.choices, default=Missed.LATEST)
    missed_grace = models.DurationField(_("missed when later than"), null=True, blank=True)
    missed_limit = models.IntegerField(_("missed slots run at most"), default=100)
    missed_window = models.DurationField(_("missed slots dropped when older than"), null=True, blank=True)
    overlap = models.CharField(_("overlap"), max_length=10, choices=Overlap.choices, default=Overlap.ALLOW)
    spread = models.DurationField(_("spread over"), null=True, blank=True)
    queue = models.CharField(_("queue"), max_length=100, blank=True, default="")
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)
    enabled = models.BooleanField(_("enabled"), default=True)
    # What the code said of it last, field by field; a field that differs is kept as it is. None for others.
    code = models.JSONField(_("as the code says"), null=True, blank=True, editable=False)

    objects: ClassVar[ScheduleManager] = ScheduleManager()
    state: ScheduleState

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name",)
        permissions = [("run_schedule", _("Can run schedules now"))]
        constraints = [
            models.CheckConstraint(
                name="django_jobs_schedule_times",
                condition=Q(expression="", every__isnull=False) | (~Q(expression="") & Q(every__isnull=True)),
                violation_error_message=_("Give a cron expression or an interval, and not both."),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def next_slots(self, after: datetime, count: int) -> list[datetime]:
        """Return the next `count` slots strictly after `after`, an aware datetime, as aware datetimes in UTC.

        Fewer when the calendar ends before. They follow from this instance alone, saved or not, whether it is enabled or
        not. Raises InvalidJob when `after` is naive or `count` no whole number from 0 to 10,000, and ValidationError when
        the instance's own times cannot be used.
        """
        from django_jobs.schedules import definition

        definition.check_asked(after, count)
        return [slot.at for slot in islice(definition.slots(self, after).after(after), count)]

    def clean_fields(self, exclude: Any = None) -> None:
        from django_jobs.schedules import definition

        definition.normalise(self)
        super().clean_fields(exclude=exclude)

    def clean(self) -> None:
        from django_jobs.schedules import definition, faults

        super().clean()
        if found := definition.faults(self):
            raise faults.refused(found)

    def save(self, **kwargs: Any) -> None:
        """Check and store this schedule. New times, and those of one that is enabled again, begin now.

        Raises ValidationError by field when a value cannot be used; nothing is written then.
        """
        alias = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using=alias):
            rows = Schedule.objects.using(alias).filter(pk=self.pk)
            before = rows.select_for_update().values(*DECIDING).first() if self.pk else None
            self.anchor = self.anchor or (before["anchor"] if before else whole_second(alias))
            self.full_clean(validate_constraints=False)
            super().save(**{**kwargs, "using": alias})
            states = ScheduleState.objects.using(alias)
            if before is None:
                states.add_missing(self.pk)
            elif rows.values(*DECIDING).get() != before:
                states.filter(schedule=self.pk).begin_anew()
            else:
                states.filter(schedule=self.pk).try_again()

    def delete(self, using: str | None = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        """Delete this schedule; the jobs that it made stay."""
        alias = using or router.db_for_write(type(self), instance=self)
        count, deleted = Schedule.objects.using(alias).filter(pk=self.pk).delete()
        self.pk = None
        return count, deleted

    def pause(self, *, why: str = "", by: str = "") -> bool:
        """Make no more jobs until `resume`; those that were made stay. Return False when it was paused already.

        `why` and `by`, who does it, are logged.
        """
        from django_jobs.schedules import operate

        return operate.pause(self, why=why, by=by)

    def resume(self, *, why: str = "", by: str = "") -> bool:
        """Make jobs for the slots from now on; none for those that passed meanwhile. Return False when it was not paused."""
        from django_jobs.schedules import operate

        return operate.resume(self, why=why, by=by)

    def run_now(self, *, why: str = "", by: str = "") -> Any:
        """Make a job of this schedule now, beside its slots, and return it. The next slot stays where it is.

        Raises InvalidJob when the schedule is broken, and what `enqueue` raises.
        """
        from django_jobs.schedules import operate

        return operate.run_now(self, why=why, by=by)


def _deciding(ids: list[int], alias: str, lock: bool = False) -> dict[int, Any]:
    # By id and in their order: a join cannot be locked always, and all who take several take them so.
    rows = Schedule.objects.using(alias).order_by("pk")
    rows = rows.select_for_update() if lock else rows
    found: dict[int, Any] = {}
    for part in _parts(ids):
        try:
            found |= {row[0]: row for row in rows.filter(pk__in=part).values_list("pk", *DECIDING)}
        except UNREADABLE:
            if not connections[alias].is_usable():
                raise
            # One of them cannot be read, and is taken as changed.
            locked = rows.filter(pk__in=part).values_list("pk", flat=True)
            found |= {pk: object() for pk in locked}
    return found


def _parts(items: list[T]) -> Iterator[list[T]]:
    return (items[start : start + PART] for start in range(0, len(items), PART))


def whole_second(alias: str) -> datetime:
    """Return the whole second of a database's clock, as a column takes it."""
    return for_row(database_now(alias).replace(microsecond=0), alias)
