"""Storing many jobs at once: all or none, in few statements, with the locks on keys always taken in the keys' order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import groupby, islice
from typing import Any, NamedTuple

from django.db import transaction

from django_jobs import notify, payload, tracing
from django_jobs.calls import Call
from django_jobs.engines import engine
from django_jobs.engines.base import Engine
from django_jobs.engines.values import NewJob
from django_jobs.options import Enqueue
from django_jobs.queue import told
from django_jobs.queue.enqueue import taken_and_freed
from django_jobs.queue.many_checked import Check, iterator
from django_jobs.queue.new_job import refuse_another_call, refuse_event_loop, transaction_elsewhere
from django_jobs.registry import JobType

# What one statement stores at most.
ROWS = 1_000
CHARACTERS = 4_000_000
# How many calls are taken from a generator before it is known how large they are.
AHEAD = 100
# Halved at each try, a part is down to one key after ten; the others are for that one key.
TRIES = 20


class _Item(NamedTuple):
    """A call that was checked, with its place among the caller's."""

    place: int
    new: NewJob

    @property
    def key(self) -> str:
        return self.new.idempotency_key or ""


class _Freed(Exception):
    """A key was taken, and nobody's when its holder was read: deleted meanwhile, or claimed or ended, which freed it."""


def enqueue_many(job_type: JobType, using: Enqueue, calls: Iterable[Call[Any]]) -> list[int]:
    refuse_event_loop("enqueue_many")
    found = engine()
    # Asked before our own transaction is open.
    check = Check(job_type, using, found.alias, transaction_elsewhere(found.alias))
    given = iterator(job_type, calls)
    # What is in a list is in memory already.
    ahead = ROWS if type(calls) in (list, tuple) else AHEAD
    if not tracing.is_on():
        return _store(found, check, given, ahead)
    with tracing.sending(job_type.name, using.queue or job_type.queue) as sent:
        ids = _store(found, check, given, ahead)
        sent.stored(ids)
        return ids


def _store(found: Engine, check: Check, given: Iterator[Any], ahead: int) -> list[int]:
    stored: list[told.Stored] | None = [] if told.enqueues_are_heard() else None
    with found.on_working_connection(), found.storing():
        ids, keyed = _insert_unkeyed(found, check, given, ahead, stored)
        _insert_keyed(found, keyed, ids, stored)
    if stored:
        told.enqueued(found.alias, stored)
    return ids


def _insert_unkeyed(
    found: Engine, check: Check, given: Iterator[Any], ahead: int, stored: list[told.Stored] | None
) -> tuple[list[int], list[_Item]]:
    """Insert while the calls are read, so that memory holds two parts of them; return the ids, and what has a key, whose ids
    are still to be found.

    A part is under way to the database while the next is checked. It has arrived before more calls are read: what makes
    them may use the connection.
    """
    ids: list[int] = []
    keyed: list[_Item] = []
    with _Part(found, ids, stored) as part:
        while calls := list(islice(given, ahead)):
            part.send()
            for call in calls:
                new = check(len(ids), call, part.arrive)
                if new.idempotency_key is None:
                    part.add(len(ids), new)
                else:
                    keyed.append(_Item(len(ids), new))
                ids.append(0)
            part.arrive()
            ahead = part.room()
        part.send()
    return ids, keyed


