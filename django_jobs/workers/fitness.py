from __future__ import annotations


class Fitness:
    """Whether this supervisor may take back jobs of others whose lease ran out.

    Only after its own statements have worked for one full lease, in which the database's clock moved like its own
    monotonic clock: after an outage, a lock on the whole table of jobs, a failover or a resumed machine, all leases look
    expired, and the living need time to extend theirs first. All values are seconds.
    """

    def __init__(self, lease: float, heartbeat: float) -> None:
        self._lease = lease
        self._heartbeat = heartbeat
        self._since: float | None = None
        self._last: tuple[float, float] | None = None

    def observe(self, database_clock: float, monotonic: float) -> None:
        """Note that the database answered, and the time on both clocks."""
        if self._since is None or self._last is None or self._jumped(self._last, database_clock, monotonic):
            self._since = monotonic
        self._last = (database_clock, monotonic)

    def _jumped(self, last: tuple[float, float], database_clock: float, monotonic: float) -> bool:
        moved_there, moved_here = database_clock - last[0], monotonic - last[1]
        return self._gap(last, monotonic) or abs(moved_there - moved_here) > self._heartbeat

    def _gap(self, last: tuple[float, float], monotonic: float) -> bool:
        return monotonic - last[1] > 2 * self._heartbeat

    def broken(self) -> None:
        """Note that the connection did not work, or a statement of ours was not let through."""
        self._since = self._last = None

    def fit(self, monotonic: float) -> bool:
        if self._since is None or self._last is None or self._gap(self._last, monotonic):
            return False
        return monotonic - self._since >= self._lease
