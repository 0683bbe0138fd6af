"""Acts upon all that a filter finds, in the admin: count, confirmation, page, cancel and resume, and who may."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_jobs.admin import bulk_count, bulk_shown, listing
from django_jobs.models import BulkAct, Job, Worker
from django_jobs.queue import bulk_step, operate
from django_jobs.queue.bulk_acts import TYPE, meant
from django_jobs.queue.sought import Sought
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text
from tests.bulk import begin, carry_out, make, statuses, take_step

pytestmark = pytest.mark.django_db(databases="__all__")
ADD = "admin:django_jobs_bulkact_add"
MAY = {"requeue": "requeue_job", "cancel": "cancel_job", "move": "edit_job", "delete": "delete_job"}


def ask(site: Site, act: str = "requeue", **query: str) -> Any:
    return site.client.get(reverse(ADD), {"act": act, **query})


def confirm(site: Site, answer: Any, **values: str) -> Any:
    """Send the form of a page that asks, as it came."""
    token = str(answer.context["form"]["token"].value())
    return site.client.post(answer.context["action"], {"token": token, "why": "it is back", **values}, follow=True)


def acts(alias: str) -> list[BulkAct]:
    return list(BulkAct.objects.using(alias).order_by("pk"))


def test_the_count_and_some_rows_are_shown_and_nothing_is_done_before_it_is_confirmed(site: Site) -> None:
    ids = make(site.alias, 7, last_error="OSError: mail <server> away")
    make(site.alias, 1, last_error="KeyError")
    answer = ask(site, state="dead-letters", error="mail <server>")
    page = text(answer)
    assert "7 jobs that are failed or dead" in page
    assert "error: mail &lt;server&gt;" in page
    assert "OSError: mail &lt;server&gt; away" in page
    assert "<server>" not in answer.content.decode()
    assert len(answer.context["examples"]) == bulk_count.EXAMPLES
    assert statuses(site.alias, ids) == ["dead"] * 7
    assert acts(site.alias) == []


def test_confirmed_it_is_stored_with_its_job_and_in_the_log_with_who_which_filter_how_many_and_why(site: Site) -> None:
    ids = make(site.alias, 3)
    answer = confirm(site, ask(site, state="dead-letters"), per_minute="600")
    (act,) = acts(site.alias)
    assert answer.redirect_chain[-1][0] == reverse("admin:django_jobs_bulkact_change", args=[act.pk])
    assert (act.by, act.why, act.counted, act.is_capped, act.per_minute) == ("ada", "it is back", 3, False, 600)
    said = "Requeue, all that were found by (state: dead letters (dead or failed)), 3 jobs: it is back"
    assert site.log() == [(str(act.pk), site.user, said)]
    job = Job.objects.using(site.alias).get(pk=act.job_id)
    assert (job.type, job.args, job.priority, job.status) == (TYPE, [act.pk], 100, "ready")
    assert "no worker is running" in text(answer)
    assert carry_out(act).done == 3
    assert statuses(site.alias, ids) == ["ready"] * 3


def test_a_form_that_is_sent_twice_makes_one_act(site: Site) -> None:
    make(site.alias, 3)
    asked = ask(site, state="dead-letters")
    first, second = confirm(site, asked), confirm(site, asked)
    assert first.redirect_chain == second.redirect_chain
    assert len(acts(site.alias)) == 1
    assert len(site.log()) == 1
    assert Job.objects.using(site.alias).filter(type=TYPE).count() == 1


def test_a_second_tab_is_told_of_the_same_that_is_under_way_and_led_there(site: Site) -> None:
    make(site.alias, 3)
    one, other = ask(site, state="dead-letters"), ask(site, state="dead-letters")
    first = confirm(site, one)
    assert "has asked for the same" in text(ask(site, state="dead-letters"))
    second = confirm(site, other)
    assert second.redirect_chain == first.redirect_chain
    assert messages(second) == ["The same was asked for before, and is under way: this is it."]
    assert len(acts(site.alias)) == 1


def test_the_form_asks_for_a_reason_and_refuses_what_cannot_be_used(site: Site) -> None:
    make(site.alias, 1, "ready")
    asked = ask(site, "move", state="due")
    assert re.search(r'<label[^>]* class="required"[^>]*>Why', asked.content.decode())
    assert 'placeholder="needed, for the record"' in asked.content.decode()
    for values in ({"why": "", "queue": "a"}, {"queue": ""}, {"queue": "a,b"}, {"queue": "a", "per_minute": "0"}):
        answer = confirm(site, asked, **values)
        assert answer.status_code == 200
        assert "errorlist" in answer.content.decode()
    assert acts(site.alias) == []
    confirm(site, asked, queue="slow")
    assert [act.queue for act in acts(site.alias)] == ["slow"]


def test_a_form_without_its_token_makes_nothing(site: Site) -> None:
    make(site.alias, 1)
    asked = ask(site, state="dead-letters")
    for token in ("", "x"):
        assert confirm(site, asked, token=token).status_code == 200
    assert acts(site.alias) == []


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"act": "explode"},
        {"act": "cancel", "state": "dead"},
        {"act": "requeue", "state": "nonsense"},
        {"act": "requeue", "priority": "x"},
    ],
)
def test_what_makes_no_sense_leads_back_to_the_list_and_says_why(site: Site, query: dict[str, str]) -> None:
    answer = site.client.get(reverse(ADD), query, follow=True)
    assert answer.redirect_chain == [(reverse("admin:django_jobs_job_changelist"), 302)]
    assert len(messages(answer)) == 1


def test_a_count_that_goes_no_further_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOK_AT", 5)
    make(site.alias, 9)
    answer = ask(site, state="dead-letters")
    assert "5 or more" in text(answer)
    assert "Counted in 5 that were looked through, and not further" in text(answer)
    act = acts(site.alias)[0] if confirm(site, answer) else None
    assert act is not None
    assert (act.counted, act.is_capped) == (5, True)
    assert bulk_shown.progress(act) == "0 of 5 or more done"
    assert carry_out(act).done == 9
    assert bulk_shown.progress(act) == "9 done"


def test_what_is_not_among_those_looked_through_is_not_said_to_be_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOK_AT_ERRORS", 5)
    ids = make(site.alias, 1, last_error="KeyError", finished_at=Now() - timedelta(days=1))
    make(site.alias, 5)
    answer = ask(site, state="dead-letters", error="KeyError")
    assert "None found in 5 looked through: jobs that are failed or dead" in text(answer)
    assert "None is among those that were looked through" in text(answer)
    confirm(site, answer)
    (act,) = acts(site.alias)
    assert (act.counted, act.is_capped) == (None, True)
    assert carry_out(act).done == 1
    assert statuses(site.alias, ids) == ["ready"]


def test_all_of_just_as_many_as_are_looked_through_are_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOK_AT", 9)
    make(site.alias, 9)
    found = bulk_count.count("requeue", Sought(state="dead-letters"))
    assert (found.number, found.is_capped) == (9, False)


COUNTED = [
    ("requeue", Sought(queue="a"), 3),
    ("requeue", Sought(state="done", queue="a"), 1),
    ("cancel", Sought(queue="a"), 5),
    ("cancel", Sought(priority=0), 5),
    ("move", Sought(queue="a"), 4),
    ("delete", Sought(queue="a"), 4),
    ("delete", Sought(state="due"), 1),
    ("cancel", Sought(queue="b"), 0),
]


@pytest.mark.parametrize(("act", "sought", "number"), COUNTED)
def test_counted_is_what_the_act_means_in_whatever_state(site: Site, act: str, sought: Sought, number: int) -> None:
    for status in ("dead", "failed", "cancelled", "done", "ready", "running"):
        make(site.alias, 1, status, queue="a")
    for parked in ("type", "pause", "suspect"):
        make(site.alias, 1, "ready", queue="a", parked=parked)
    make(site.alias, 1, "dead", queue="c", type=TYPE)
    found = bulk_count.survey(act, sought)
    assert (found.number, found.is_capped) == (number, False)
    assert len(found.examples) <= number
    assert bool(found.examples) == bool(number)
    assert meant(act, sought).count() == number


def test_where_nothing_is_found_there_is_nothing_to_confirm(site: Site) -> None:
    answer = ask(site, state="dead-letters")
    assert "There is nothing to be done" in text(answer)
    assert 'id="confirm"' not in answer.content.decode()


@pytest.mark.parametrize("act", list(MAY))
def test_each_act_is_refused_by_its_address_to_whom_may_not(as_user: As, act: str) -> None:
    others = [codename for name, codename in MAY.items() if name != act]
    site = as_user("view_job", "view_bulkact", *others)
    make(site.alias, 1)
    make(site.alias, 1, "ready")
    begun = begin(act, **({"queue": "a"} if act == "move" else {}), sought=Sought(type="tests.app.jobs.nothing"))
    query = {"act": act, "type": "tests.app.jobs.nothing"}
    form = {"token": str(uuid4()), "why": "x", "queue": "b"}
    assert site.client.get(reverse(ADD), query).status_code == 403
    assert site.client.post(f"{reverse(ADD)}?act={act}&type=x", form).status_code == 403
    for what in ("cancel", "resume"):
        assert site.client.post(reverse(f"admin:django_jobs_bulkact_{what}", args=[begun.pk])).status_code == 403
    assert [found.state for found in acts(site.alias)] == ["waiting"]
    page = site.client.get(reverse("admin:django_jobs_bulkact_change", args=[begun.pk])).content.decode()
    assert 'id="cancel"' not in page
    assert f'id="bulk-{act}"' not in site.list(type="tests.app.jobs.nothing").content.decode()
    assert 'id="bulk-' in site.list(type="tests.app.jobs.nothing").content.decode()


def test_who_may_act_sees_the_acts_and_who_may_only_look_at_jobs_does_not(as_user: As) -> None:
    site = as_user("view_job", "requeue_job")
    act = begin()
    page = reverse("admin:django_jobs_bulkact_change", args=[act.pk])
    assert site.client.get(page).status_code == 200
    site.user.user_permissions.remove(site.user.user_permissions.get(codename="requeue_job"))
    assert site.client.get(page).status_code == 403
    assert site.client.get(reverse("admin:django_jobs_bulkact_changelist")).status_code == 403


def test_the_permission_to_act_without_that_to_see_jobs_is_not_enough(as_user: As) -> None:
    site = as_user("requeue_job")
    assert ask(site, state="dead-letters").status_code == 403


def test_forms_without_csrf_are_refused(as_user: As) -> None:
    site = as_user("view_job", "requeue_job", enforce_csrf_checks=True)
    make(site.alias, 1)
    asked = ask(site, state="dead-letters")
    assert confirm(site, asked).status_code == 403
    act = begin()
    assert site.client.post(reverse("admin:django_jobs_bulkact_cancel", args=[act.pk])).status_code == 403


def test_an_address_that_is_merely_opened_cancels_nothing(site: Site) -> None:
    act = begin()
    assert site.client.get(reverse("admin:django_jobs_bulkact_cancel", args=[act.pk])).status_code == 405
    assert acts(site.alias)[0].state == "waiting"


def test_cancelled_and_resumed_from_its_page_each_is_kept_in_the_log(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_step, "BATCH", 4)
    monkeypatch.setattr(bulk_step, "LONGEST", 0.0)
    monkeypatch.setattr(bulk_step, "LONGEST_ON_SQLITE", 0.0)
    ids = make(site.alias, 10)
    confirm(site, ask(site, state="dead-letters"))
    (act,) = acts(site.alias)
    take_step(act)

    def press(what: str) -> Any:
        url = reverse(f"admin:django_jobs_bulkact_{what}", args=[act.pk])
        return site.client.post(url, {"why": "lunch"}, follow=True)

    answer = press("cancel")
    assert "cancelled 4 of 10 done" in text(answer)
    assert 'id="resume"' in answer.content.decode()
    assert messages(press("cancel")) == [
        f"Act {act.pk} is cancelled already; only one that is under way can be cancelled."
    ]
    assert "waiting 4 of 10 done" in text(press("resume"))
    carry_out(act)
    assert "done 10 of 10 done" in text(site.client.get(reverse("admin:django_jobs_bulkact_change", args=[act.pk])))
    assert messages(press("resume")) == [f"Act {act.pk} is done; there is nothing left of it."]
    assert statuses(site.alias, ids) == ["ready"] * 10
    assert [said for _, _, said in site.log()[1:]] == ["Cancelled: lunch", "Resumed: lunch"]


def test_the_page_of_an_act_that_is_done_leads_to_what_became_of_its_jobs(site: Site) -> None:
    ids = make(site.alias, 3, queue="mail")
    sought = Sought(state="dead-letters", queue="mail", error="away")
    act = carry_out(begin(sought=sought))
    rows = Job.objects.using(site.alias)
    rows.filter(pk=ids[0]).update(status="done", finished_at=Now())
    rows.filter(pk=ids[1]).update(status="dead", finished_at=Now())
    rows.create(type="other", payload={}, queue="mail", status="done", finished_at=Now() - timedelta(hours=1))
    page = site.client.get(reverse("admin:django_jobs_bulkact_change", args=[act.pk])).content.decode()
    links = re.findall(r'<a href="([^"]*)">([^<]*)</a>', page.partition('id="afterwards"')[2].partition("</p>")[0])
    found = {}
    for url, label in links:
        listed = site.client.get(unescape(url)).context["cl"].result_list
        found[label] = [job.pk for job in listed]
    assert found == {
        "done since then": [ids[0]], "dead letters (dead or failed) since then": [ids[1]], "due": [ids[2]],
        "running": [], "retries": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("act", "leads"), [("cancel", "cancelled since then"), ("move", "the queue slow"), ("delete", "")]
)
def test_the_other_acts_lead_to_what_they_left(site: Site, act: str, leads: str) -> None:
    make(site.alias, 1, "ready")
    done = carry_out(begin(act, Sought(state="due"), queue="slow" if act == "move" else ""))
    assert [label for label, _url in bulk_shown.afterwards(done)] == ([leads] if leads else [])


def test_an_act_whose_job_runs_is_not_said_to_wait(site: Site) -> None:
    make(site.alias, 1)
    act = begin()
    url = reverse("admin:django_jobs_bulkact_change", args=[act.pk])
    assert "waiting 0 done" in text(site.client.get(url))
    Job.objects.using(site.alias).filter(pk=act.job_id).update(status="running", locked_by="w:1", locked_until=Now())
    shown = text(site.client.get(url)).partition("What was asked for")[0]
    assert "running 0 done" in shown
    assert "Runs for" not in shown
    assert "waiting" not in shown


def test_an_act_that_stopped_says_why_and_offers_to_go_on(site: Site) -> None:
    make(site.alias, 1)
    act = begin()
    operate.cancel(act.job_id or 0, by="bob", why="who made this?")
    answer = site.client.get(reverse("admin:django_jobs_bulkact_change", args=[act.pk]))
    page = text(answer)
    assert "stopped" in page
    assert "by bob: who made this?" in page
    assert 'id="resume"' in answer.content.decode()


def test_refusals_lead_to_their_jobs_and_are_escaped(site: Site) -> None:
    (job_id,) = make(site.alias, 1, idempotency_key="<b>key</b>")
    act = carry_out(begin("delete"))
    page = site.client.get(reverse("admin:django_jobs_bulkact_change", args=[act.pk])).content.decode()
    assert f'href="{reverse("admin:django_jobs_job_change", args=[job_id])}"' in page
    assert "<b>key" not in page
    assert "1 refused" in page


def test_the_list_of_jobs_offers_what_fits_its_filter_and_keeps_it(site: Site) -> None:
    make(site.alias, 1)
    make(site.alias, 1, "ready")
    assert 'id="bulk-' not in site.list().content.decode()
    page = site.list(state="dead-letters", type="tests.app.jobs.nothing").content.decode()
    assert f"{reverse(ADD)}?act=requeue&amp;state=dead-letters&amp;type=tests.app.jobs.nothing" in page
    assert 'id="bulk-cancel"' not in page
    assert 'id="bulk-requeue"' not in site.list(state="due").content.decode()
    assert 'id="bulk-cancel"' in site.list(state="due").content.decode()


def test_no_page_needs_many_queries_however_many_acts_there_are(as_user: As) -> None:
    site = as_user("view_job", *MAY.values())
    Worker.objects.using(site.alias).create(
        id="w", host="here", pid=1, supervisor_pid=1, threads=1, types=[TYPE], queues=None
    )
    make(site.alias, 20, idempotency_key=None)
    make(site.alias, 1, "ready", queue="a", idempotency_key="order:1")
    for number in range(20):
        act = begin(sought=Sought(state="dead-letters", tag=str(number)))
    pages = [
        (reverse("admin:django_jobs_bulkact_changelist"), {}),
        (reverse("admin:django_jobs_bulkact_change", args=[act.pk]), {}),
        (reverse(ADD), {"act": "requeue", "state": "dead-letters"}),
        (reverse(ADD), {"act": "move", "queue": "a"}),
        (reverse(ADD), {"act": "move", "queue": "a", "q": "order:1"}),
        (reverse(ADD), {"act": "cancel", "queue": "a", "since": "1h"}),
    ]
    for url, query in pages:
        sent = []
        for alias in {"default", site.alias}:
            with CaptureQueriesContext(connections[alias]) as found:
                assert site.client.get(url, query).status_code == 200
            sent += found.captured_queries
        # The tests have a transaction: in one of its own a page sends neither of the two for its savepoint, nor what
        # gives the time-out back.
        ours = [line for line in sent if "SAVEPOINT" not in line["sql"]]
        assert 0 < len(ours) <= 14 + (connections[site.alias].vendor == "postgresql"), url


def test_a_filter_by_a_secret_argument_is_refused_here_as_on_the_list(site: Site) -> None:
    make(site.alias, 1, payload={"args": [], "kwargs": {"password": "hunter2", "to": {"id": 7}}})
    answer = site.client.get(reverse(ADD), {"act": "requeue", "argument": "kwargs.password=hunter2"}, follow=True)
    assert "REDACT" in messages(answer)[0]
    answer = ask(site, state="dead-letters", argument="kwargs.to.id=7")
    assert "argument: kwargs.to.id=7" in text(answer)
    assert "hunter2" not in answer.content.decode()
