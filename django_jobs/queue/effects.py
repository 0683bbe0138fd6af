"""What a person says of an effect outside the database of which no answer was seen."""

from __future__ import annotations

from django_jobs import log
from django_jobs.engines import engine, jobs_alias
from django_jobs.exceptions import StateConflict
from django_jobs.models import Effect, Job
from django_jobs.models.clock import Clock, database_now
from django_jobs.queue import effect_log
from django_jobs.texts import text as _

HAPPENED, DID_NOT_HAPPEN = "it happened", "it did not happen"


def happened(effect_id: int, *, seen: int | None = None, why: str = "", by: str = "") -> Effect:
    """Record that an effect took place, with a note; a next run of its job finds it answered, without a result.

    `seen` is how often it was asked for when the person looked. Return the effect; raise StateConflict when there is
    nothing to settle.
    """
    with engine().acting():
        found = _to_be_settled(effect_id, seen)
        at = f"{database_now(jobs_alias()):%Y-%m-%d %H:%M:%S} UTC"
        note = f"{at}, {by}: {HAPPENED}" + (f": {why}" if why else "")
        Effect.objects.using(jobs_alias()).filter(pk=effect_id).update(answered_at=Clock(), note=note)
        log.when_committed(jobs_alias(), effect_log.effect_settled, found.key, HAPPENED, by, why)
    return found


def did_not_happen(effect_id: int, *, seen: int | None = None, why: str = "", by: str = "") -> Effect:
    """Delete the record of an effect that did not take place: a next run of its job asks as if for the first time.

    Return what was deleted; raise StateConflict when there is nothing to settle.
    """
    with engine().acting():
        found = _to_be_settled(effect_id, seen)
        Effect.objects.using(jobs_alias()).filter(pk=effect_id).delete()
        log.when_committed(jobs_alias(), effect_log.effect_settled, found.key, DID_NOT_HAPPEN, by, why)
    return found


def _to_be_settled(effect_id: int, seen: int | None) -> Effect:
    rows = Effect.objects.using(jobs_alias())
    found: Effect | None = rows.select_for_update().filter(pk=effect_id).first()
    if found is None:
        raise StateConflict(_("There is no effect %d any more.", effect_id))
    if found.kind != Effect.Kind.OUTSIDE or found.answered_at is not None:
        raise StateConflict(_("The effect %r has taken place; there is nothing to settle.", found.key))
    if seen is not None and found.asks != seen:
        raise StateConflict(_("The effect %r was asked for again since you looked; look again.", found.key))
    if Job.objects.using(jobs_alias()).running().filter(pk=found.job_id).exists():
        raise StateConflict(
            _(
                "Job %(id)d runs now and may have %(key)r under way; wait until it has ended.",
                id=found.job_id,
                key=found.key,
            )
        )
    return found
