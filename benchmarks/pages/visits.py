"""A member of the staff who opens one page after the other, over one connection, and how long each took."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.backends.db import SessionStore

from benchmarks.pages.known import Page
from benchmarks.pages.watched import EXPLAIN, LONGEST, QUERIES

CSRF = "a" * 32


@dataclass(slots=True)
class Visited:
    """How a page answered: milliseconds of each visit, the most statements of one, and the longest of those."""

    page: Page
    status: int = 0
    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    queries: int = 0
    longest: float = 0.0
    scans: list[dict[str, Any]] = field(default_factory=list)


def logged_in() -> str:
    """Return the session of somebody who may see and do all that is ours, and is no superuser."""
    user, _made = User.objects.get_or_create(username="ada", defaults={"is_staff": True})
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="django_jobs"))
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}; {settings.CSRF_COOKIE_NAME}={CSRF}"


class Browser:
    def __init__(self, port: int, cookies: str) -> None:
        self._port = port
        self._headers = {"Cookie": cookies, "Host": f"127.0.0.1:{port}"}

    def visit(self, seen: Visited, times: list[float]) -> str:
        """Open a page, and return what it holds."""
        began = time.perf_counter()
        status, headers, text = self._ask(seen.page)
        times.append(1000 * (time.perf_counter() - began))
        seen.status = status
        seen.queries = max(seen.queries, int(headers.get(QUERIES, 0)))
        seen.longest = max(seen.longest, float(headers.get(LONGEST, 0)))
        return text

    def explain(self, page: Page) -> list[dict[str, Any]]:
        """Return the statements of a page, each with what it reads."""
        _status, _headers, text = self._ask(page, {EXPLAIN: "1"})
        found: list[dict[str, Any]] = json.loads(text)["statements"]
        return found

    def _ask(self, page: Page, more: dict[str, str] | None = None) -> tuple[int, Any, str]:
        headers = {**self._headers, **(more or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            if page.form:
                values = {name: value.split(",") for name, value in page.form.items()}
                body = urlencode({**values, "csrfmiddlewaretoken": CSRF}, doseq=True)
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                connection.request("POST", page.address, body, headers)
            else:
                connection.request("GET", page.address, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()
