"""Retries and dead letters as pages of their own."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_jobs.admin import dead_letters
from django_jobs.queue import error_text
from django_jobs.workers.errors import describe, full_text
from tests.admin.conftest import As
from tests.admin.site import Site, text
from tests.app.jobs import log_in

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
DEAD_LETTERS = "admin:django_jobs_job_dead_letters"
RETRIES = "admin:django_jobs_job_retries"
MARKUP = "<script>alert('x')</script>"


def groups(site: Site) -> list[Any]:
    answer = site.client.get(reverse(DEAD_LETTERS))
    assert answer.status_code == 200
    return list(answer.context["groups"])


def fill(site: Site) -> list[int]:
    gone = [
        site.make("dead", type="a", last_error=f"Traceback\nOrderGone: order {n} is gone\n").pk for n in (7, 18, 1999)
    ]
    site.make("failed", type="b", last_error="OrderGone: order 5 is gone")
    site.make("failed", type="a", last_error="OSError: disk")
    site.make("cancelled", type="a", last_error="OrderGone: order 5 is gone")
    site.make("done", type="a", last_error="OrderGone: order 5 is gone")
    return gone


def test_dead_letters_that_differ_in_a_number_are_one_group_of_their_type(site: Site) -> None:
    gone = fill(site)
    found = [(group.count, re.sub("<[^>]*>", "", group.type), group.line) for group in groups(site)]
    assert found[0] == ("3", "a", "OrderGone: order # is gone")
    assert sorted(found[1:]) == [("1", "a", "OSError: disk"), ("1", "b", "OrderGone: order # is gone")]
    assert f">{max(gone)}<" in groups(site)[0].example
    assert "5 dead letters in all" in text(site.client.get(reverse(DEAD_LETTERS)))


def test_a_group_leads_to_its_jobs_and_to_no_others(site: Site) -> None:
    gone = fill(site)
    address = groups(site)[0].list_url
    answer = site.client.get(address)
    assert sorted(job.pk for job in answer.context["cl"].result_list) == gone
    assert "OrderGone: order # is gone" in text(answer)


def test_of_a_chain_of_errors_every_page_names_the_one_that_the_handler_raised(site: Site) -> None:
    try:
        try:
            raise FileExistsError("the folder 4711 is there")
        except FileExistsError:
            raise LookupError("the path 12 is no folder")  # noqa: B904
    except LookupError as error:
        history = [{"run": 1, "cause": "raised", "error": describe(error), "worker": "", "seconds": 1.0, "at": ""}]
        job = site.make("dead", type="a", token=1, last_error=full_text(error), history=history)
    (group,) = groups(site)
    assert group.line == "LookupError: the path # is no folder"
    for page in (group.list_url, group.requeue_url):
        assert "LookupError: the path 12 is no folder" in text(site.client.get(page))
        assert "FileExistsError" not in text(site.client.get(page))
    shown = site.client.get(reverse("admin:django_jobs_job_change", args=[job.pk])).content.decode()
    assert '<p class="dj-said">LookupError: the path 12 is no folder</p>' in shown
    assert site.ids(state="dead-letters", error="FileExistsError") == [job.pk], "a search finds all that is stored"


def test_dead_letters_of_a_queue_or_a_type_are_grouped_alone(site: Site) -> None:
    fill(site)
    job = site.make("dead", queue="mail", type="a", last_error="OrderGone: order 5 is gone")
    answer = site.client.get(reverse(DEAD_LETTERS), {"queue": "mail"})
    (group,) = answer.context["groups"]
    assert group.count == "1"
    assert [found.pk for found in site.client.get(group.list_url).context["cl"].result_list] == [job.pk]
    assert "Queue mail" in text(answer)
    assert len(site.client.get(reverse(DEAD_LETTERS), {"type": "b"}).context["groups"]) == 1
    assert "There is no dead letter." in text(site.client.get(reverse(DEAD_LETTERS), {"type": "none"}))
    assert "queue has a NUL" in text(site.client.get(reverse(DEAD_LETTERS), {"queue": "\x00"}))


def test_a_group_says_when_its_first_and_its_last_job_ended(site: Site) -> None:
    for hours in (5, 2, 9):
        site.make("dead", last_error="x", finished_at=Now() - timedelta(hours=hours))
    (group,) = groups(site)
    assert "2 h ago" in group.newest
    assert "9 h ago" in group.oldest


def test_of_many_dead_letters_the_newest_are_grouped_and_the_page_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(5):
        site.make("dead", last_error=f"number {place // 3}x", finished_at=Now() - timedelta(minutes=place))
    monkeypatch.setattr(dead_letters, "NEWEST_READ", 3)
    assert [group.count for group in groups(site)] == ["3"]
    page = text(site.client.get(reverse(DEAD_LETTERS)))
    assert "Only the newest 3 are looked at: there are more" in page
    assert "Of the newest 3 dead letters." in page


def test_only_the_largest_groups_are_shown_and_the_page_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "GROUPS_SHOWN", 2)
    for line in "aabbbc":
        site.make("dead", last_error=line)
    assert [group.line for group in groups(site)] == ["b", "a"]
    assert "Only the 2 largest groups are shown." in text(site.client.get(reverse(DEAD_LETTERS)))


def test_an_error_is_masked_and_never_in_an_address(site: Site) -> None:
    site.make("dead", last_error="OSError: password=hunter2 refused")
    (group,) = groups(site)
    page = site.client.get(reverse(DEAD_LETTERS)).content.decode()
    assert "hunter2" not in page
    assert "line=" not in group.list_url
    assert not group.requeue_url


def test_what_is_secret_in_the_arguments_is_masked_in_an_error_too_though_its_numbers_are_folded(site: Site) -> None:
    payload = {"args": ["eva", "s3cret-by-place"], "kwargs": {"pin": {"password": "123456"}}}
    site.make("dead", type=log_in.name, payload=payload, last_error="KeyError: 's3cret-by-place' of 123456 in 7 s")
    (group,) = groups(site)
    assert group.line == "KeyError: '•••' of # in # s"
    assert "line=" not in group.list_url


def log_in_with(token: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": ["eva", token], "kwargs": kwargs}


def test_what_is_secret_in_any_job_of_a_group_is_masked_in_its_line(site: Site) -> None:
    line = "KeyError: 's{}cret-by-place' at hunter of {}"
    for number, payload in enumerate(
        (log_in_with("s3cret-by-place"), log_in_with("other", deep=[{"Password": "hunter"}]), log_in_with("last"))
    ):
        site.make("dead", type=log_in.name, payload=payload, last_error=line.format(number, number))
    site.make("dead", type="unknown", payload=log_in_with("x", password="hunter"), last_error="at hunter")
    site.make("dead", type="unknown", payload=log_in_with("x"), last_error="at hunter")
    first, second = groups(site)
    assert (first.line, second.line) == ("KeyError: '•••' at ••• of #", "at •••")
    assert [group.list_url.count("line=") + bool(group.requeue_url) for group in (first, second)] == [0, 0]


@pytest.mark.parametrize(
    ("token", "error", "line"),
    [
        ("p4ss w0rd", "at https://host/?q=p4ss%20w0rd", "at https://host/?q=•••"),
        ("p4ss\"\\w0rd", 'at {"q": "p4ss\\"\\\\w0rd"}', 'at {"q": "•••"}'),
        ("ab123456", "at ab123456 of 7", "at ••• of #"),
        ("-----BEGIN-----\nMIIE78901/ab\n", "at MIIE78901/ab", "at •••"),
        # Of a line that is longer the end is read, and begins within the secret.
        ("long" * 5 + "s3cret", "long" * 5 + "s3cret" + ": x" * 160, "•••" + ": x" * 160),
    ],
)  # fmt: skip
def test_a_secret_is_masked_in_a_folded_line_however_it_is_spelled(
    site: Site, monkeypatch: pytest.MonkeyPatch, token: str, error: str, line: str
) -> None:
    monkeypatch.setattr(error_text, "END_READ", 490)
    site.make("dead", type=log_in.name, payload=log_in_with(token), last_error=error)
    assert [group.line for group in groups(site)] == [line]


def test_a_name_of_redact_with_a_number_hides_what_a_line_says_after_it(site: Site, settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "REDACT": ["oauth2"]}
    site.make("dead", last_error="OSError: oauth2=hunter refused")
    assert [group.line for group in groups(site)] == ["OSError: oauth#=••• refused"]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "REDACT": []}
    assert [group.line for group in groups(site)] == ["OSError: oauth#=hunter refused"]


def test_markup_in_a_type_or_an_error_is_shown_as_it_is_written(site: Site) -> None:
    site.make("dead", type=MARKUP, last_error=MARKUP)
    page = site.client.get(reverse(DEAD_LETTERS)).content.decode()
    assert MARKUP not in page
    assert MARKUP in html.unescape(re.sub("<wbr>", "", page))


def test_a_requeue_of_a_group_is_offered_to_those_who_may(site: Site) -> None:
    fill(site)
    requeue = groups(site)[0].requeue_url
    assert (
        requeue
        == "/admin/django_jobs/bulkact/add/?act=requeue&state=dead-letters&type=a&line=OrderGone%3A+order+%23+is+gone"
    )
    assert "Requeue all" in text(site.client.get(reverse(DEAD_LETTERS)))


def test_who_may_not_requeue_is_offered_none(as_user: As) -> None:
    site = as_user("view_job")
    fill(site)
    assert "Requeue all" not in text(site.client.get(reverse(DEAD_LETTERS)))


@pytest.mark.parametrize("name", [DEAD_LETTERS, RETRIES])
def test_who_may_not_see_jobs_sees_neither_page(as_user: As, name: str) -> None:
    site = as_user("view_worker")
    assert site.client.get(reverse(name)).status_code == 403
    site.client.logout()
    assert site.client.get(reverse(name)).status_code == 302


def test_retries_are_those_that_wait_for_another_attempt_the_next_first(site: Site) -> None:
    later, soon = (site.make(attempts=2, max_attempts=5, run_at=Now() + timedelta(minutes=m)) for m in (50, 5))
    site.make()
    site.make("dead", attempts=3)
    site.make(attempts=1, parked="type")
    answer = site.client.get(reverse(RETRIES))
    assert [job.pk for job in answer.context["cl"].result_list] == [soon.pk, later.pk]
    assert "due in 5 min 3 of 5" in text(answer)
    assert "By state" not in text(answer)


def test_retries_are_narrowed_and_searched_as_jobs_are(site: Site) -> None:
    wanted = site.make(attempts=2, queue="mail", last_error="OSError: disk")
    site.make(attempts=2, queue="mail", last_error="ValueError: x")
    site.make("dead", queue="mail", last_error="OSError: disk")
    for query in (
        {"q": "disk", "queue": "mail"},
        {"error": "OSERROR"},
        {"q": str(wanted.pk)},
        {"error": "disk", "state": "dead"},
    ):
        answer = site.client.get(reverse(RETRIES), query)
        assert [job.pk for job in answer.context["cl"].result_list] == [wanted.pk], query


def test_the_lists_lead_to_each_other(site: Site) -> None:
    for name in (DEAD_LETTERS, RETRIES, "admin:django_jobs_job_changelist"):
        page = site.client.get(reverse(name)).content.decode()
        for other in (DEAD_LETTERS, RETRIES, "admin:django_jobs_job_changelist"):
            assert f'<a href="{reverse(other)}"' in page


def test_the_archive_has_neither(site: Site) -> None:
    assert site.client.get("/admin/django_jobs/archivedjob/retries/").status_code in (302, 404)


def test_the_page_of_dead_letters_asks_few_questions(as_user: As) -> None:
    site = as_user("view_job", "requeue_job")
    fill(site)
    with CaptureQueriesContext(connections[site.alias]) as asked:
        groups(site)
    assert len(asked) < 12


@pytest.mark.parametrize("name", [DEAD_LETTERS, RETRIES])
def test_each_page_has_the_style_of_lists_and_that_of_all_pages(site: Site, name: str) -> None:
    page = site.client.get(reverse(name)).content.decode()
    assert "django_jobs/lists.css" in page
    assert "django_jobs/admin.css" in page
