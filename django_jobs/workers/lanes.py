"""In which order a worker process serves the lanes it knows, and from which place on it reads each of them.

What was claimed stays in the index until it is cleaned up, which an old snapshot can put off for hours; a claim that began
at the first entry would read all of it again. So each lane has a place, below which nothing is expected. Jobs can come to
be below it: those of a long transaction that commits late, and what was given back. A look, which reads each lane from its
beginning, finds them, and puts the place back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from django_jobs.engines.values import Claimed, Lane, Look

# Most transactions that enqueue end sooner: what they commit is above the place.
LATE_SECONDS = 2.0
# However many jobs these seconds had, a claim reads no more than so many again.
LATE_JOBS = 2000
# A lane that was empty for so many looks is forgotten.
EMPTY_LOOKS = 600
# Each lane costs each claim. So many are kept in mind although nothing is due in them, since a job may come at any moment;
# in others, if there are more, it is found by the next look.
RESTING_LANES = 100


class _Reached(NamedTuple):
    """How far a lane was claimed when so many of its jobs had been."""

    due: float
    id: int
    jobs: int


class _Track:
    """One lane: its place, and the way there."""

    def __init__(self, due: float, job_id: int) -> None:
        self.due = due
        self.id = job_id
        self.empty_looks = 0
        # For so many looks nothing was due.
        self.resting_looks = 0
        self._reached: deque[_Reached] = deque()
        self._jobs = 0

    def claimed(self, last: Claimed, jobs: int) -> None:
        """Move on behind so many jobs that were claimed, of which this was the last."""
        self._jobs += jobs
        self._reached.append(_Reached(last.due, last.id, self._jobs))
        while len(self._reached) > 1 and self._jobs - self._reached[1].jobs >= LATE_JOBS:
            self._reached.popleft()
        behind = self._reached[0]
        place = min((last.due, last.id), (last.due + last.waited - LATE_SECONDS, 0))
        if self._jobs - behind.jobs >= LATE_JOBS:
            place = max(place, (behind.due, behind.id))
        self.due, self.id = max((self.due, self.id), place)

    def seen(self, first: Lane | None, now: float) -> None:
        """Put the place where a look found the first job of all, or the seconds before it where it found none."""
        self.empty_looks = 0 if first else self.empty_looks + 1
        self.resting_looks = 0 if first and first.due <= now else self.resting_looks + 1
        place = (now - LATE_SECONDS, 0)
        self.due, self.id = min(place, (first.due, first.id)) if first else place


class Lanes:
    """The lanes that a worker process has met. `oldest_share` of its claims goes to what is due longest in any of them."""

    def __init__(self, oldest_share: float) -> None:
        self._share = oldest_share
        self._tracks: dict[tuple[str, int], _Track] = {}
        # Those that claims are to serve.
        self._served: dict[tuple[str, int], _Track] = {}
        # What the oldest have coming to them, in jobs.
        self._owed = 0.0
        self._turn = 0

    def __bool__(self) -> bool:
        return bool(self._tracks)

    def look(self, found: Look) -> None:
        """Take in a look from the beginning of each lane."""
        firsts = {(lane.queue, lane.priority): lane for lane in found.lanes}
        for key, lane in firsts.items():
            if key not in self._tracks:
                self._tracks[key] = _Track(lane.due, lane.id)
        for key, track in list(self._tracks.items()):
            track.seen(firsts.get(key), found.now)
            if track.empty_looks > EMPTY_LOOKS:
                del self._tracks[key]
        self._choose()

    def _choose(self) -> None:
        if len(self._tracks) <= RESTING_LANES:
            self._served = dict(self._tracks)
            return
        in_turn = sorted(self._tracks.items(), key=lambda item: item[1].resting_looks)
        due = sum(not track.resting_looks for track in self._tracks.values())
        self._served = dict(in_turn[: max(due, RESTING_LANES)])
        # What is neither served nor there any more is found like a new one if it comes again.
        self._tracks = {key: track for key, track in in_turn if key in self._served or not track.empty_looks}

    def in_turn(self) -> tuple[Lane, ...]:
        """Return the lanes as the next claim is to serve them: queue by queue, another one first each time."""
        queues = sorted({queue for queue, _ in self._served})
        first = self._turn % len(queues) if queues else 0
        turns = {queue: turn for turn, queue in enumerate(queues[first:] + queues[:first])}
        lanes = [Lane(*key, track.due, track.id) for key, track in self._served.items()]
        return tuple(sorted(lanes, key=lambda lane: (turns[lane.queue], -lane.priority)))

    def oldest_of(self, wanted: int) -> int:
        """Return how many of so many jobs are to be those due longest."""
        return int(self._owed + self._share * wanted) if len(self._served) > 1 else 0

    def claimed(self, jobs: Sequence[Claimed], oldest: int, parked: int = 0) -> None:
        """Take note of what a claim brought, of which so many were to be those due longest, and what it parked."""
        if not jobs:
            self._turn += parked > 0
            return
        # Not by a claim of the oldest alone: each fourth of one job is, and of four queues one would never have a turn.
        self._turn += len(jobs) > oldest
        if len(self._served) > 1:
            self._owed = max(-1.0, min(self._owed + self._share * len(jobs) - min(oldest, len(jobs)), 1.0))
        # They are in due order lane by lane: the last of each stays.
        lasts = {(job.queue, job.priority): job for job in jobs}
        numbers = (
            Counter((job.queue, job.priority) for job in jobs) if len(lasts) > 1 else dict.fromkeys(lasts, len(jobs))
        )
        for key, last in lasts.items():
            if key in self._tracks:
                self._tracks[key].claimed(last, numbers[key])
