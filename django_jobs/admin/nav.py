"""Which pages there are, and which of them somebody may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_jobs.admin.addresses import address
from django_jobs.models import ArchivedJob, BulkAct, Effect, Job, Pause, Schedule, Worker

# Name of the page, its label, and whose rows it shows; those that are not there are left out.
PAGES: tuple[tuple[str, Any, type[Model] | None], ...] = (
    ("app_list", _("Overview"), None),
    ("django_jobs_job_changelist", _("Jobs"), Job),
    ("django_jobs_job_retries", _("Retries"), Job),
    ("django_jobs_job_dead_letters", _("Dead letters"), Job),
    ("django_jobs_bulkact_changelist", _("Bulk actions"), BulkAct),
    ("django_jobs_schedule_changelist", _("Schedules"), Schedule),
    ("django_jobs_worker_changelist", _("Workers"), Worker),
    ("django_jobs_pause_changelist", _("Pauses"), Pause),
    ("django_jobs_effect_changelist", _("Effects"), Effect),
    ("django_jobs_archivedjob_changelist", _("Archive"), ArchivedJob),
)

BULK_PERMISSIONS = {
    BulkAct.Act.REQUEUE: "requeue_job",
    BulkAct.Act.CANCEL: "cancel_job",
    BulkAct.Act.MOVE: "edit_job",
    BulkAct.Act.DELETE: "delete_job",
}


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    url: str
    is_here: bool


def links(request: HttpRequest) -> list[Link]:
    """Return the pages that whoever asks may see, that which is shown or is above it being marked."""
    found = []
    for name, label, model in PAGES:
        of = [] if model else ["django_jobs"]
        if (model is None or sees(request, model)) and (url := address(name, *of)):
            found.append((label, url))
    below = [url for _label, url in found if request.path.startswith(url)]
    here = max(below, key=len, default="")
    return [Link(label, url, url == here) for label, url in found]


def sees(request: HttpRequest, model: type[Model]) -> bool:
    """Tell whether whoever asks may see the rows of a model: as Django's admin has it, who may change them may."""
    if model is Pause and may_pause(request):
        return True
    if model is BulkAct and any(may_bulk(request, act) for act in BulkAct.Act):
        return True
    name = model._meta.model_name
    return any(request.user.has_perm(f"django_jobs.{act}_{name}") for act in ("view", "change"))


def may_bulk(request: HttpRequest, act: str) -> bool:
    """Tell whether a person may do this to all jobs that a filter finds: to each of them, and see them."""
    return sees(request, Job) and request.user.has_perm(f"django_jobs.{BULK_PERMISSIONS[BulkAct.Act(act)]}")


def may_pause(request: HttpRequest) -> bool:
    return request.user.has_perm("django_jobs.pause_queue")