class _Part:
    """Jobs that are inserted together, as many as one statement may have, and those before them that are under way."""

    def __init__(self, found: Engine, ids: list[int], stored: list[told.Stored] | None) -> None:
        self._found, self._ids, self._stored = found, ids, stored
        self._new: list[NewJob] = []
        self._places: list[int] = []
        self._size = self._largest = 0
        self._arrive: Callable[[], None] | None = None

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # What went wrong is told, and not what comes of it.
        with suppress(Exception) if kind else nullcontext():
            self.arrive()

    def add(self, place: int, new: NewJob) -> None:
        size = len(new.payload)
        self._size += size
        if size > self._largest:
            self._largest = size
        if len(self._new) == ROWS or self._size > CHARACTERS:
            self.send()
            self._size = size
        self._new.append(new)
        self._places.append(place)

    def room(self) -> int:
        """Return how many calls as large as the largest so far may be in memory beside these."""
        return max(1, min(ROWS, CHARACTERS // max(self._largest, 1)))

    def send(self) -> None:
        self.arrive()
        if self._new:
            self._arrive = partial(self._arrived, self._found.inserting(self._new), self._places, self._new)
        self._new, self._places, self._size = [], [], 0

    def arrive(self) -> None:
        """Wait until nothing is under way."""
        if self._arrive is not None:
            arrive, self._arrive = self._arrive, None
            arrive()

    def _arrived(self, inserted: Callable[[], list[int | None]], places: list[int], new: list[NewJob]) -> None:
        made = [pk for pk in inserted() if pk is not None]
        for place, pk in zip(places, made, strict=True):
            self._ids[place] = pk
        if self._stored is not None:
            self._stored += [(pk, item.terms) for pk, item in zip(made, new, strict=True)]
        notify.ready_if_due(self._found, new)


def _insert_keyed(found: Engine, keyed: list[_Item], ids: list[int], stored: list[told.Stored] | None) -> None:
    """Insert in key order over all calls: two callers with the same keys wait for each other, and never in a circle."""
    keyed.sort(key=lambda item: (item.key, item.place))
    firsts, repeats = _told_apart(keyed)
    for part in _parts(firsts):
        for item, (pk, is_new) in zip(part, _insert_part(found, part, TRIES), strict=True):
            ids[item.place] = pk
            if is_new and stored is not None:
                stored.append((pk, item.new.terms))
        notify.ready_if_due(found, [item.new for item in part])
    for item, first in repeats:
        ids[item.place] = ids[first.place]


def _told_apart(keyed: list[_Item]) -> tuple[list[_Item], list[tuple[_Item, _Item]]]:
    """Return the first call of each key, and the calls that repeat one, each with that first one."""
    firsts, repeats = [], []
    for _, group in groupby(keyed, key=lambda item: item.key):
        first, *others = group
        firsts.append(first)
        for item in others:
            owner = f"calls[{first.place}]"
            refuse_another_call(
                item.new, first.new.terms.type, first.new.payload, owner, None, f"calls[{item.place}]: "
            )
            repeats.append((item, first))
    return firsts, repeats


def _parts(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    part: list[_Item] = []
    size = 0
    for item in items:
        characters = len(item.new.payload)
        if part and (len(part) == ROWS or size + characters > CHARACTERS):
            yield part
            part, size = [], 0
        part.append(item)
        size += characters
    if part:
        yield part


def _insert_part(found: Engine, part: Sequence[_Item], tries: int) -> list[tuple[int, bool]]:
    """Insert or find the jobs of consecutive keys; return their ids, each with whether it is new.

    When a key is freed meanwhile, to insert it then would be out of order. So the savepoint lets go of the locks of this
    part, all the others are on lower keys, and it is begun again in halves: the smaller a part, the sooner it is through
    before workers free another of its keys.
    """
    try:
        with transaction.atomic(using=found.alias):
            made = found.insert_many([item.new for item in part])
            return _held(found, part, made)
    except _Freed as freed:
        if tries == 1:
            raise taken_and_freed(str(freed), TRIES) from None
    half = (len(part) + 1) // 2
    halves = [part[:half], part[half:]] if len(part) > 1 else [part]
    return [made for smaller in halves for made in _insert_part(found, smaller, tries - 1)]


def _held(found: Engine, part: Sequence[_Item], made: Sequence[int | None]) -> list[tuple[int, bool]]:
    """Return the ids of the jobs that were made and, where the key was taken, of those that have it."""
    taken = [item.key for item, new_id in zip(part, made, strict=True) if new_id is None]
    holders = found.holders(taken) if taken else {}
    return [
        (_holder_of(item, holders), False) if new_id is None else (new_id, True)
        for item, new_id in zip(part, made, strict=True)
    ]


def _holder_of(item: _Item, holders: dict[str, Any]) -> int:
    holder = holders.get(item.key)
    if holder is None:
        raise _Freed(item.key)
    held = payload.dump(holder.payload)
    refuse_another_call(item.new, holder.type, held, f"job {holder.pk}", holder.pk, f"calls[{item.place}]: ")
    return int(holder.pk)
