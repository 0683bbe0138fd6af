"""The overview as a client reads it, and statistics for it."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

from django.urls import reverse

from django_jobs.models import Stat
from django_jobs.models.clock import database_now, for_row
from tests.admin.site import Site, text


def front(site: Site, **query: str) -> str:
    answer = site.client.get(reverse("admin:app_list", args=["django_jobs"]), query)
    assert answer.status_code == 200
    page: str = answer.content.decode()
    return page


def cells(page: str, mark: str) -> list[str]:
    """Return what is read in each cell of the row with a mark."""
    found = re.search(rf"<tr {re.escape(mark)}>(.*?)</tr>", page, re.DOTALL)
    assert found, f"no row {mark}"
    return [unescape(text(cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", found[1], re.DOTALL)]


def tile(page: str, name: str) -> str:
    found = re.search(rf'id="tile-{name}">\s*(?:<a[^>]*>)?<strong>(.*?)</strong>', page)
    assert found, f"no tile {name}"
    return unescape(found[1])


def stat(site: Site, minutes: int, **values: Any) -> Stat:
    """Make a row of the minute so many before the present one."""
    now = database_now(site.alias)
    minute = now.replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    given = {"queue": "mail", "type": "t", "incarnation": "a", "runs": [], "waits": [], **values}
    return Stat.objects.using(site.alias).create(minute=for_row(minute, site.alias), **given)
