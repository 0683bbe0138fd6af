"""A POST to an address of the project's. Imported when one is made: what it needs takes memory, and most need none of it."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

# What it has for each answer, in seconds.
TIMEOUT = 5.0


class NotTold(Exception):
    """Somebody could not be told; the words are without the webhook's address, which may be a secret."""


def post(url: str, body: bytes) -> None:
    """Send JSON. Raises NotTold."""
    request = Request(url, body, {"Content-Type": "application/json", "User-Agent": "django_jobs"}, method="POST")
    try:
        with build_opener(ProxyHandler(), _NoRedirect()).open(request, timeout=TIMEOUT):
            pass
    except HTTPError as error:
        error.close()
        raise NotTold(f"the webhook answered {error.code}") from None
    except URLError as error:
        raise NotTold(f"the webhook cannot be reached: {error.reason}") from None
    except Exception as error:
        raise NotTold(f"the webhook cannot be reached: {type(error).__name__}") from None


class _NoRedirect(HTTPRedirectHandler):
    # Whoever answers could send us to an address that only we can reach.
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
