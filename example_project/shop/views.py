"""The shop's page, which enqueues, and the page of a job, which looks after it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from django_jobs import IdempotencyConflict
from django_jobs.models import Job
from example_project.shop.forms import FORMS, OnceForm
from example_project.shop.models import DemoRun

LATEST = 10
ENDED = (Job.Status.DONE, Job.Status.FAILED, Job.Status.DEAD, Job.Status.CANCELLED)


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    return _home(request, {})


@require_POST
def enqueue(request: HttpRequest, what: str) -> HttpResponse:
    if what not in FORMS:
        raise Http404
    run = DemoRun.objects.order_by("pk").last()
    form = FORMS[what](request.POST, prefix=what)
    if run is None or not form.is_valid():
        return _home(request, {what: form}, status=400)
    try:
        return redirect("job", form.enqueue(run).pk)
    except IdempotencyConflict as conflict:  # the page was sent before, with another choice
        form.add_error(None, f"This page has enqueued job {conflict.job_id} already. Reload it for another job.")
        return _home(request, {what: form}, status=409)


def _home(request: HttpRequest, given: dict[str, OnceForm], status: int = 200) -> HttpResponse:
    forms = {what: given.get(what) or form(prefix=what) for what, form in FORMS.items()}
    latest = Job.objects.filter(idempotency_key__startswith="page:").order_by("-id")[:LATEST]
    context = {"forms": forms, "latest": latest, "ready": DemoRun.objects.exists()}
    return render(request, "shop/home.html", context, status=status)


@require_GET
def job(request: HttpRequest, job_id: int) -> HttpResponse:
    return render(request, "shop/job.html", _told(job_id))


@require_GET
def job_state(request: HttpRequest, job_id: int) -> HttpResponse:
    """Return the part of the job's page that changes."""
    return render(request, "shop/job_state.html", _told(job_id))


def _told(job_id: int) -> dict[str, Any]:
    found = get_object_or_404(Job, pk=job_id)
    sentence, error = found.explain(), found.last_error.strip().rpartition("\n")[2]
    return {
        "job": found,
        "sentence": sentence,
        "ended": found.status in ENDED,
        "picture": found.result if found.type == "shop.draw_label" and found.status == "done" else None,
        "error": "" if error in sentence else error,
    }
