"""What rows hold is shown and never obeyed, on every page: also on those that somebody adds later."""

from __future__ import annotations

from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db.models.functions import Now

from tests.admin import addresses
from tests.admin.site import FINAL, Site

pytestmark = [pytest.mark.django_db(databases="__all__")]
ALL = addresses.addresses()
# Ends an attribute, a tag, a script and an entity; short, so that a column of few characters holds all of it.
MARKUP = """\x01</script>&amp\x1b<a onx=y>"'><script>alert(1)</script>"""
ESCAPED = "&lt;script&gt;alert(1)"
SHOWING = ("_changelist", "_change")


class Page(HTMLParser):
    """Collects what of a page would be run or obeyed and came from a row."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._script = tag == "script"
        for name, value in attrs:
            if name == "onx" or (name.startswith("on") and "alert" in (value or "")):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script and "alert(1)" in data:
            self.found.append(f"<script>{data}")


def obeyed(answer: Any) -> list[str]:
    if not answer.get("Content-Type", "").startswith("text/html"):
        return []
    text = answer.content.decode()
    raw = [text[place - 60 : place + 60] for place in [text.find("<script>alert")] if place >= 0]
    return [*raw, *Page(text).found]


def test_no_page_obeys_what_a_row_holds(site: Site) -> None:
    rows = addresses.rows(site.alias, MARKUP)
    shown, wrong = set(), {}
    for address in ALL:
        answer = site.client.get(address.url(rows))
        if found := obeyed(answer):
            wrong[str(address)] = found
        if ESCAPED in answer.content.decode():
            shown.add(str(address))
    assert wrong == {}
    unseen = {str(address) for address in ALL if address.model and address.name.endswith(SHOWING)} - shown
    assert unseen == set(), "these pages show nothing of their rows, or the rows hold no markup"


@pytest.mark.parametrize("status", ["ready", "running", *FINAL])
def test_no_page_of_a_job_obeys_what_it_holds_whatever_its_state(site: Site, status: str) -> None:
    given: dict[str, Any] = {"status": status}
    if status == "running":
        given |= {"locked_by": f"{MARKUP[-32:]}:1", "locked_until": Now() + timedelta(minutes=1)}
    elif status in FINAL:
        given |= {"finished_at": Now()}
    rows = addresses.rows(site.alias, MARKUP, job=given)
    pages = [address for address in ALL if address.model == "job" or not address.parameters]
    assert {str(page): found for page in pages if (found := obeyed(site.client.get(page.url(rows))))} == {}


@pytest.mark.parametrize("query", ["state", "queue", "type", "q", "lane", "worker", "schedule", "tag", "x"])
def test_no_list_obeys_its_address(site: Site, query: str) -> None:
    rows = addresses.rows(site.alias, MARKUP)
    lists = [address for address in ALL if not address.parameters]
    for page in lists:
        for text in (MARKUP, f"{MARKUP}\x00"):
            assert obeyed(site.client.get(page.url(rows), {query: text}, follow=True)) == [], str(page)


def test_no_answer_to_an_act_obeys_what_the_row_or_the_reason_holds(site: Site) -> None:
    wrong = {}
    for address, act in ((found, act) for found in ALL for act in addresses.acts(found)):
        rows = addresses.rows(site.alias, MARKUP)
        values = addresses.form(act, address, rows) | {"why": MARKUP}
        for form in (values, {**values, "confirmed": "", "post": ""}):
            if found := obeyed(site.client.post(address.url(rows), form, follow=True)):
                wrong[f"{address} {act}"] = found
        for row in rows.values():
            type(row)._default_manager.using(site.alias).filter(pk=row.pk).delete()
    assert wrong == {}
