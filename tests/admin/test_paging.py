"""The pages of the lists of jobs: by the key of their order, and of what no index finds in steps of so many rows."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from django.urls import reverse

from django_jobs.admin import listing, strands
from django_jobs.admin.base import QueueAdmin
from django_jobs.engines.archive import archive
from django_jobs.models import ArchivedJob, BulkAct, Effect, Job, Pause, Schedule, Worker
from django_jobs.models.clock import Clock
from tests.admin import addresses
from tests.admin.site import Site, text

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
SIZE = 3
BULK = "admin:django_jobs_bulkact_add"


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueAdmin, "list_per_page", SIZE)


def link(answer: Any, name: str) -> str:
    """Return the address that a link of the page leads to, empty if it is none."""
    found = re.search(rf'<a href="([^"]*)"[^>]*id="page-{name}"', answer.content.decode())
    return html.unescape(found[1]) if found else ""


def follow(site: Site, answer: Any, name: str) -> Any:
    address = link(answer, name)
    assert address, f"there is no link {name}"
    found = site.client.get(f"{answer.wsgi_request.path}{address}")
    assert found.status_code == 200
    return found


def ids(answer: Any) -> list[int]:
    return [job.pk for job in answer.context["cl"].result_list]


def walked(site: Site, answer: Any, name: str) -> list[list[int]]:
    """Return the ids of a page and of all that come when one link is followed to its end."""
    found = [ids(answer)]
    while link(answer, name):
        answer = follow(site, answer, name)
        found.append(ids(answer))
    return found


def joined(pages: list[list[int]]) -> list[int]:
    return list(chain(*pages))


def dead(site: Site, number: int) -> list[int]:
    """Make dead letters of which some ended at the same time; return them in the order of the list."""
    ends = [(Now() - timedelta(minutes=place // 3)) for place in range(number)]
    made = [site.make("dead" if place % 2 else "failed", finished_at=end).pk for place, end in enumerate(ends)]
    order = Job.objects.using(site.alias).filter(pk__in=made).order_by("-finished_at", "-id")
    return list(order.values_list("pk", flat=True))


def lanes(site: Site) -> list[int]:
    """Make jobs that wait in several lanes, some due at the same time; return them in the order of the claim."""
    when = Now() - timedelta(minutes=1)
    for queue in ("b", "a", "c"):
        for priority in (0, 5, -5, 0):
            site.make(queue=queue, priority=priority, run_at=when)
    waiting = Job.objects.using(site.alias).ready().order_by("queue", "-priority", "run_at", "id")
    return list(waiting.values_list("pk", flat=True))


def parked(site: Site) -> list[int]:
    suspects = [site.make(parked="suspect", run_at=Now() - timedelta(minutes=place)).pk for place in range(4)]
    others = [
        site.make(parked=why, type=f"t{n}", run_at=Clock()).pk for n in range(2) for why in ("type", "pause", "type")
    ]
    return [*reversed(suspects), *others]


def retries(site: Site) -> list[int]:
    return [site.make(attempts=2, run_at=Now() + timedelta(minutes=place // 2)).pk for place in range(8)]


def newest(site: Site) -> list[int]:
    return [site.make("done").pk for _ in range(8)][::-1]


def running(site: Site) -> list[int]:
    return [site.make("running").pk for _ in range(8)][::-1]


LISTS: list[tuple[dict[str, str], Any]] = [
    ({}, newest),
    ({"state": "done"}, newest),
    ({"state": "running"}, running),
    ({"worker": "w"}, running),
    ({"state": "due"}, lanes),
    ({"state": "due", "type": "tests.app.jobs.nothing"}, lanes),
    ({"state": "dead-letters"}, lambda site: dead(site, 11)),
    ({"state": "dead-letters", "type": "tests.app.jobs.nothing"}, lambda site: dead(site, 11)),
    ({"state": "parked"}, parked),
    ({"state": "retries"}, retries),
    ({"span": "hour"}, newest),
]


@pytest.mark.parametrize(("query", "make"), LISTS)
def test_the_pages_of_a_list_have_every_job_once_in_its_order_from_either_end(
    site: Site, query: dict[str, str], make: Any
) -> None:
    expected = make(site)
    first = site.list(**query)
    pages = walked(site, first, "next")
    assert joined(pages) == expected
    assert all(len(page) == SIZE for page in pages[:-1])
    last = follow(site, first, "last")
    assert ids(last) == expected[-SIZE:]
    assert not link(last, "next")
    back = walked(site, last, "previous")
    before_first = joined(back[-2::-1])
    assert before_first == expected[-len(before_first) :]
    assert len(before_first) + SIZE >= len(expected)
    assert back[-1] == expected[:SIZE]
    assert ids(follow(site, last, "first")) == expected[:SIZE]


def test_a_page_goes_on_behind_its_last_row_whatever_came_and_went_before_it(site: Site) -> None:
    old = newest(site)
    first = site.list()
    Job.objects.using(site.alias).filter(pk__in=[old[0], old[2]]).delete()
    for _ in range(5):
        site.make("done")
    second = follow(site, first, "next")
    assert ids(second) == old[3:6]
    assert ids(follow(site, second, "next")) == old[6:]


def test_the_way_back_from_a_page_leads_to_what_is_before_it(site: Site) -> None:
    expected = dead(site, 11)
    second = follow(site, site.list(state="dead-letters"), "next")
    third = follow(site, second, "next")
    assert ids(follow(site, third, "previous")) == ids(second) == expected[SIZE : 2 * SIZE]


def test_filters_and_the_search_begin_at_the_first_page_and_pages_keep_them(site: Site) -> None:
    dead(site, 11)
    second = follow(site, site.list(state="dead-letters", queue="default"), "next")
    page = second.content.decode()
    assert "queue=default" in link(second, "next")
    assert "state=dead-letters" in link(second, "previous")
    filters = [html.unescape(found) for found in re.findall(r'href="(\?[^"]*state=[^"]*)"', page) if "at=" not in found]
    assert any("state=cancelled" in found and "queue=default" in found for found in filters)
    assert 'type="hidden" name="at"' not in page


NO_PLACES = [
    *("after:", "after:[0]", "beside:[0,5]", "after:[7,5]", "after:[0,true]", 'after:[0,"x"]', "after:[-1,5]", "5"),
    *("last:1", "after:[0,null]", "after:{}", f"after:{'[' * 99_000}", "after:[0,1e999]", f"before:[0,{2**70}]"),
]


@pytest.mark.parametrize("at", NO_PLACES)
def test_a_place_that_is_none_is_named_and_the_first_page_shown(site: Site, at: str) -> None:
    jobs = newest(site)
    answer = site.list(at=at)
    assert ids(answer) == jobs[:SIZE]
    assert "The place in the list is" in text(answer)


@pytest.mark.parametrize(
    "at", ['after:[0,"x\\u0000",0,"2026-01-01T00:00:00+00:00",1]', 'after:[0,"x",99999,"2026-01-01T00:00:00+00:00",1]']
)
def test_no_place_breaks_a_list(site: Site, at: str) -> None:
    lanes(site)
    assert site.list(state="due", at=at).status_code == 200


def test_a_count_is_exact_below_its_limit_and_says_when_it_is_not(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    newest(site)
    assert "8 jobs" in text(site.list())
    monkeypatch.setattr(listing, "COUNT_LIMIT", 8)
    assert "8 or more jobs" in text(site.list())


@pytest.mark.parametrize("model", [ArchivedJob, BulkAct, Effect, Pause, Schedule, Worker])
def test_every_other_list_counts_its_rows_and_says_when_it_counts_no_further(
    site: Site, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(site.alias).prepare()
    own = {ArchivedJob: "id", BulkAct: "token"}.get(model)
    for place, name in enumerate("xyz", start=1):
        addresses.row(model, site.alias, name, **({own: place if own == "id" else uuid4()} if own else {}))
    address = reverse(f"admin:django_jobs_{model._meta.model_name}_changelist")
    number, rows = model.objects.using(site.alias).count(), model._meta.verbose_name_plural
    assert number == 3
    assert f" {number} {rows}" in text(site.client.get(address))
    monkeypatch.setattr(listing, "COUNT_LIMIT", 3)
    assert f" 3 or more {rows}" in text(site.client.get(address))


def test_keys_beyond_those_that_are_looked_up_are_said_to_be_left_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strands, "KEYS_FOUND", 2)
    jobs = {key: site.make(idempotency_key=f"order:{key}") for key in ("c", "A", "B")}
    answer = site.list(q="order:")
    assert ids(answer) == [jobs["B"].pk, jobs["A"].pk]
    assert "2 or more jobs" in text(answer)
    assert "2 or more" in text(site.client.get(reverse(BULK), {"act": "cancel", "key": "order:"}))
    assert "1 job that is" in text(site.client.get(reverse(BULK), {"act": "cancel", "key": "order:c"}))


@pytest.mark.parametrize(
    "query", [{"type": "rare"}, {"state": "done", "type": "rare"}, {"tag": "rare"}, {"q": "tag:rare"}]
)
def test_what_no_index_finds_is_looked_for_in_steps_that_the_page_tells_of(
    site: Site, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    monkeypatch.setattr(listing, "LOOK_AT", 4)
    rare = {"type": "rare", "meta": {"tags": ["rare"]}}
    made = [site.make("done", **(rare if place in (0, 9) else {})).pk for place in range(10)]
    first = site.list(**query)
    assert ids(first) == [made[9]]
    assert "4 jobs were looked through for this page, and there are more" in text(first)
    assert "1 found in 4 looked through" in text(first)
    further = first
    for expected in ([], [made[0]]):
        address = re.search(r'<a href="([^"]*)" class="dj-further"', further.content.decode())
        assert address
        further = site.client.get(f"{further.wsgi_request.path}{html.unescape(address[1])}")
        assert ids(further) == expected
    assert "dj-further" not in further.content.decode()
    assert "how many there are is not known" in text(further)


def test_what_was_looked_through_to_the_end_is_counted_exactly(site: Site) -> None:
    newest(site)
    rare = site.make("done", type="rare")
    answer = site.list(type="rare")
    assert ids(answer) == [rare.pk]
    assert "1 job" in text(answer)
    assert "looked through" not in text(answer)


def test_an_error_is_looked_for_in_dead_letters_before_all_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [site.make(status, last_error="OSError: mail server") for status in ("dead", "done", "failed")]
    retry = site.make(attempts=1, last_error="OSError: mail server")
    site.make("dead", last_error="other")
    assert ids(site.list(q="MAIL server")) == [made[2].pk, made[0].pk, retry.pk]
    assert sorted(joined(walked(site, site.list(q="MAIL server"), "next"))) == [*(job.pk for job in made), retry.pk]
    monkeypatch.setattr(listing, "LOOK_AT_ERRORS", 2)
    assert len(ids(site.list(error="mail server"))) == 1
    assert "2 jobs were looked through" in text(site.list(error="mail server"))


def test_a_span_of_time_begins_and_ends_where_the_ids_of_its_jobs_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOK_AT", 4)
    made = [site.make("done", created_at=Now() - timedelta(hours=19.5 - hour), type="t").pk for hour in range(20)]
    page = site.list(since="15h", until="12h")
    assert ids(page) == made[5:8][::-1]
    assert "3 jobs" in text(page)
    assert ids(site.list(since="15h", until="12h", type="t")) == made[5:8][::-1]
    assert ids(site.list(since="30h", until="25h")) == []


def test_the_archive_is_paged_in_the_same_way(site: Site) -> None:
    url = reverse("admin:django_jobs_archivedjob_changelist")
    assert site.client.get(url, {"at": "last"}).status_code == 200
    assert site.client.get(url, {"at": "after:[0,5]", "type": "t"}).status_code == 200
