from __future__ import annotations

import threading

HEAVY_CHARACTERS = 10_000
MOST_CHARACTERS = 32_000_000


class Load:
    """How much text waits to be stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._characters = 0

    def add(self, characters: int) -> None:
        # Small outcomes are bounded by the seats; for them no lock is worth while.
        if abs(characters) >= HEAVY_CHARACTERS:
            with self._lock:
                self._characters += characters

    @property
    def heavy(self) -> bool:
        return self._characters > MOST_CHARACTERS
