"""The pages of worker processes, and what is asked of those there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_jobs.engines.base import Engine
from django_jobs.models import Worker
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text
from tests.engines.common import on_postgresql
from tests.engines.test_plans import FINISHED, UNFINISHED, read
from tests.plans import watched

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LIST = "/admin/django_jobs/worker/"
MARKUP = "<script>alert('x')</script>"
ACTS = ("quiet", "work", "stop", "stacks")


def made(site: Site, name: str = "a1", **values: Any) -> Worker:
    given = {"host": "web", "pid": 7, "supervisor_pid": 6, "supervisor": "s1", "types": ["shop.a"], "threads": 4}
    made: Worker = Worker.objects.using(site.alias).create(id=name, **{**given, **values})
    return made


def silence(site: Site, worker: Worker) -> None:
    rows = Worker.objects.using(site.alias).filter(pk=worker.pk)
    rows.update(heartbeat_at=Now() - timedelta(minutes=5))


def page(site: Site, worker: Worker) -> str:
    answer = site.client.get(reverse("admin:django_jobs_worker_change", args=[worker.pk]))
    assert answer.status_code == 200
    return text(answer)


def act(site: Site, worker: Worker, act: str, **values: str) -> Any:
    return site.client.post(reverse(f"admin:django_jobs_worker_{act}", args=[worker.pk]), values, follow=True)


def asked(site: Site) -> list[tuple[str, str, bool]]:
    rows = Worker.objects.using(site.alias).order_by("id")
    return [(row.pk, row.asked, row.stacks_asked_at is not None) for row in rows]


def test_the_list_shows_what_each_process_is_doing_and_running(site: Site) -> None:
    for number, (name, state) in enumerate([("a1", ""), ("b2", "quiet"), ("c3", "stop"), ("d4", "")]):
        made(site, name, pid=number, asked=state)
    silence(site, Worker.objects.using(site.alias).get(pk="d4"))
    values = {"last_started_at": Now() - timedelta(seconds=70), "type": "shop.long"}
    jobs = [site.make("running", locked_by="a1:3", **values) for _ in range(6)]
    site.make("running", locked_by="b2:1", type="shop.other")
    site.make("running", locked_by="a12:1", type="shop.of_nobody")
    site.make("done", locked_by=None, type="shop.ended")
    shown = text(site.client.get(LIST))
    first, second, third, fourth = shown.split(" web:")[1:5]
    assert first.startswith(f"0 live all 4 {jobs[0].pk} shop. long 70 s ago {jobs[1].pk} ")
    assert "and 2 more" in first
    assert " quiet " in second
    assert "shop. other" in second
    assert " stopping " in third
    assert " silent " in fourth
    assert "of_nobody" not in shown
    assert "ended" not in shown


@pytest.mark.parametrize("workers", [2, 40])
def test_pages_need_as_many_queries_for_many_processes_as_for_few(site: Site, workers: int) -> None:
    for number in range(workers):
        made(site, f"w{number}", pid=number)
        for _ in range(3):
            site.make("running", locked_by=f"w{number}:1")
    for url, most in [(LIST, 11), (f"{LIST}w1/change/", 11)]:
        with CaptureQueriesContext(connections[site.alias]) as found:
            assert site.client.get(url).status_code == 200
        assert len(found) < most, [query["sql"] for query in found]
    with CaptureQueriesContext(connections[site.alias]) as found:
        assert site.client.post(f"{LIST}w1/stop/").status_code == 200
    assert len(found) < 12


@on_postgresql
def test_the_list_reads_what_runs_and_nothing_else_of_the_jobs(site: Site, engine: Engine) -> None:
    for number in range(30):
        made(site, f"a{number}", pid=number)
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(FINISHED, [])
        cursor.execute(UNFINISHED, [])
        cursor.execute("ANALYZE django_jobs_job")
    with watched(engine.alias) as nodes:
        assert site.client.get(LIST).status_code == 200
    assert read([node for node in nodes if node.get("Relation Name") == "django_jobs_job"]) < 10_000


def test_a_process_is_quieted_told_to_work_again_and_asked_for_its_stacks_each_with_its_why(site: Site) -> None:
    worker = made(site)
    made(site, "b2")
    assert messages(act(site, worker, "quiet", why="its disk is full")) == [
        "web:7 is told to claim nothing more; it hears that with its next heartbeat."
    ]
    assert asked(site) == [("a1", "quiet", False), ("b2", "", False)]
    assert "quiet 0 jobs run here now. It claims nothing more until it is told to work again" in page(site, worker)
    act(site, worker, "work")
    act(site, worker, "stacks", why="it does nothing")
    assert asked(site) == [("a1", "", True), ("b2", "", False)]
    assert "Asked for 0." in page(site, worker)
    assert "no answer since" in page(site, worker)
    assert site.log() == [
        ("a1", site.user, "Quieted: its disk is full"),
        ("a1", site.user, "Told to work again."),
        ("a1", site.user, "Asked for its stacks: it does nothing"),
    ]


def test_to_stop_is_asked_twice_and_names_the_processes_and_the_runs_that_it_ends(site: Site) -> None:
    worker = made(site)
    made(site, "b2", pid=8)
    made(site, "c3", pid=9, supervisor="s2")
    silence(site, made(site, "d4", pid=10))
    for held in ("a1:1", "a1:1", "b2:1", "c3:1"):
        site.make("running", locked_by=held)
    answer = text(act(site, worker, "stop", why="host moves"))
    assert "which has 2 processes, in which 3 jobs run." in answer
    assert "web:7 2 web:8 1" in answer
    assert [row[1] for row in asked(site)] == ["", "", "", ""]
    assert LogEntry.objects.count() == 0
    answer = act(site, worker, "stop", why="host moves", confirmed="yes")
    assert messages(answer) == ["The runworkers of web:7 is told to stop; it hears that with its next heartbeat."]
    assert [row[1] for row in asked(site)] == ["stop", "stop", "", ""]
    assert site.log() == [("a1", site.user, "Told to stop: host moves")]
    answer = act(site, worker, "work")
    assert "Nobody hears for web:7" in messages(answer)[0]
    assert [row[1] for row in asked(site)] == ["stop", "stop", "", ""]


def test_processes_are_quieted_and_told_to_work_again_on_the_list(site: Site) -> None:
    for name in ("a1", "b2", "c3"):
        made(site, name)
    values = {"action": "quiet", "_selected_action": ["a1", "c3"], "why": "deploy"}
    assert len(messages(site.client.post(LIST, values, follow=True))) == 2
    assert [row[1] for row in asked(site)] == ["quiet", "", "quiet"]
    site.client.post(LIST, {**values, "action": "work", "_selected_action": ["c3"]})
    assert [row[1] for row in asked(site)] == ["quiet", "", ""]
    assert [entry[2] for entry in site.log()] == ["Quieted: deploy", "Quieted: deploy", "Told to work again: deploy"]


@pytest.mark.parametrize("kind", ACTS)
def test_of_a_process_that_is_gone_or_silent_it_is_said_that_nobody_hears(site: Site, kind: str) -> None:
    worker = made(site)
    silence(site, worker)
    assert "Nobody hears for web:7" in messages(act(site, worker, kind, confirmed="yes"))[0]
    assert asked(site) == [("a1", "", False)]
    assert "Nobody hears what is asked of it" in page(site, worker)
    Worker.objects.using(site.alias).all().delete()
    answer = act(site, worker, kind, confirmed="yes")
    assert messages(answer) == ["That process has ended: there is nobody to ask."]
    assert answer.redirect_chain == [(LIST, 302)]
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize("kind", ACTS)
def test_only_who_may_manage_workers_asks_anything_of_them_and_by_post(as_user: As, kind: str) -> None:
    site = as_user("view_worker", "view_job", "change_worker", "delete_worker")
    worker = made(site)
    assert act(site, worker, kind, confirmed="yes").status_code == 403
    assert 'formaction="' not in site.client.get(f"{LIST}a1/change/").content.decode()
    assert "Quiet selected" not in text(site.client.get(LIST))
    site.client.post(LIST, {"action": "quiet", "_selected_action": ["a1"]})
    assert asked(site) == [("a1", "", False)]


def test_who_may_not_see_jobs_sees_workers_without_what_they_run(as_user: As) -> None:
    site = as_user("view_worker")
    made(site, asked="quiet")
    site.make("running", locked_by="a1:1", type="shop.hidden")
    overview = reverse("admin:app_list", args=["django_jobs"])
    for url in (LIST, f"{LIST}a1/change/", overview):
        shown = text(site.client.get(url))
        assert "quiet" in shown
        assert "hidden" not in shown
        assert "Runs now" not in shown


@pytest.mark.parametrize("kind", ACTS)
def test_who_may_manage_workers_needs_a_post_with_a_token_of_the_page(as_user: As, kind: str) -> None:
    site = as_user("view_worker", "manage_worker", enforce_csrf_checks=True)
    worker = made(site)
    url = reverse(f"admin:django_jobs_worker_{kind}", args=[worker.pk])
    assert site.client.get(url).status_code == 405
    assert site.client.post(url, {"confirmed": "yes"}).status_code == 403
    site.client.get(f"{LIST}a1/change/")
    token = site.client.cookies["csrftoken"].value
    given = {"confirmed": "yes", "csrfmiddlewaretoken": token}
    assert site.client.post(url, given).status_code == 302
    assert asked(site) != [("a1", "", False)] or kind == "work"


def test_stacks_are_escaped_and_folded_while_newer_ones_are_asked_for(site: Site) -> None:
    worker = made(site, stacks=f'File "{MARKUP}", line 3 in handle', stacks_at=Now())
    shown = site.client.get(f"{LIST}a1/change/").content.decode()
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;, line 3 in handle" in shown
    assert MARKUP not in shown
    assert '<details class="dj-folded" open>' in shown
    act(site, worker, "stacks")
    shown = site.client.get(f"{LIST}a1/change/").content.decode()
    assert '<details class="dj-folded"><summary>' in shown
    assert "no answer since" in shown
