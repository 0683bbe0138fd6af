"""Acts upon many jobs in words: what was asked for, how far it is, and how long it may take."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_jobs.admin.asked import STATE_LABELS, list_address
from django_jobs.admin.figures import capped, length, number
from django_jobs.engines import jobs_alias
from django_jobs.explain import explain
from django_jobs.models import BulkAct, Job, find
from django_jobs.models.clock import from_row
from django_jobs.queue.bulk_acts import states
from django_jobs.queue.sought import WAITING, Sought

VERBS = {
    BulkAct.Act.REQUEUE: gettext_lazy("Requeue"),
    BulkAct.Act.CANCEL: gettext_lazy("Cancel"),
    BulkAct.Act.MOVE: gettext_lazy("Change queue"),
    BulkAct.Act.DELETE: gettext_lazy("Delete"),
}
OFFERS = {
    BulkAct.Act.REQUEUE: gettext_lazy("Requeue…"),
    BulkAct.Act.CANCEL: gettext_lazy("Cancel…"),
    BulkAct.Act.MOVE: gettext_lazy("Change queue…"),
    BulkAct.Act.DELETE: gettext_lazy("Delete…"),
}
EFFECTS = {
    BulkAct.Act.REQUEUE: gettext_lazy(
        "Each runs again, with all its attempts, and is due at once: jobs of the same queue and priority that come later "
        "wait behind it, unless a pace leaves room between them."
    ),
    BulkAct.Act.CANCEL: gettext_lazy(
        "What waits will not run, and can be requeued later. What runs is told to stop; what it did until then stays done."
    ),
    BulkAct.Act.MOVE: gettext_lazy("Each keeps its due time and its priority. What runs stays where it is."),
    BulkAct.Act.DELETE: gettext_lazy("They cannot be brought back. What runs is never deleted."),
}
# In which states jobs can be that the filter's state finds.
_STATUSES: dict[str, tuple[str, ...]] = {
    **{status.value: (status.value,) for status in Job.Status},
    **dict.fromkeys(WAITING, (Job.Status.READY.value,)),
    "dead-letters": Job.DEAD_LETTERS,
}
_NAMES = {
    "state": gettext_lazy("state"),
    "queue": gettext_lazy("queue"),
    "type": gettext_lazy("type"),
    "priority": gettext_lazy("priority"),
    "tag": gettext_lazy("tag"),
    "worker": gettext_lazy("worker"),
    "schedule": gettext_lazy("schedule"),
    "parked": gettext_lazy("parked"),
    "key": gettext_lazy("idempotency key"),
    "error": gettext_lazy("error"),
    "line": gettext_lazy("last line of the error"),
    "argument": gettext_lazy("argument"),
    "since": gettext_lazy("since"),
    "until": gettext_lazy("until"),
}


def in_words(sought: Sought) -> str:
    """Return what jobs a filter finds, in a line."""
    parts = [f"{_NAMES.get(name, name)}: {_value(name, value)}" for name, value in sought.as_json().items()]
    return "; ".join(parts) or _("all jobs")


def _value(name: str, value: Any) -> str:
    if name == "state":
        return str(STATE_LABELS.get(value, value))
    return "=".join(value) if name == "argument" else str(value)


def counted(found: int | None, is_capped: bool) -> str:
    """Return a count as people read it."""
    if found is None:
        return _("an unknown number")
    return capped(found, is_capped)


def meant(act: str, sought: Sought, number: int | None = None) -> str:
    """Say in which states the jobs have to be that the act means, of which there are so many."""
    found = states(act, sought)
    narrower = _STATUSES.get(sought.state, found)
    labels = [str(Job.Status(status).label) for status in found if status in narrower]
    are = ngettext("job that is %s", "jobs that are %s", 2 if number is None else number)
    return are % _(" or ").join(labels)


def title(act: Any) -> str:
    """Return what an act does, without the filter."""
    verb = VERBS[BulkAct.Act(act.act)]
    return _("%(verb)s to %(queue)s") % {"verb": verb, "queue": act.queue} if act.queue else str(verb)


def state(act: Any) -> tuple[str, str]:
    """Return where an act, marked as carried or not, is: as a word for style sheets and in the words of people."""
    if act.state in BulkAct.UNDER_WAY and not act.is_carried:
        return "stopped", _("stopped")
    if act.state == BulkAct.State.WAITING and act.is_begun:
        return BulkAct.State.RUNNING.value, str(BulkAct.State.RUNNING.label)  # its job runs, before its first step
    return act.state, act.get_state_display()


def badge(slug: str, word: str) -> str:
    return format_html('<span class="dj-state dj-state-bulk-{}">{}</span>', slug, word)


def share(act: BulkAct) -> float:
    """Return which part of an act is over, from 0 to 1: of the jobs or, where these were not counted, of the ids."""
    if act.state == BulkAct.State.DONE:
        return 1.0
    if act.counted and not act.is_capped:
        return min(act.handled / act.counted, 1.0)
    return (act.after - act.start) / max(act.upto - act.start, 1)


def rate(act: Any) -> float | None:
    """Return how many jobs it came to in a second since it goes on, None when there is nothing to tell it by."""
    if act.began_at is None or act.stepped_at is None:
        return None
    passed = (act.stepped_at - act.began_at).total_seconds()
    if passed <= 0:
        return None
    now: float = (act.handled - act.began_with) / passed
    # The first helping of a pace comes at once.
    return now if act.per_minute is None else min(now, act.per_minute / 60)


def pace(act: BulkAct) -> str:
    if act.per_minute is None:
        return _("as fast as is good")
    return _("%s a minute at most") % number(act.per_minute)


def bar(act: BulkAct) -> SafeString:
    part = share(act)
    label = f"{100 * part:.0f} %"
    return format_html('<progress max="1" value="{}" aria-label="{}"></progress> {}', f"{part:.4f}", label, label)


def progress(act: BulkAct) -> str:
    """Return how many of how many jobs are done, and how many were refused."""
    done = number(act.done)
    if act.counted is not None and not (act.is_capped and act.handled >= act.counted):
        done = _("%(done)s of %(all)s done") % {"done": done, "all": counted(act.counted, act.is_capped)}
    else:
        done = _("%s done") % done
    parts = [done]
    if act.asked:
        parts.append(_("%s of them run and are told to stop") % number(act.asked))
    if act.refused:
        parts.append(_("%s refused") % number(act.refused))
    return ", ".join(parts)


def afterwards(act: BulkAct) -> list[tuple[str, str]]:
    """Return the lists in which the jobs are that an act has come to, once it is done, each a label and an address.

    By what the filter says of them beside their state and error, which they no longer have.
    """
    if act.state != BulkAct.State.DONE or not act.done or act.act == BulkAct.Act.DELETE:
        return []
    alike = replace(
        Sought.from_json(act.sought), state="", worker="", parked="", error="", line="", since=None, until=None
    )
    if act.act == BulkAct.Act.MOVE:
        return [(_("the queue %s") % act.queue, list_address(replace(alike, queue=act.queue)))]
    since = from_row(act.created_at, str(act._state.db))
    ended = ("done", "dead-letters") if act.act == BulkAct.Act.REQUEUE else ("cancelled",)
    waiting = ("due", "running", "retries") if act.act == BulkAct.Act.REQUEUE else ()
    return [
        *(
            (_("%s since then") % STATE_LABELS[state], list_address(replace(alike, state=state, since=since)))
            for state in ended
        ),
        *((str(STATE_LABELS[state]), list_address(replace(alike, state=state))) for state in waiting),
    ]


def outlook(act: Any) -> str:
    """Say how fast it goes and how long that may take, or why it does not go on."""
    if act.state not in BulkAct.UNDER_WAY:
        return ""
    found = find(jobs_alias(), act.job_id or 0)
    if not act.is_carried:
        why = _("its job is gone.") if found is None else explain(found).translated()
        return _("It does not go on by itself: %s") % why
    if act.stepped_at is None or act.began_at is None:
        return "" if found is None or act.is_begun else explain(found)
    return _going(act)


def _going(act: BulkAct) -> str:
    now = rate(act)
    if now is None or now <= 0:
        return ""
    parts = [_("%s a second") % number(round(now)) if now >= 1 else _("%s a minute") % number(round(60 * now))]
    if act.counted and not act.is_capped and act.handled < act.counted:
        left = timedelta(seconds=(act.counted - act.handled) / now)
        parts.append(_("about %s left") % length(left))
    return ", ".join(parts)
