from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

import django_jobs
from django_jobs.admin import beside, listing
from django_jobs.admin.base import QueueAdmin
from django_jobs.models import Job, Worker
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text
from tests.app.jobs import log_in
from tests.engines.common import on_postgresql

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LATER = Now() + timedelta(minutes=5)


def every_state(site: Site) -> dict[str, Job]:
    return {
        "due": site.make(),
        "later": site.make(run_at=LATER),
        "retry": site.make(attempts=1, run_at=LATER),
        "retry due": site.make(attempts=1),
        "parked": site.make(parked="type"),
        "running": site.make("running"),
        **{status: site.make(status) for status in ("done", "failed", "dead", "cancelled")},
    }


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("due", ["due", "retry due"]),
        ("later", ["later", "retry"]),
        ("retries", ["retry", "retry due"]),
        ("parked", ["parked"]),
        ("running", ["running"]),
        ("done", ["done"]),
        ("dead-letters", ["failed", "dead"]),
        ("dead", ["dead"]),
        ("failed", ["failed"]),
        ("cancelled", ["cancelled"]),
    ],
)
def test_a_state_shows_its_jobs_and_no_other(site: Site, state: str, expected: list[str]) -> None:
    jobs = every_state(site)
    assert sorted(site.ids(state=state)) == sorted(jobs[name].pk for name in expected)


def test_without_a_filter_the_newest_job_is_first(site: Site) -> None:
    jobs = every_state(site)
    assert site.ids() == sorted((job.pk for job in jobs.values()), reverse=True)


def test_due_jobs_are_in_the_order_of_the_claim(site: Site) -> None:
    low, high, first = site.make(priority=-1), site.make(priority=5), site.make(run_at=Now() - timedelta(hours=1))
    assert site.ids(state="due") == [high.pk, first.pk, low.pk]


def test_queues_and_types_are_offered_that_only_a_row_or_a_worker_knows(site: Site) -> None:
    mail, gone = site.make(queue="tenant-7"), site.make("done", type="shop.renamed")
    worker = {"host": "h", "pid": 1, "supervisor_pid": 1, "threads": 1}
    Worker.objects.using(site.alias).create(id="w", queues=["audio"], types=["shop.other"], **worker)
    page = text(site.list())
    assert all(name in page for name in ("tenant-7", "audio", "shop.other"))
    assert site.ids(queue="tenant-7") == [mail.pk]
    assert site.ids(type="shop.renamed") == [gone.pk]
    assert site.ids(type="a\x00b") == []


def test_the_search_finds_ids_and_keys_by_their_beginning_and_nothing_else(site: Site) -> None:
    first, second, other = (site.make(idempotency_key=key) for key in ("order:1", "order:12", "re-order:1"))
    digits = site.make(idempotency_key=f"{first.pk}th")
    assert site.ids(q=f" {other.pk} ") == [other.pk]
    assert sorted(site.ids(q=str(first.pk))) == [first.pk, digits.pk]
    assert sorted(site.ids(q="order:1")) == [first.pk, second.pk]
    assert site.ids(q="order:12") == [second.pk]
    for nothing in ("%", "rder", "9" * 19, "9" * 5000, "\N{SUPERSCRIPT TWO}", "nothing"):
        assert site.ids(q=nothing) == [], nothing


def test_a_list_says_when_and_which_attempt_and_why(site: Site) -> None:
    site.make(run_at=LATER, attempts=2, max_attempts=3, last_error="Traceback\n  File\nValueError: the reason\n")
    site.make("dead", finished_at=Now() - timedelta(minutes=3), attempts=3, max_attempts=3)
    site.make("running", last_started_at=Now() - timedelta(hours=5), cancel_reason="by ada")
    site.make(parked="pause")
    django_jobs.pause(type=site.make("done").type)
    page = text(site.list())
    assert "retry, waiting ValueError: the reason due in 5 min 3 of 3" in page
    assert "dead ended 3 min ago 3 of 3" in page
    assert "running asked to stop started 5 h ago" in page
    assert "parked paused" in page


