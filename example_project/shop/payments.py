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

    Raises OSError when there is no answer, and then it may have charged, or when the answer is an error.
    """
    request = urllib.request.Request(
        f"{base_url}/charges",
        data=json.dumps({"order": order, "cents": cents}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        return str(json.load(response)["charge"])


class PaymentService:
    """Takes every call and counts; a call with a key that it knows is answered with the charge of that key.

    `lost` says of how many calls for an order the answer gets lost on the way: they are counted, and charged, all the same.
    """

    def __init__(self) -> None:
        # By order and key.
        self.calls: Counter[tuple[str, str]] = Counter()
        self.charges: dict[str, dict[str, Any]] = {}
        self.lost: Counter[str] = Counter()
        self._lock = threading.Lock()

    def handle(self, key: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a call, None when it gets lost."""
        order, cents = str(body["order"]), int(body["cents"])
        with self._lock:
            self.calls[order, key] += 1
            number = f"ch_{len(self.charges) + 1:05d}"
            answer = self.charges.setdefault(key, {"charge": number, "order": order, "cents": cents})
            if self.lost[order] > 0:
                self.lost[order] -= 1
                return None
            return answer

    def calls_for(self, order: str) -> int:
        with self._lock:
            return sum(number for (of, _key), number in self.calls.items() if of == order)

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
        status = 200
        try:
            answer = self.service.handle(key, json.loads(self.rfile.read(length)))
        except (ValueError, KeyError, TypeError) as error:
            status, answer = 400, {"error": repr(error)}
        if answer is None:  # the connection ends without a word
            return
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives
        pass
