"""Rounds through the pages, each in an order of its own."""

from __future__ import annotations

import random
import time

from benchmarks.pages.known import Page, followed, known
from benchmarks.pages.site import Site
from benchmarks.pages.visits import Visited

PAUSE = 0.02  # a person reads


def cold(site: Site, seen: list[Visited], only: str) -> list[Visited]:
    """Visit each page once; return the pages, in the first round with those that lists lead to."""
    pages = [found.page for found in seen] or [page for page in known() if only in f"{page.name} {page.address}"]
    before = {found.page: found for found in seen}
    found: dict[Page, Visited] = {}
    while pages:
        page = pages.pop(random.randrange(len(pages)))
        found[page] = before.get(page) or Visited(page)
        text = site.browser.visit(found[page], found[page].cold)
        if not seen and "?" not in page.address and not page.form:
            pages += [more for more in followed(page, text) if more not in found and more not in pages]
    return sorted(found.values(), key=lambda visited: visited.page.address)


def warm(site: Site, seen: list[Visited], times: int) -> None:
    for _number in range(times):
        for visited in random.sample(seen, len(seen)):
            site.browser.visit(visited, visited.warm)
            time.sleep(PAUSE)


def explained(site: Site, seen: list[Visited]) -> None:
    for visited in seen:
        visited.scans = [scan for line in site.browser.explain(visited.page) for scan in line.get("scans", ())]