def test_a_list_reads_no_large_column_and_counts_to_a_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for _number in range(5):
        site.make()
    monkeypatch.setattr(listing, "COUNT_LIMIT", 3)
    monkeypatch.setattr(QueueAdmin, "list_per_page", 2)
    with CaptureQueriesContext(connections[site.alias]) as sent:
        page = text(site.list())
    cut = re.compile(r'(LEFT|SUBSTR)\([^,]*"payload"[^,]*, (1, )?5000\)')
    on_jobs = [cut.sub("cut", query["sql"]) for query in sent if '"django_jobs_job"' in query["sql"]]
    counts = [statement for statement in on_jobs if "COUNT(" in statement]
    assert counts
    assert all("LIMIT 3" in statement for statement in counts)
    for column in ("payload", "result", "history", "meta"):
        assert not any(f'"{column}"' in statement for statement in on_jobs), column
    assert "3 or more jobs" in page


@pytest.mark.parametrize("asked", [{"last_error__contains": "x"}, {"payload__args": "1"}, {"id__gt": "1"}])
def test_no_address_asks_for_a_look_at_every_row(site: Site, asked: dict[str, Any]) -> None:
    assert site.list(**asked).status_code == 400


def test_no_address_chooses_an_order_or_counts_by_facet(site: Site) -> None:
    jobs = [site.make(type=name) for name in ("b", "a", "c")]
    assert site.ids(o="2") == [job.pk for job in reversed(jobs)]
    for query in ({}, {"_facets": "True"}):
        assert "counts" not in text(site.list(**query))


def test_an_action_on_all_that_a_filter_finds_is_refused(site: Site) -> None:
    dead = site.make("dead")
    answer = site.act_on_list("requeue", dead, select_across="1")
    assert "Tick the jobs" in messages(answer)[0]
    assert dead.refresh().status == "dead"
    assert "Select all" not in text(site.list())


def badges(page: Any) -> list[str]:
    """Return the states that a page shows of jobs, without those of the pauses above them."""
    content = page if isinstance(page, str) else page.content.decode()
    jobs = re.sub(r'<ul class="dj-pauses">.*?</ul>', "", content, flags=re.DOTALL)
    return re.findall(r'class="dj-state dj-state-([a-z]+)"', jobs)


@pytest.mark.parametrize("what", [{"queue": "mail"}, {"type": "shop.mail"}])
def test_jobs_that_a_pause_holds_are_shown_as_paused_and_not_as_due(site: Site, what: dict[str, Any]) -> None:
    free, later, first, retry = (
        site.make(),
        *(site.make(queue="mail", type="shop.mail", **more) for more in ({"run_at": LATER}, {}, {"attempts": 1})),
    )
    django_jobs.pause(**what)
    assert badges(site.list()) == ["paused", "paused", "scheduled", "due"]
    assert badges(site.list(state="due")) == ["due", "paused", "paused"]
    assert badges(site.page(first)) == ["paused"]
    assert badges(site.act_on_list("cancel", free, later, first, retry)) == ["due", "scheduled", "paused", "paused"]
    django_jobs.resume(**what)
    assert badges(site.list()) == ["retry", "due", "scheduled", "due"]


def test_a_job_that_was_parked_by_a_pause_says_when_that_is_over(site: Site) -> None:
    site.make(parked="pause", queue="mail")
    assert "by a pause that is over" in text(site.list())
    django_jobs.pause(queue="mail")
    assert "by a pause that is over" not in text(site.list())


CALLS: list[tuple[Any, str]] = [
    ({"args": [17, [1]], "kwargs": {"to": "ünï"}}, '17, [1], to="ünï"'),
    ({"args": [], "kwargs": {}}, ""),
    ({"args": ["x" * 100], "kwargs": {}}, f'"{"x" * 59}…'),
    ({"args": ["x" * 2**20], "kwargs": {}}, f'"{"x" * 59}…'),
    ({"args": [], "kwargs": {"a": "<b>" * 2**12}}, '"a": "<b>'),
    ([1], "[1]"),
    ({"args": 3, "kwargs": None}, '"args": 3'),
]


