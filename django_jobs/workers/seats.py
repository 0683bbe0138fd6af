"""The memory that a supervisor shares with its worker processes and that survives a SIGKILL of any of them.

One mapping, made before the first fork. Each worker process has a region: a header, and one seat for each job it has
claimed, runs or has run without its outcome being stored. Every field has one writer, and no lock exists that a dead
process could hold. All is aligned and packed natively, so that a number is written whole. Times are CLOCK_MONOTONIC,
which all processes of a host share.
"""

from __future__ import annotations

import math
import mmap
import struct
import threading
import time
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

SEATS = 2048
_RECORD = struct.Struct("@qqqdq")  # job id, token, claim number, claimed at, check
_RECORD_SIZE = 48  # the record, and its state in the byte behind it
_STATE = _RECORD.size
_DOUBLE = struct.Struct("@d")
_LONG = struct.Struct("@q")
_RUN = struct.Struct("@qq")  # job id, token
_COUNTERS = ("done", "retried", "failed", "dead", "cancelled", "released", "lost_leases", "stopped")
# Offsets in a region. Written by the child:
_CLAIM_TICK, _WRITE_TICK, _PHASE, _FIRST_COUNTER = 0, 8, 16, 24
_RESTS = 120
# by the supervisor, and by the template:
_STOP, _ORPHANED, _DRAIN, _CUT_AT = 128, 136, 144, 152
# by the supervisor and the other worker processes, of which any may be the last:
_WOKEN_AT, _CALLED_AT = 160, 168
# by the supervisor:
_QUIET = 176
_SEATS_AT = 192


class State(IntEnum):
    FREE = 0
    CLAIMED = 1
    RUNNING = 2
    RETURNED = 3


class Phase(IntEnum):
    STARTING = 0
    BUSY = 1
    IDLE = 2
    ENDED = 3
    FAILED = 4
    DRAINING = 5


_CLAIMED = int(State.CLAIMED)
_STATES = frozenset(State)
_PHASES = frozenset(Phase)


class Seat(NamedTuple):
    """One taken seat. A `torn` one was being written, or scribbled over, and names no job."""

    number: int
    state: State
    job_id: int
    token: int
    claim: int
    claimed_at: float
    torn: bool = False
    # Of the run, on the monotonic clock; 0 for none.
    deadline: float = 0.0

    def is_late(self, now: float, patience: float) -> bool:
        """Tell whether the run goes on although it passed its deadline and was given so many seconds to end."""
        return self.state is State.RUNNING and 0 < self.deadline <= now - patience


class Told(NamedTuple):
    """When a process was last asked to claim: for a job that came, and for what is too much for another process."""

    woken_at: float
    called_at: float


