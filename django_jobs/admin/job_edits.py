"""Acts on one job that change what it is: run now, other arguments, another priority or due time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Signature
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_jobs import redact
from django_jobs.admin import shown
from django_jobs.admin.acts import ActsAdmin
from django_jobs.admin.job_form import ArgumentsForm, WaitingForm
from django_jobs.admin.why import WHY_LIMIT, recorded, why_of
from django_jobs.engines import jobs_alias
from django_jobs.exceptions import InvalidJob, InvalidJobType, JobDoesNotExist, StateConflict
from django_jobs.models import Job
from django_jobs.queue import edit, operate
from django_jobs.queue.seen import expect
from django_jobs.registry import JobType
from django_jobs.texts import translated


class EditsAdmin(ActsAdmin):
    def get_urls(self) -> list[URLPattern]:
        name = f"django_jobs_{self.opts.model_name}"
        views = {"edit": self.edit_view, "run_now": self.run_now_view}
        return [
            *(
                path(f"<int:job_id>/{word}/", self.admin_site.admin_view(view), name=f"{name}_{word}")
                for word, view in views.items()
            ),
            *super().get_urls(),
        ]

    def may_edit(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_jobs.edit_job") and self.has_view_permission(request)

    def run_now_view(self, request: HttpRequest, job_id: int) -> HttpResponse:
        if not self.may_edit(request) or self.model is not Job:
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        why, job = why_of(request), self.get_object(request, str(job_id))
        if job is not None:
            try:
                with transaction.atomic(using=jobs_alias()):
                    edit.run_now(job_id, why=why, by=request.user.get_username(), as_seen=request.POST.get("as_seen"))
                    self._record(request, job, lambda: _("Made due at once"), why)
                messages.success(request, _("Job %d is due now.") % job_id)
            except (JobDoesNotExist, StateConflict) as error:
                messages.warning(request, translated(error))
        return HttpResponseRedirect(self.url_of("change", job_id))

    def edit_view(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Show the form for other arguments, and do what it says: to a job that ended, requeue it with them."""
        if not self.may_edit(request):
            raise PermissionDenied
        job: Any = self.get_object(request, str(job_id))
        page = self.url_of("change", job_id)
        if job is None or job.status == Job.Status.RUNNING:
            if job is not None:
                messages.warning(request, _("Job %d runs; what it was called with is with its handler.") % job_id)
            return HttpResponseRedirect(page)
        waits = job.status == Job.Status.READY
        if not waits and not self.may(request, "requeue"):
            raise PermissionDenied
        form = (WaitingForm if waits else ArgumentsForm)(job, request.POST if request.method == "POST" else None)
        try:
            if request.method == "POST":
                expect(job, [job.status], request.POST.get("as_seen", ""))
            if form.is_valid():
                said, anew = self._edit(request, job, form)
                messages.success(request, said)
                return HttpResponseRedirect(page if anew == job_id else shown.job_address(anew))
        except (JobDoesNotExist, StateConflict) as error:
            messages.warning(request, translated(error))
            return HttpResponseRedirect(page)
        except (InvalidJob, InvalidJobType) as error:
            form.add_error(None, translated(error))
        return TemplateResponse(request, "admin/django_jobs/job/edit.html", self._form_context(request, job, form))

    def _edit(self, request: HttpRequest, job: Any, form: ArgumentsForm) -> tuple[str, int]:
        """Do it in one transaction with its record; return what is to be said, and the id that the job has now."""
        why, by = form.cleaned_data["why"], request.user.get_username()
        given = {"why": why, "by": by, "as_seen": form.cleaned_data["as_seen"]}
        with transaction.atomic(using=jobs_alias()):
            if isinstance(form, WaitingForm):
                names = edit.edit(job.pk, **form.wanted(), **given)
                if not names:
                    return _("Nothing of job %d was changed.") % job.pk, job.pk
                self._record(request, job, lambda: _("Edited (%s)") % _listed(names), why)
                return _("Job %(id)d was edited: %(what)s.") % {"id": job.pk, "what": _listed(names)}, job.pk
            anew = operate.requeue(job.pk, payload=form.payload, **given)
            other = form.new.what if form.new is not None and form.new.names else ""
            self._record(
                request,
                job,
                lambda: _("Requeued with other %s") % translated(other) if other else _("Requeued"),
                why,
            )
        if anew != job.pk:
            text = _("Job %(old)d is archived: it was requeued as the new job %(new)d, without an idempotency key.")
            return text % {"old": job.pk, "new": anew}, anew
        return _("Job %d was requeued.") % job.pk, anew

    def _record(self, request: HttpRequest, job: Any, what: Callable[[], str], why: str) -> None:
        self.log_change(request, job, recorded(what, why))

    def _form_context(self, request: HttpRequest, job: Any, form: ArgumentsForm) -> dict[str, Any]:
        waits = isinstance(form, WaitingForm)
        return {
            **self.admin_site.each_context(request),
            "title": (_("Edit job %d") if waits else _("Requeue job %d with other arguments")) % job.pk,
            "opts": self.opts,
            "original": job,
            "media": self.media,
            "form": form,
            "waits": waits,
            "job": job,
            "name": shown.name(job.type),
            "signature": "" if form.job_type is None else _signature(form.job_type),
            "zone": timezone.get_current_timezone_name(),
            "why_limit": WHY_LIMIT,
            "back": self.url_of("change", job.pk),
            "key": format_html("<code>{}</code>", job.idempotency_key) if job.idempotency_key else "",
        }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(translated, names))


def _signature(job_type: JobType) -> str:
    """Return what a caller gives a job, without the context; a default that is secret is masked."""
    given = list(job_type.signature.parameters.values())[job_type.takes_context :]
    parameters = [
        item.replace(
            default=redact.MARK if item.default is not item.empty and redact.hides(item.name) else item.default,
            annotation=_Bare(item.annotation) if isinstance(item.annotation, str) else item.annotation,
        )
        for item in given
    ]
    shown_of = job_type.signature.replace(parameters=parameters, return_annotation=Signature.empty)
    return f"{job_type.name.rpartition('.')[2]}{shown_of}"


class _Bare:
    """An annotation that is a text, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