@pytest.mark.parametrize(("payload", "says"), CALLS)
def test_arguments_are_shown_in_short_in_the_list_and_before_a_cancel(site: Site, payload: Any, says: str) -> None:
    job = site.make(payload=payload)
    with CaptureQueriesContext(connections[site.alias]) as asked:
        for page in (site.act_on_list("cancel", job), site.list()):
            cells = re.findall(r'class="[^"]*dj-call">([^<]*)<', page.content.decode())
            assert len(cells) == 1
            assert says in html.unescape(cells[0]) if says else cells == [""]
            assert len(html.unescape(cells[0])) <= 61
    assert not any('"payload",' in query["sql"] for query in asked.captured_queries)


def test_a_state_that_there_is_not_shows_no_job(site: Site) -> None:
    job = site.make()
    assert site.ids(state="nosuch") == []
    assert site.ids(state="") == [job.pk]


def test_each_filter_narrows_to_its_jobs(site: Site) -> None:
    tagged = {"meta": {"tags": ["billing"]}}
    payload = {"args": [5, {"id": 7}], "kwargs": {"order_id": 42, "customer": {"id": 7}}}
    values: dict[str, Any] = {
        "queue": "mail",
        "type": "shop.mail",
        "priority": 8,
        "schedule": "nightly",
        "last_error": "OSError: the disk is full",
        "payload": payload,
        **tagged,
    }
    wanted = site.make("running", locked_by="w7:1", **values)
    every_state(site)
    asked: list[dict[str, str]] = [
        {"queue": "mail"},
        {"type": "shop.mail"},
        {"priority": "8"},
        {"priority": "+8"},
        {"schedule": "nightly"},
        {"worker": "w7"},
        {"tag": "billing"},
        {"error": "DISK is"},
        {"argument": "args.0=5"},
        {"q": "kwargs.customer.id=7"},
        {"q": "args.1.id=7", "type": "shop.mail"},
        {"q": "kwargs.order_id=42"},
        {"q": "tag:billing"},
        {"q": "disk is full"},
        {"state": "running", "queue": "mail", "priority": "8", "tag": "billing", "q": "disk"},
    ]
    for query in asked:
        assert site.ids(**query) == [wanted.pk], query
        assert site.ids(**{**query, "state": "done"}) == [], query
    ended = site.make("dead", **values)
    parked = site.make(parked="pause", **values)
    waiting = site.make(attempts=1, **values)
    for state, job in {
        "dead": ended,
        "dead-letters": ended,
        "parked": parked,
        "due": waiting,
        "retries": waiting,
    }.items():
        for query in asked:
            assert site.ids(**{**query, "state": state}) == ([] if "worker" in query else [job.pk]), (query, state)


def test_a_reason_and_a_span_of_time_narrow_too(site: Site) -> None:
    jobs = every_state(site)
    suspect = site.make(parked="suspect")
    assert site.ids(parked="suspect") == [suspect.pk]
    assert site.ids(parked="type") == [jobs["parked"].pk]
    old = site.make("dead", finished_at=Now() - timedelta(hours=3))
    assert site.ids(state="dead", span="hour") == [jobs["dead"].pk]
    assert site.ids(state="dead", until="2h") == site.ids(state="dead", since="4h", until="1h") == [old.pk]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"priority": "abc"}, "priority is &#x27;abc&#x27;; give a whole number from -100 to 100."),
        ({"since": "soon"}, "since is &#x27;soon&#x27;; give a time as"),
        ({"queue": "a\x00b"}, "queue has a NUL character"),
        ({"q": "args.=5"}, "argument is &#x27;args.=5&#x27;; give args.0=5"),
        ({"argument": "kwargs.password=hunter2"}, "what the setting REDACT hides is not looked for"),
        ({"argument": "args.1=hunter2", "type": log_in.name}, "what the setting REDACT hides is not looked for"),
        ({"argument": "args.-1=hunter2", "type": log_in.name}, "what the setting REDACT hides is not looked for"),
        ({"q": "args.1=hunter2"}, "choose a type as well"),
        ({"state": "nosuch"}, "state is &#x27;nosuch&#x27;; give one of due"),
        ({"worker": "w", "state": "dead"}, "only jobs that are running have one"),
        ({"tag": "<b>", "parked": "<b>"}, "parked is &#x27;&lt;b&gt;&#x27;"),
    ],
)
def test_a_value_that_is_none_of_its_kind_is_named_on_the_page_and_finds_nothing(
    site: Site, query: dict[str, str], says: str
) -> None:
    site.make()
    answer = site.list(**query)
    assert answer.status_code == 200
    assert says in answer.content.decode()
    assert answer.context["cl"].result_list == []