class Region:
    """The part of the mapping that belongs to one worker process."""

    SIZE = _SEATS_AT + SEATS * (_RECORD_SIZE + _RUN.size + _DOUBLE.size)

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self._memory = memory
        self._base = index * self.SIZE
        self._seats = self._base + _SEATS_AT
        self._stops = self._seats + SEATS * _RECORD_SIZE
        self._deadlines = self._stops + SEATS * _RUN.size

    def clear(self) -> None:
        self._memory[self._base : self._base + self.SIZE] = bytes(self.SIZE)

    # The child writes.

    def take(self, runs: Iterable[tuple[int, int, int]], claim: int, now: float | None = None) -> None:
        """Fill a free seat for each (index, job id, token), claimed `now`; it counts once its state byte is written."""
        now = time.monotonic() if now is None else now
        memory, first, pack = self._memory, self._seats, _RECORD.pack_into
        for index, job_id, token in runs:
            at = first + index * _RECORD_SIZE
            pack(memory, at, job_id, token, claim, now, _check(job_id, token, claim))
            memory[at + _STATE] = _CLAIMED

    def begin(self, index: int, deadline: float) -> None:
        """Mark a seat as running until `deadline`, infinite for none."""
        known = 0.0 if deadline == math.inf else deadline
        _DOUBLE.pack_into(self._memory, self._deadlines + _DOUBLE.size * index, known)
        self.mark(index, State.RUNNING)

    def mark(self, index: int, state: State) -> None:
        self._memory[self._seats + index * _RECORD_SIZE + _STATE] = state

    def tick_claims(self) -> None:
        _DOUBLE.pack_into(self._memory, self._base + _CLAIM_TICK, time.monotonic())

    def tick_writes(self) -> None:
        _DOUBLE.pack_into(self._memory, self._base + _WRITE_TICK, time.monotonic())

    def set_phase(self, phase: Phase) -> None:
        self._memory[self._base + _PHASE] = phase

    def set_rests(self, rests: bool) -> None:
        """Say whether this process would claim, and waits until its next look."""
        self._memory[self._base + _RESTS] = rests

    def count(self, name: str, number: int = 1) -> None:
        at = self._base + _FIRST_COUNTER + 8 * _COUNTERS.index(name)
        _LONG.pack_into(self._memory, at, _LONG.unpack_from(self._memory, at)[0] + number)

    # The supervisor and the template write.

    def ask_to_stop(self, cut_at: float = 0.0) -> None:
        """Tell all runs to stop; at `cut_at`, if that is given, async ones are cancelled."""
        _DOUBLE.pack_into(self._memory, self._base + _CUT_AT, cut_at)
        self._memory[self._base + _STOP] = 1

    def ask_to_drain(self) -> None:
        """Tell the process to claim nothing more, and to end when its runs have."""
        self._memory[self._base + _DRAIN] = 1

    def set_quiet(self, quiet: bool) -> None:
        """Tell the process to claim nothing, or to claim again; it goes on in either case."""
        self._memory[self._base + _QUIET] = quiet

    def orphan(self) -> None:
        self._memory[self._base + _ORPHANED] = 1

    def stop_run(self, index: int, job_id: int, token: int) -> None:
        """Ask a run to stop, or a claim not to be started. It names the run: the seat may have another one by now."""
        _RUN.pack_into(self._memory, self._stops + _RUN.size * index, job_id, token)

    def wake(self) -> None:
        """Ask the process to claim at once; it sees it when its doorbell rings."""
        _DOUBLE.pack_into(self._memory, self._base + _WOKEN_AT, time.monotonic())

    def call(self) -> None:
        """Ask the process to claim at once, since another one of its supervisor found more than it can take."""
        _DOUBLE.pack_into(self._memory, self._base + _CALLED_AT, time.monotonic())

    # Anybody reads.

    @property
    def rests(self) -> bool:
        return bool(self._memory[self._base + _RESTS])

    @property
    def told(self) -> Told:
        return Told(*(_DOUBLE.unpack_from(self._memory, self._base + at)[0] for at in (_WOKEN_AT, _CALLED_AT)))

    @property
    def stop_asked(self) -> bool:
        return bool(self._memory[self._base + _STOP] or self._memory[self._base + _ORPHANED])

    def tick_until_ended(self) -> None:
        """Have a thread of its own tick for the loop that claims, which only waits from here on."""

        def tick() -> None:
            while self.phase != Phase.ENDED:
                self.tick_claims()
                threading.Event().wait(0.5)

        threading.Thread(target=tick, name="django_jobs-ticker", daemon=True).start()

    @property
    def drain_asked(self) -> bool:
        return bool(self._memory[self._base + _DRAIN])

    @property
    def quiet_asked(self) -> bool:
        return bool(self._memory[self._base + _QUIET])

    @property
    def cut_due(self) -> bool:
        """Whether the time has come to cancel what can be cancelled."""
        at = _DOUBLE.unpack_from(self._memory, self._base + _CUT_AT)[0]
        return bool(0 < at <= time.monotonic())

    def run_stopped(self, index: int, job_id: int, token: int) -> bool:
        return bool(_RUN.unpack_from(self._memory, self._stops + _RUN.size * index) == (job_id, token))

    def state(self, index: int) -> State:
        return _state(self._memory[self._seats + index * _RECORD_SIZE + _STATE])

    @property
    def phase(self) -> Phase:
        phase = self._memory[self._base + _PHASE]
        return Phase(phase) if phase in _PHASES else Phase.BUSY

    @property
    def ticks(self) -> tuple[float, float]:
        """The last signs of life of the loop that claims and of the one that writes."""
        claims, writes = (_DOUBLE.unpack_from(self._memory, self._base + at)[0] for at in (_CLAIM_TICK, _WRITE_TICK))
        return claims, writes

    def counters(self) -> dict[str, int]:
        at = self._base + _FIRST_COUNTER
        return {name: _LONG.unpack_from(self._memory, at + 8 * index)[0] for index, name in enumerate(_COUNTERS)}

    def seats(self) -> list[Seat]:
        """Return the seats that are taken. One that its process is just writing may show half of it, as torn."""
        first = self._seats + _STATE
        states = self._memory[first : first + SEATS * _RECORD_SIZE : _RECORD_SIZE]
        if not any(states):
            return []
        return [self._seat(index, state) for index, state in enumerate(states) if state != State.FREE]

    def _seat(self, index: int, state: int) -> Seat:
        record = _RECORD.unpack_from(self._memory, self._seats + index * _RECORD_SIZE)
        job_id, token, claim, claimed_at, check = record
        torn = check != _check(job_id, token, claim) or state not in _STATES
        deadline = _DOUBLE.unpack_from(self._memory, self._deadlines + _DOUBLE.size * index)[0]
        return Seat(index, _state(state), job_id, token, claim, claimed_at, torn, deadline)


class SeatMap:
    """The whole mapping: signs of life of the supervisor and the template, and the regions of worker processes.

    The last `solo` of them are for processes that run a suspect.
    """

    def __init__(self, regions: int, solo: int = 0) -> None:
        regions += solo
        self.solo = solo
        self._memory = mmap.mmap(-1, Region.SIZE * regions + mmap.PAGESIZE)
        self._heartbeat_at = Region.SIZE * regions
        self._template_tick_at = self._heartbeat_at + _DOUBLE.size
        self.regions = [Region(self._memory, index) for index in range(regions)]

    def beat(self, at: float) -> None:
        """Note that all leases were extended by statements sent at `at` or later."""
        _DOUBLE.pack_into(self._memory, self._heartbeat_at, at)

    @property
    def last_beat(self) -> float:
        return float(_DOUBLE.unpack_from(self._memory, self._heartbeat_at)[0])

    def tick_template(self) -> None:
        _DOUBLE.pack_into(self._memory, self._template_tick_at, time.monotonic())

    @property
    def template_tick(self) -> float:
        return float(_DOUBLE.unpack_from(self._memory, self._template_tick_at)[0])


def _state(byte: int) -> State:
    # What a crashing process scribbled over may have been running.
    return State(byte) if byte in _STATES else State.RUNNING


def _check(job_id: int, token: int, claim: int) -> int:
    return (job_id + 31 * token + 7919 * claim + 0x5EA7) & 0x7FFF_FFFF_FFFF_FFFF
