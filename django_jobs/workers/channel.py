from __future__ import annotations

import json
import select
import socket
from typing import Any


class Channel:
    """One end of a stream of JSON messages, a line each, between supervisor and template."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = b""

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        self._end.close()

    def send(self, **message: Any) -> bool:
        """Return whether the other side may still be there; that it is gone, the next receive says."""
        try:
            self._end.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that have come, without waiting; None when the other side is gone."""
        if not select.select([self._end], [], [], 0)[0]:
            return []
        try:
            received = self._end.recv(65536)
        except ConnectionError:
            return None
        if not received:
            return None
        *lines, self._received = (self._received + received).split(b"\n")
        return [json.loads(line) for line in lines]