def test_a_search_that_finds_nothing_leads_to_the_same_in_the_archive(site: Site) -> None:
    archive = "/admin/django_jobs/archivedjob/?error=no+such+text"
    assert archive in site.list(q="no such text").content.decode()
    assert "archivedjob/?" not in site.list(q="no such text", state="due").content.decode()
    assert site.client.get(archive).status_code == 200
    site.make("dead", last_error="no such text")
    assert archive not in site.list(q="no such text").content.decode()


def test_a_search_that_looks_like_an_argument_is_told_how_one_is_looked_for(site: Site) -> None:
    assert "<code>kwargs.order_id=42</code>" in site.list(q="order_id=42").content.decode()


def test_a_search_leads_to_where_else_the_same_may_be_found(site: Site) -> None:
    site.make("dead", last_error="SMTP 550")
    assert '<a href="?error=550">' in site.list(q="550").content.decode()
    assert '<a href="/admin/django_jobs/job/retries/?error=SMTP">' in site.list(q="SMTP").content.decode()
    assert "/retries/?" not in site.list(q="SMTP", state="dead").content.decode()


def test_lanes_tags_schedules_and_workers_are_offered(site: Site) -> None:
    site.make(queue="b", priority=-7)
    site.make(queue="b", priority=3)
    site.make(queue="a", priority=77)
    worker = {"host": "web-9", "pid": 71, "supervisor_pid": 1, "threads": 1}
    Worker.objects.using(site.alias).create(id="w", queues=None, types=[], **worker)
    found = site.list(state="dead-letters", type="gone").content.decode()
    for query in ("priority=-7", "priority=3", "priority=77", "queue=a", "worker=w", "parked=suspect", "span=today"):
        assert query in html.unescape(found), query
    assert "web-9:71" in found


MANY: list[dict[str, str]] = [
    {},
    {"state": "due", "at": 'after:[0,"default",0,"2020-01-01T00:00:00+00:00",1]'},
    {"state": "parked", "at": "last"},
    {"q": "nothing at all", "span": "hour"},
    {"q": "77777777"},
    {"since": "5h", "until": "1m", "type": "x"},
    {"state": "done", "queue": "none", "at": "after:[0,999999999]"},
]


@pytest.mark.parametrize("query", MANY)
def test_a_list_asks_few_questions(as_user: As, query: dict[str, str]) -> None:
    site = as_user("view_job", "requeue_job")
    every_state(site)
    with CaptureQueriesContext(connections[site.alias]) as asked:
        assert site.list(**query).status_code == 200
    assert len(asked) < 15, [found["sql"][:100] for found in asked]


def test_who_may_not_see_the_archive_is_not_led_there(as_user: As) -> None:
    site = as_user("view_job")
    assert "archivedjob" not in site.list(q="no such text").content.decode()


@on_postgresql
def test_a_list_that_takes_too_long_says_so_when_it_is_read_and_when_an_act_is_asked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    job = site.make("dead")
    monkeypatch.setattr("django_jobs.admin.bounded.SECONDS", 0.3)
    settings.DJANGO_JOBS = {"ENQUEUE_TIMEOUT": 0.1}
    monkeypatch.setattr(beside, "BEGINNING", RawSQL("SELECT pg_sleep(30)::text", []))  # of each row
    for answer in (site.list(), site.act_on_list("requeue", job)):
        assert answer.status_code == 503
        assert "The database did not answer" in text(answer)
    assert job.refresh().status == "dead"


def test_the_last_error_of_a_job_that_is_done_is_quiet(site: Site) -> None:
    site.make("done", last_error="The worker process died.")
    assert 'class="dj-error dj-past" title="The worker process died."' in site.list().content.decode()
    site.make("dead", last_error="OSError: away")
    assert 'class="dj-error" title="OSError: away"' in site.list().content.decode()
