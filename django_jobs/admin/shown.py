"""How values of rows look on a page. All that comes from a row is escaped here or by the template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _

from django_jobs.admin import figures
from django_jobs.admin.addresses import address
from django_jobs.admin.figures import NOTHING as NOTHING
from django_jobs.models import Job, Worker

# Longer values are folded, and what is longer still is cut: the command `jobs show` prints all.
FOLD, CUT = 2_000, 100_000
ONE_LINE = 100
CALL = 60
_BEFORE_ARGUMENTS = re.compile(r'^{"args": ?\[(\], ?"kwargs": ?{)?')


def exact(moment: datetime) -> str:
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {local:%Z}".rstrip()


def minute(moment: datetime) -> str:
    """Return the minute of a time, with the zone whose clock shows it."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{local:%Y-%m-%d %H:%M} {local:%Z}".rstrip()


def age(moment: datetime | None, clock: datetime) -> str:
    """Return how far a moment is from the database's clock, with the exact time as a tooltip."""
    if moment is None:
        return NOTHING
    far = (
        _("in %s") % figures.length(moment - clock) if moment > clock else _("%s ago") % figures.length(clock - moment)
    )
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact(moment), far)


def moment(value: datetime | None, clock: datetime) -> str:
    """Return a time with its age beside it."""
    if value is None:
        return NOTHING
    return format_html('{} <span class="quiet nowrap">({})</span>', exact(value), age(value, clock))


def name(text: str) -> str:
    """Return a dotted name that can be broken after its dots."""
    return format_html('<span class="dj-name">{}</span>', format_html_join(mark_safe("<wbr>"), "{}", _parts(text)))


def _parts(text: str) -> Iterator[tuple[str]]:
    *heads, last = text.split(".")
    yield from ((f"{head}.",) for head in heads)
    yield (last,)


def state(job: Any, clock: datetime) -> tuple[str, str]:
    """Return the state of a job, marked as held or not, as a word for style sheets and in the words of people."""
    if job.status != Job.Status.READY:
        return job.status, job.get_status_display()
    if job.parked:
        return "parked", _("parked")
    if job.held and job.run_at <= clock:
        return "paused", _("paused")
    if job.attempts:
        return "retry", _("retry, waiting") if job.run_at > clock else _("retry, due")
    return ("scheduled", _("scheduled")) if job.run_at > clock else ("due", _("due"))


def badge(job: Any, clock: datetime) -> str:
    return format_html('<span class="dj-state dj-state-{}">{}</span>', *state(job, clock))


def reason(job: Any) -> str:
    """Return why a job is in its state, where a word of the row says it."""
    if job.parked == Job.Parked.PAUSE and not job.held:
        return _("by a pause that is over")
    if job.parked:
        return str(job.get_parked_display())
    return _("asked to stop") if job.status == Job.Status.RUNNING and job.cancel_reason is not None else ""


def attempts(job: Job) -> str:
    """Return which attempt the job waits for, is in, or ended with."""
    return _("%(number)d of %(allowed)d") % {"number": job.attempt, "allowed": job.max_attempts}


def last_line(text: str) -> str:
    """Return the line of a traceback that says what happened."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def call(payload: str) -> str:
    """Return the arguments of a call in short, from the beginning of what is stored of them."""
    try:
        match json.loads(payload):
            case {"args": list() as args, "kwargs": dict() as kwargs}:
                named = [f"{name}={_compact(value)}" for name, value in kwargs.items()]
                text = ", ".join([*map(_compact, args), *named])
            case _:
                text = payload
    except ValueError:  # it was cut
        text = _BEFORE_ARGUMENTS.sub("", payload)
    return text if len(text) <= CALL else f"{text[:CALL]}…"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_json(value: Any) -> str:
    """Return a JSON value in one line where it is short, else folded."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > ONE_LINE:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return folded(text)


def folded(text: str) -> str:
    if len(text) <= FOLD:
        return format_html('<pre class="dj-text">{}</pre>', text)
    size = _("%s characters") % figures.number(len(text))
    cut = (
        _("The first %s characters; all of it by the command `jobs show`.") % figures.number(CUT)
        if len(text) > CUT
        else ""
    )
    return format_html(
        '<details class="dj-folded"><summary><code>{}…</code> <span class="quiet">{}</span></summary>'
        '<pre class="dj-text">{}</pre><p class="help">{}</p></details>',
        " ".join(text[:200].split())[:80],
        size,
        text[:CUT],
        cut,
    )


def progress(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    done, total = value.get("done"), value.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float):
        return ""
    return format_html(
        '<progress max="{}" value="{}"></progress> {} <span class="quiet">{}</span>',
        total,
        done,
        _("%(done)s of %(total)s") % {"done": _amount(done), "total": _amount(total)},
        str(value.get("note") or "")[:300],
    )


def _amount(value: float) -> str:
    return figures.number(value) if isinstance(value, int) else f"{value:g}"


def runs(history: Any, clock: datetime, workers: dict[str, Worker]) -> Iterator[dict[str, Any]]:
    """Return the lines of a job's history for the table of the page, the newest first."""
    for line in reversed(history if isinstance(history, list) else []):
        if not isinstance(line, dict):
            continue
        at = parse_datetime(str(line.get("at") or ""))
        host = str(line.get("worker") or NOTHING)
        yield {
            "run": line.get("run", NOTHING),
            "cause": line.get("cause", NOTHING),
            "error": folded(str(line.get("error") or "")),
            "worker": worker_link(workers[host]) if host in workers else host,
            "seconds": line.get("seconds", NOTHING),
            "at": age(as_clock(at, clock), clock),
        }


def as_clock(moment: datetime | None, clock: datetime) -> datetime | None:
    """The history's times are in UTC whether or not the project stores times with their zone."""
    if moment is None or timezone.is_aware(moment) == timezone.is_aware(clock):
        return moment
    return timezone.make_naive(moment) if timezone.is_aware(moment) else timezone.make_aware(moment)


def worker_badge(worker: Any) -> str:
    """Return the state of a worker process that is marked as live or not."""
    if not worker.live:
        slug, word = "silent", _("silent")
    elif worker.asked == Worker.Asked.STOP:
        slug, word = "stopping", _("stopping")
    elif worker.asked == Worker.Asked.QUIET:
        slug, word = "quiet", _("quiet")
    else:
        slug, word = "live", _("live")
    return format_html('<span class="dj-state dj-state-{}">{}</span>', slug, word)


def queues(worker: Worker) -> str:
    """Return the queues that a worker process serves."""
    return _("all") if worker.queues is None else ", ".join(map(str, worker.queues))


def worker_link(worker: Worker) -> str:
    return _link(address("django_jobs_worker_change", worker.pk), str(worker))


def job_address(job_id: int) -> str:
    """Return the address of a job's page, which leads to the archive's if it is archived by then."""
    return address("django_jobs_job_change", job_id)


def job_link(job_id: int) -> str:
    return _link(job_address(job_id), str(job_id))


def schedule_link(pk: int, text: str) -> str:
    return _link(address("django_jobs_schedule_change", pk), name(text))


def _link(url: str, text: str) -> str:
    """Return a link, or the text alone where the site has no such page."""
    return format_html('<a href="{}">{}</a>', url, text) if url else format_html("{}", text)
