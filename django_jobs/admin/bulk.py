"""Acts upon all that a filter finds: the count and the confirmation, the page of each, and their list."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import bulk
from django_jobs.admin import bulk_count, bulk_shown, figures, shown
from django_jobs.admin.addresses import address
from django_jobs.admin.asked import bulk_address, list_address, sought_of
from django_jobs.admin.base import QueueAdmin
from django_jobs.admin.bulk_form import BulkForm
from django_jobs.admin.nav import may_bulk, sees
from django_jobs.admin.why import WHY_LIMIT, recorded, why_of
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import InvalidJob, JobDoesNotExist, StateConflict
from django_jobs.models import BulkAct, Job, Worker
from django_jobs.queue.bulk_acts import fits, under_way
from django_jobs.queue.sought import Sought
from django_jobs.texts import foreign, kept_text, translated


@admin.register(BulkAct)
class BulkActAdmin(QueueAdmin):
    list_display = ("what", "state_", "who", "why_")
    ordering = ("-id",)

    class Media:
        css = {"all": ["django_jobs/bulk.css"]}
        js = ["django_jobs/bulk.js"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        carriers = bulk.carriers(jobs_alias()).filter(pk=OuterRef("job_id"))
        marks = {"is_carried": Exists(carriers), "is_begun": Exists(carriers.running())}
        found: QuerySet[Any] = super().get_queryset(request).annotate(**marks)
        return found

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return sees(request, BulkAct)

    def get_urls(self) -> list[URLPattern]:
        def at(what: str) -> URLPattern:
            view = self.admin_site.admin_view(self.end_view)
            return path(f"<int:act_id>/{what}/", view, {"what": what}, name=f"django_jobs_bulkact_{what}")

        return [at("cancel"), at("resume"), *super().get_urls()]

    # The count and the confirmation.

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        act = request.GET.get("act", "")
        if act not in BulkAct.Act.values:
            return self._back(request, _("Choose on the list of jobs what is to be done to all that its filter finds."))
        if not may_bulk(request, act):
            raise PermissionDenied
        try:
            sought = sought_of(request.GET)
        except InvalidJob as error:
            return self._back(request, translated(error))
        if not fits(act, sought):
            return self._back(request, _("Nothing in that state can be meant by this act."))
        form = BulkForm(act, request.POST if request.method == "POST" else None)
        if form.is_valid() and (begun := self._begin(request, act, sought, form.cleaned_data)) is not None:
            return HttpResponseRedirect(address("django_jobs_bulkact_change", begun.pk))
        return self._confirmation(request, act, sought, form)

    def _back(self, request: HttpRequest, why: str) -> HttpResponse:
        messages.warning(request, why)
        return HttpResponseRedirect(address("django_jobs_job_changelist"))

    def _begin(self, request: HttpRequest, act: str, sought: Sought, given: dict[str, Any]) -> BulkAct | None:
        """Store the act, the job that carries it out and, where they share a database, who did it; or say why not."""
        token, by = given["token"], request.user.get_username()
        wanted = bulk.Wanted(act=act, sought=sought, by=by, **{name: given[name] for name in given if name != "token"})
        counted = bulk_count.count(act, sought)
        try:
            with engine().acting():
                begun, made = bulk.begin(wanted, token, counted=counted.number, is_capped=counted.is_capped)
                if made:
                    self.log_addition(request, begun, foreign(lambda: self._recorded(begun)))
        except StateConflict as error:
            messages.error(request, translated(error))
            return None
        if not made and begun.token != token:
            messages.info(request, _("The same was asked for before, and is under way: this is it."))
        return begun

    def _recorded(self, act: BulkAct) -> str:
        words = {
            "what": bulk_shown.title(act),
            "filter": bulk_shown.in_words(Sought.from_json(act.sought)),
            "number": bulk_shown.counted(act.counted, act.is_capped),
            "why": act.why,
        }
        return _("%(what)s, all that were found by (%(filter)s), %(number)s jobs: %(why)s") % words

    def _confirmation(self, request: HttpRequest, act: str, sought: Sought, form: BulkForm) -> HttpResponse:
        found = bulk_count.survey(act, sought)
        kind = BulkAct.Act(act)
        alike = next((other for other in under_way() if (other.act, other.sought) == (act, sought.as_json())), None)
        context = {
            **self.admin_site.each_context(request),
            "title": _("%(verb)s all that the filter finds?") % {"verb": bulk_shown.VERBS[kind]},
            "opts": self.opts,
            "media": self.media,
            "act": act,
            "verb": bulk_shown.VERBS[kind],
            "effect": bulk_shown.EFFECTS[kind],
            "meant": bulk_shown.meant(kind, sought, found.number),
            "filter": bulk_shown.in_words(sought),
            "number": found.number,
            "is_capped": found.is_capped,
            "looked": figures.number(found.looked),
            "counted": bulk_shown.counted(found.number, found.is_capped),
            "examples": found.examples,
            "form": form,
            "action": bulk_address(act, sought),
            "alike": alike,
            "worker_runs": Worker.objects.using(jobs_alias()).live().exists(),
            "back": list_address(sought),
        }
        return TemplateResponse(request, "admin/django_jobs/bulkact/confirm.html", context)

    # The page of an act.

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        act = self.get_object(request, unquote(object_id))
        if act is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined, no-any-return]
        if not self.has_view_permission(request, act):
            raise PermissionDenied
        slug, word = bulk_shown.state(act)
        goes_on = slug in BulkAct.UNDER_WAY
        context = {
            **self.admin_site.each_context(request),
            "title": f"{bulk_shown.title(act)} {act.pk}",
            "subtitle": None,
            "opts": self.opts,
            "original": act,
            "media": self.media,
            "state": bulk_shown.badge(slug, word),
            "slug": slug,
            "goes_on": goes_on,
            "bar": bulk_shown.bar(act),
            "progress": bulk_shown.progress(act),
            "outlook": bulk_shown.outlook(act),
            "afterwards": bulk_shown.afterwards(act) if sees(request, Job) and list_address(Sought()) else [],
            "facts": _facts(act),
            "refusals": [(shown.job_link(job_id), kept_text(*why)) for job_id, *why in act.refusals],
            "more_refusals": act.refused - len(act.refusals),
            "may_act": may_bulk(request, act.act),
            "may_cancel": act.state in BulkAct.UNDER_WAY,
            "may_resume": slug in ("cancelled", "stopped"),
            "why_limit": WHY_LIMIT,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_jobs/bulkact/detail.html", context)

    def end_view(self, request: HttpRequest, act_id: int, what: str) -> HttpResponse:
        """Cancel an act, or have it go on."""
        act = self.get_object(request, str(act_id))
        if act is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(act_id))  # type: ignore[attr-defined, no-any-return]
        if not may_bulk(request, act.act):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        do, said = (
            (bulk.cancel, _("It ends behind the step that is under way."))
            if what == "cancel"
            else (bulk.resume, _("It goes on behind the last job that it came to."))
        )
        why = why_of(request)
        try:
            with engine().acting():
                do(act_id, why=why, by=request.user.get_username())
                self.log_change(
                    request, act, recorded(lambda: _("Cancelled") if what == "cancel" else _("Resumed"), why)
                )
            messages.success(request, said)
        except (StateConflict, JobDoesNotExist) as error:
            messages.warning(request, translated(error))
        return HttpResponseRedirect(address("django_jobs_bulkact_change", act_id))

    # The list.

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Bulk actions"), **(extra_context or {})})

    @admin.display(description=gettext_lazy("what, upon which jobs"))
    def what(self, act: BulkAct) -> str:
        words = bulk_shown.in_words(Sought.from_json(act.sought))
        return format_html('{} {}<div class="quiet dj-small dj-name">{}</div>', bulk_shown.title(act), act.pk, words)

    @admin.display(description=gettext_lazy("state"))
    def state_(self, act: BulkAct) -> str:
        return format_html(
            '{} {}<div class="quiet dj-small">{}</div>',
            bulk_shown.badge(*bulk_shown.state(act)),
            bulk_shown.bar(act),
            bulk_shown.progress(act),
        )

    @admin.display(description=gettext_lazy("who, and when"))
    def who(self, act: Any) -> str:
        return format_html("{}<div>{}</div>", act.by or shown.NOTHING, shown.age(act.created_at, act.clock))

    @admin.display(description=gettext_lazy("why"))
    def why_(self, act: BulkAct) -> str:
        return act.why or shown.NOTHING


def _facts(act: Any) -> list[tuple[str, Any]]:
    sought = Sought.from_json(act.sought)
    facts = [
        (_("act"), bulk_shown.title(act)),
        (_("upon"), bulk_shown.meant(BulkAct.Act(act.act), sought)),
        (_("filter"), format_html('<a href="{}">{}</a>', list_address(sought), bulk_shown.in_words(sought))),
        (_("counted"), bulk_shown.counted(act.counted, act.is_capped)),
        (_("why"), act.why or shown.NOTHING),
        (_("by"), act.by or shown.NOTHING),
        (_("pace"), bulk_shown.pace(act)),
        (_("confirmed"), shown.moment(act.created_at, act.clock)),
        (_("last step"), shown.moment(act.stepped_at, act.clock)),
        (_("ended"), shown.moment(act.finished_at, act.clock)),
        (_("ids"), f"{act.start + 1} - {act.upto}"),
        (_("job"), shown.job_link(act.job_id) if act.job_id else shown.NOTHING),
    ]
    if act.with_keys:
        facts.insert(2, (_("keys"), _("also jobs whose idempotency key must still hold")))
    return facts
