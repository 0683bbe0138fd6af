"""A TCP proxy in front of a database, on a port that stays the same, which can be as bad as networks are."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

CHUNK = 65536
# The whole text of a query, not the end of "READ COMMITTED".
COMMIT = b"COMMIT\0"


@dataclass(eq=False, slots=True)
class _Link:
    """One connection through the proxy, and what was taken in and not passed on."""

    client: socket.socket
    server: socket.socket
    held: list[tuple[socket.socket, bytes]] = field(default_factory=list)
    # Ends that hung up during a silence: the other side hears of it afterwards.
    gone: set[socket.socket] = field(default_factory=set)
    # The rest of what the server says on it is dropped, and of what the client says.
    deaf: bool = False
    mute: bool = False
    # Whether it has said what makes it one of those that are meant.
    meant: bool = False

    def other(self, end: socket.socket) -> socket.socket:
        return self.server if end is self.client else self.client

    def close(self, *, reset: bool = False) -> None:
        for end in (self.client, self.server):
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class Proxy:
    """Forwards to `target` (host, port) from a port of its own. All its faults concern every connection alike."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self._mode = "forward"
        self._delay = 0.0
        self._swallow: Callable[[bytes], bool] | None = None
        self._after = b""
        self._withholds = False
        # How many answers were swallowed.
        self.swallowed = 0
        self._listener: socket.socket | None = self._listen(0)
        self.port: int = self._listener.getsockname()[1] if self._listener else 0
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._ended = False
        self._thread = threading.Thread(target=self._loop, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._wake()
        self._thread.join()
        self.cut()
        for end in (self._listener, self._wake_read, self._wake_write):
            if end is not None:
                end.close()

    # The faults.

    @contextmanager
    def silence(self, *, lossy: bool = False) -> Iterator[None]:
        """Pass nothing on, and close nothing; new connections are taken and not answered.

        At the end what was said meanwhile is delivered, or is gone if `lossy`.
        """
        self._become("drop" if lossy else "hold")
        try:
            yield
        finally:
            self._become("forward")

    @contextmanager
    def refusal(self) -> Iterator[None]:
        """Cut all connections, and refuse new ones."""
        with self._lock:
            assert self._listener is not None
            self._listener.close()
            self._listener = None
        self._wake()
        self.cut()
        try:
            yield
        finally:
            with self._lock:
                self._listener = self._listen(self.port)
            self._wake()

    @contextmanager
    def delay(self, seconds: float) -> Iterator[None]:
        """Pass everything on so much later; one after the other, so it is slow as well."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    def cut(self) -> None:
        """Reset all connections at both ends."""
        with self._lock:
            for link in self._links:
                link.close(reset=True)
            self._links.clear()
        self._wake()

    @contextmanager
    def swallow(
        self, text: bytes = COMMIT, times: int = 1, *, after: bytes = b"", withhold: bool = False
    ) -> Iterator[None]:
        """Pass on so many requests that hold this text, and nothing that the server says on their connections then.

        `after`: only on connections that have said this before. `withhold`: not even the request is passed on.
        """
        self._after, self._withholds = after, withhold
        self.swallow_next(text, times)
        try:
            yield
        finally:
            self._swallow = None
            self._after, self._withholds = b"", False

    def swallow_next(self, text: bytes = COMMIT, times: int = 1) -> None:
        """Swallow the answers to the next so many requests that hold this text, until then or until the calm."""
        left = times

        def decide(data: bytes) -> bool:
            nonlocal left
            if left <= 0 or text not in data:
                return False
            left -= 1
            return True

        self._swallow = decide

    def calm(self) -> None:
        """End all faults that are under way."""
        self._swallow = None
        self._delay = 0.0
        self._become("forward")

    # Its thread.

    def _become(self, mode: str) -> None:
        with self._lock:
            self._mode = mode
        self._wake()

    def _wake(self) -> None:
        self._wake_write.send(b"!")

    @staticmethod
    def _listen(port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), backlog=128)

    def _loop(self) -> None:
        while not self._ended:
            with self._lock:
                ends = {end: link for link in self._links for end in (link.client, link.server) if end not in link.gone}
                sources = [self._wake_read, *ends]
                if self._listener is not None:
                    sources.append(self._listener)
            try:
                ready, _, _ = select.select(sources, [], [], 1.0)
            except (OSError, ValueError):
                continue  # one was closed by another thread
            with self._lock:
                self._handle(ready, ends)

    def _handle(self, ready: list[socket.socket], ends: dict[socket.socket, _Link]) -> None:
        if self._mode == "forward":
            self._deliver()
        for end in ready:
            if end is self._wake_read:
                self._drain()
            elif end is self._listener:
                self._accept()
            elif end in ends and ends[end] in self._links:
                self._pass_on(ends[end], end)

    def _drain(self) -> None:
        try:
            while self._wake_read.recv(CHUNK):
                pass
        except BlockingIOError:
            pass

    def _accept(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links.append(_Link(client, server))

    def _deliver(self) -> None:
        for link in list(self._links):
            held, link.held = link.held, []
            for end, data in held:
                self._send(link, end, data)
            if link.gone:
                self._forget(link)

    def _pass_on(self, link: _Link, end: socket.socket) -> None:
        try:
            data = end.recv(CHUNK)
        except OSError:
            data = b""
        if self._mode != "forward":
            if not data:
                link.gone.add(end)
            elif self._mode == "hold":
                link.held.append((link.other(end), data))
            return
        if end is link.client and self._swallow is not None:
            link.meant = link.meant or self._after in data
            if link.meant and self._swallow(data):
                link.deaf, link.mute = True, self._withholds
                self.swallowed += 1
        if (end is link.server and link.deaf) or (end is link.client and link.mute):
            if not data:
                self._forget(link)
            return
        time.sleep(self._delay)
        self._send(link, link.other(end), data)

    def _send(self, link: _Link, end: socket.socket, data: bytes) -> None:
        if not data:
            self._forget(link)
            return
        try:
            end.sendall(data)
        except OSError:
            self._forget(link)

    def _forget(self, link: _Link) -> None:
        if link in self._links:
            self._links.remove(link)
        link.close()
