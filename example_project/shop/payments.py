"""A payment service: what charges orders call (`charge`), and a stand-in for it that the demo runs on this host."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMEOUT = 10.0


def charge(base_url: str, *, key: str, order: str, cents: int) -> str:
    """Ask for a charge and return its number. The service charges once for a key, however often it is asked.

    Raises OSError when there is no answer or the answer is an error.
    """
    request = urllib.request.Request(
        f"{base_url}/charges",
        data=json.dumps({"order": order, "cents": cents}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        return str(json.load(response)["charge"])


class PaymentService:
    """Remembers the charge of each key, counts, and is out of order for the first calls of chosen orders."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.charges: dict[str, dict[str, Any]] = {}
        self.outages: Counter[str] = Counter()
        self._lock = threading.Lock()

    def handle(self, key: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer for one call."""
        order, cents = str(body["order"]), int(body["cents"])
        with self._lock:
            self.calls[order] += 1
            if self.outages[order] > 0:
                self.outages[order] -= 1
                self.refused[order] += 1
                return 503, {"error": "out of order for a moment"}
            number = f"ch_{len(self.charges) + 1:05d}"
            answer = self.charges.setdefault(key, {"charge": number, "order": order, "cents": cents})
            return 200, answer

    def charges_of(self, order: str) -> list[dict[str, Any]]:
        with self._lock:
            return [found for found in self.charges.values() if found["order"] == order]


@contextmanager
def served(service: PaymentService) -> Iterator[str]:
    """Serve it on a free port of 127.0.0.1 and yield its URL."""
    handler = type("Handler", (_Handler,), {"service": service})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    service: PaymentService

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        key = self.headers.get("Idempotency-Key", "")
        try:
            status, answer = self.service.handle(key, json.loads(self.rfile.read(length)))
        except (ValueError, KeyError, TypeError) as error:
            status, answer = 400, {"error": repr(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives
        pass
