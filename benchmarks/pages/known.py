"""The pages that are measured: those listed here, every address of the admin's, and what these lead to.

To measure another, add a line to `LISTED`. `{dead}` and the like are the ids of rows there are. A page that the site does
not have, or has moved, is named and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import unquote

from django.apps import apps
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from django_jobs.models import ArchivedJob, Job

JOBS, ARCHIVE = "/admin/django_jobs/job/", "/admin/django_jobs/archivedjob/"
BULK = "/admin/django_jobs/bulkact/add/"
LISTED = {
    "overview": "/admin/django_jobs/",
    "overview, 1 h": "/admin/django_jobs/?span=1h",
    "overview, 24 h": "/admin/django_jobs/?span=24h",
    "overview, 7 d": "/admin/django_jobs/?span=7d",
    "jobs": JOBS,
    "search: id of a dead job": f"{JOBS}?q={{dead}}",
    "search: id of an archived job": f"{JOBS}?q={{archived}}",
    "search: key": f"{JOBS}?q=order:{{keyed}}",
    "search: beginning of keys": f"{JOBS}?q=order:1",
    "search: error that many have": f"{JOBS}?q=SMTPServerDisconnected",
    "search: error that none has": f"{JOBS}?q=NoSuchThing",
    "search: errors of dead letters": f"{JOBS}?state=dead-letters&q=DeadlockDetected",
    "search: args.0": f"{JOBS}?q=args.0%3D17",
    "search: kwargs": f"{JOBS}?q=kwargs.order_id%3D{{dead}}",
    "search: kwargs that none has": f"{JOBS}?q=kwargs.order_id%3D-1",
    "jobs with a tag": f"{JOBS}?tag=vip",
    "jobs, dead, of a type": f"{JOBS}?state=dead-letters&type=shop.jobs.charge",
    "jobs, done, of a queue that is not there": f"{JOBS}?state=done&queue=nowhere",
    "job: dead": f"{JOBS}{{dead}}/change/",
    "job: done": f"{JOBS}{{done}}/change/",
    "job: waits": f"{JOBS}{{due}}/change/",
    "job: parked": f"{JOBS}{{parked}}/change/",
    "job: to be tried again": f"{JOBS}{{retry}}/change/",
    "job: runs": f"{JOBS}{{running}}/change/",
    "job: archived": f"{ARCHIVE}{{archived}}/change/",
    "archive": ARCHIVE,
    "archive, search: id": f"{ARCHIVE}?q={{archived}}",
    "archive, search: error": f"{ARCHIVE}?q=SMTPServerDisconnected",
    "archive, dead": f"{ARCHIVE}?state=dead-letters",
    "archive, search: kwargs that none has": f"{ARCHIVE}?q=kwargs.order_id%3D-1",
    "all found: requeue dead letters": f"{BULK}?act=requeue&state=dead-letters",
    "all found: requeue by an error": f"{BULK}?act=requeue&state=dead-letters&error=DeadlockDetected",
    "all found: cancel what waits in a queue": f"{BULK}?act=cancel&state=due&queue=newsletter",
    "all found: delete what is done": f"{BULK}?act=delete&state=done",
}
# Asked by POST, with the fields of the list's form.
POSTED: dict[str, tuple[str, dict[str, str]]] = {
    "confirm: cancel two jobs": (JOBS, {"action": "cancel", "index": "0", "_selected_action": "{due},{running}"}),
}
# How many links are followed from a page to one address, for each parameter that comes first.
FOLLOWED = 4
LINK = re.compile(r'<a[^>]*\shref="((?:/admin/django_jobs/[a-z_/]*)?\?[^"]*)"', re.I)


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    address: str
    form: dict[str, str] = field(default_factory=dict, hash=False)


def known() -> Iterator[Page]:
    there = rows()
    for name, address in LISTED.items():
        yield Page(name, address.format(**there))
    for name, (address, form) in POSTED.items():
        yield Page(name, address, {key: value.format(**there) for key, value in form.items()})
    seen = {address.format(**there) for address in LISTED.values()}
    for name, address in _addresses(get_resolver(), there):
        if address not in seen:
            yield Page(name, address)


def followed(page: Page, text: str) -> Iterator[Page]:
    """Return where a page leads within ours: its filters, its next and last page, and lists that are narrowed already."""
    counted: dict[str, int] = {}
    seen = {page.address}
    for found in LINK.findall(text):
        address = unescape(found)
        if address.startswith("?"):
            address = page.address.partition("?")[0] + address
        about = address.partition("=")[0]
        counted[about] = counted.get(about, 0) + 1
        if counted[about] <= FOLLOWED and address not in seen and not address.endswith("?"):
            seen.add(address)
            yield Page(f"{page.name} > {unquote(address).removeprefix('/admin/django_jobs/')}", address)


def rows() -> dict[str, Any]:
    """Return the ids that addresses name."""
    jobs, ready = Job.objects.order_by(), Job.objects.ready().filter(parked__isnull=True)
    dead = jobs.filter(status="dead").order_by("-finished_at").values_list("pk", flat=True)
    return {
        "dead": dead[10],
        "keyed": next(pk for pk in dead[:100] if pk % 4 == 0),
        "done": jobs.order_by("-pk").filter(status="done").values_list("pk", flat=True)[0],
        "due": ready.due().order_by("queue", "-priority", "run_at").values_list("pk", flat=True)[0],
        "retry": ready.filter(attempts__gt=0, queue="mail").values_list("pk", flat=True)[0],
        "parked": jobs.filter(parked="type").values_list("pk", flat=True)[0],
        "running": jobs.running().values_list("pk", flat=True)[0],
        "archived": ArchivedJob.objects.order_by("-pk").values_list("pk", flat=True)[5],
    }


def _addresses(resolver: URLResolver, rows: dict[str, Any], space: str = "") -> Iterator[tuple[str, str]]:
    """Return every address of ours that can be asked for, by its name, of the first row of its model."""
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from _addresses(entry, rows, f"{space}{entry.namespace}:" if entry.namespace else space)
        elif isinstance(entry, URLPattern) and (entry.name or "").startswith("django_jobs_"):
            name = str(entry.name).removeprefix("django_jobs_")
            parameters = list(entry.pattern.regex.groupindex)
            pk = _pk(name.partition("_")[0], rows)
            if len(parameters) <= (pk is not None):
                yield name, reverse(f"{space}{entry.name}", args=[pk] if parameters else [])


def _pk(name: str, rows: dict[str, Any]) -> Any:
    model = apps.all_models["django_jobs"].get(name)
    if model is None:
        return None
    known = {"job": rows["dead"], "archivedjob": rows["archived"]}
    return known.get(name) or model._default_manager.order_by("pk").values_list("pk", flat=True).first()
