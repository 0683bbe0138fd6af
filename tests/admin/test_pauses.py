from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

import django_jobs
from django_jobs.admin import paused_schedules
from django_jobs.admin.figures import NOTHING
from django_jobs.models import Pause, Schedule, StatTotal, Worker
from django_jobs.models.clock import database_now, from_row
from tests.admin.conftest import As
from tests.admin.front import cells, front, stat
from tests.admin.site import Site, messages, text
from tests.app.jobs import nothing

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
OVERVIEW = "/admin/django_jobs/"
LIST, ADD, RESUME = (f"{OVERVIEW}pause/{what}" for what in ("", "add/", "resume/"))


def add(site: Site, **values: Any) -> Any:
    given = {"kind": "queue", "called": "default", "until_0": "", "until_1": "", "why": "", **values}
    return site.client.post(ADD, given, follow=True)


def rows(site: Site) -> Any:
    found = Pause.objects.using(site.alias).order_by("kind", "name")
    return [(row.kind, row.name, row.by, row.why) for row in found]


def test_a_queue_and_a_type_are_paused_by_the_form(site: Site) -> None:
    assert add(site, why="the mail server is moved").status_code == 200
    add(site, kind="type", called=nothing.name, until_0="2126-01-02", until_1="03:04:05")
    assert rows(site) == [("queue", "default", "ada", "the mail server is moved"), ("type", nothing.name, "ada", "")]
    until = Pause.objects.using(site.alias).get(kind="type").until
    assert until is not None
    assert until.isoformat() == "2126-01-02T03:04:05+00:00"
    page = text(site.client.get(LIST))
    assert "queue default paused the mail server is moved ada 0." in page
    assert "when resumed" in page
    assert LogEntry.objects.count() == 2


def confirmation(answer: Any) -> str | None:
    """Return what the box of a form stands for that asks again, as a browser would send it."""
    box = re.search(r'<input type="checkbox" name="nevertheless" value="([^"]*)"[^>]*>', answer.content.decode())
    assert box is None or "checked" not in box[0]
    return unescape(box[1]) if box else None


def test_a_name_that_nothing_has_is_asked_about_and_paused_once_that_name_is_confirmed(site: Site) -> None:
    answer = add(site, called="defualt")
    assert "No queue is called defualt. Did you mean default?" in text(answer)
    assert "Pause it nevertheless" in text(answer)
    assert (rows(site), confirmation(answer)) == ([], "queue defualt")
    # Ticked, and then written otherwise once more.
    answer = add(site, called="defulat", nevertheless="queue defualt")
    assert (rows(site), confirmation(answer)) == ([], "queue defulat")
    assert messages(add(site, called="defulat", nevertheless="queue defulat"))[0].startswith("The pause")
    assert [row[1] for row in rows(site)] == ["defulat"]


def test_what_is_paused_is_paused_anew_once_the_end_of_that_pause_is_confirmed(site: Site) -> None:
    end = datetime(2126, 1, 2, 3, 4, tzinfo=UTC)
    found = django_jobs.pause(type=nothing, by="eve", why="<b>old</b>", until=end)
    new = {"kind": "type", "called": nothing.name, "lasts": "900", "why": "new"}
    answer = add(site, **new)
    said = unescape(text(answer))
    assert f"It is paused already: type {nothing.name} until 2126-01-02 03:04 UTC ( in " in said
    assert ") : <b>old</b> (eve, 0." in said
    assert "Replace that pause" in said
    assert f'href="{reverse("admin:django_jobs_pause_change", args=[found.pk])}"' in answer.content.decode()
    assert rows(site) == [("type", nothing.name, "eve", "<b>old</b>")]
    confirmed = {**new, "nevertheless": confirmation(answer)}
    # Somebody makes another of it meanwhile, of which nothing was said.
    django_jobs.pause(type=nothing, by="bob", why="other")
    answer = add(site, **confirmed)
    assert rows(site) == [("type", nothing.name, "bob", "other")]
    add(site, **{**new, "nevertheless": confirmation(answer)})
    assert rows(site) == [("type", nothing.name, "ada", "new")]


def test_a_pause_that_has_ended_is_replaced_without_a_question(site: Site) -> None:
    django_jobs.pause(queue="default", by="eve", why="old")
    Pause.objects.using(site.alias).update(until=Now() - timedelta(minutes=2))
    add(site, why="new")
    assert rows(site) == [("queue", "default", "ada", "new")]


@pytest.mark.parametrize(
    ("kind", "called", "says"),
    [
        ("type", nothing.name[:-1], f"No job type is called {nothing.name[:-1]}. Did you mean {nothing.name}"),
        ("type", "qqqqqq", "No job type is called qqqqqq."),
        ("type", "default", "No job type is called default. A queue is called so: choose “queue” above."),
        ("queue", nothing.name, f"No queue is called {nothing.name}. A job type is called so: choose “type” above."),
    ],
)
def test_what_is_asked_says_which_name_may_be_meant(site: Site, kind: str, called: str, says: str) -> None:
    answer = add(site, kind=kind, called=called)
    assert says in text(answer)
    assert ("Did you mean" in text(answer)) == ("Did you mean" in says)
    assert (rows(site), confirmation(answer)) == ([], f"{kind} {called}")


def test_names_of_jobs_that_wait_or_ran_of_workers_and_of_schedules_are_known(site: Site) -> None:
    site.make(queue="waiting")
    site.make(queue="parked", type="shop.parked", parked="type")
    Worker.objects.using(site.alias).create(
        id="w1", host="h", pid=1, supervisor_pid=1, types=["shop.of_a_worker"], threads=1, queues=["served"]
    )
    Schedule(name="a", type=nothing.name, expression="30 2 * * *", queue="planned").save(using=site.alias)
    stat(site, 2, queue="counted", type="shop.counted")
    StatTotal.objects.using(site.alias).create(queue="summed", type="shop.summed")
    known = [("queue", name) for name in ("waiting", "parked", "served", "planned", "counted", "summed")]
    known += [("type", name) for name in ("shop.parked", "shop.of_a_worker", "shop.counted", "shop.summed")]
    for kind, name in known:
        assert confirmation(add(site, kind=kind, called=name)) is None
    assert [row[:2] for row in rows(site)] == sorted(known)


def test_a_name_that_cannot_be_is_refused_in_the_form(site: Site) -> None:
    answer = add(site, called="a b")
    assert "has a comma, a space or a control character" in text(answer)
    assert rows(site) == []


def test_pauses_are_resumed_from_the_list(site: Site) -> None:
    found = django_jobs.pause(queue="mail")
    django_jobs.pause(queue="other")
    chosen = {"action": "delete_selected", "index": "0", "_selected_action": [found.pk]}
    answer = site.client.post(LIST, chosen, follow=True)
    assert messages(answer) == ["Resumed: queue mail."]
    assert [row[1] for row in rows(site)] == ["other"]
    assert LogEntry.objects.get().object_repr == "queue mail"


def test_a_pause_whose_time_is_over_says_so(site: Site) -> None:
    found = django_jobs.pause(type=nothing, until=60)
    Pause.objects.using(site.alias).update(until=Now() - timedelta(minutes=2))
    assert "over" in text(site.client.get(LIST))
    page = site.client.get(reverse("admin:django_jobs_pause_change", args=[found.pk]))
    assert nothing.name in text(page)


def test_who_may_only_look_at_pauses_makes_and_ends_none(as_user: As) -> None:
    site = as_user("view_pause", "view_job", "add_pause", "delete_pause")
    found = django_jobs.pause(queue="mail")
    assert site.client.get(LIST).status_code == 200
    assert add(site).status_code == 403
    site.client.post(LIST, {"action": "delete_selected", "index": "0", "_selected_action": [found.pk]})
    assert site.client.post(RESUME, {"kind": "queue", "name": "mail"}).status_code == 403
    assert [row[1] for row in rows(site)] == ["mail"]
    assert "Resume" not in front(site)


def test_one_permission_lets_somebody_pause_and_resume(as_user: As) -> None:
    site = as_user("pause_queue", "view_job")
    add(site)
    assert [row[1] for row in rows(site)] == ["default"]
    assert site.client.get(LIST).status_code == 200
    site.client.post(RESUME, {"kind": "queue", "name": "default"})
    assert rows(site) == []


def test_a_queue_is_paused_from_the_overview_and_resumed_there_again(site: Site) -> None:
    site.make(queue="mail", run_at=Now() - timedelta(minutes=1))
    link = re.search(r'<tr data-queue="mail">.*?<a href="([^"]*pause/add/[^"]*)"', front(site), re.DOTALL)
    assert link
    form = site.client.get(unescape(link[1]))
    assert 'value="mail"' in form.content.decode()
    given = {
        "kind": "queue",
        "called": "mail",
        "until_0": "",
        "until_1": "",
        "lasts": "3600",
        "why": "the server moves",
    }
    answer = site.client.post(unescape(link[1]), given)
    assert (answer.status_code, answer["Location"]) == (302, OVERVIEW)
    page = front(site)
    assert re.search(r"paused Queue mail until \d+.* the server moves \(ada, 0\.\d s ago \)", text(page))
    assert cells(page, 'data-queue="mail"')[-1] == "paused"
    answer = site.client.post(RESUME, {"kind": "queue", "name": "mail", "next": OVERVIEW}, follow=True)
    assert answer.redirect_chain == [(OVERVIEW, 302)]
    assert messages(answer) == ["Resumed: queue mail."]
    assert rows(site) == []
    assert [entry.object_repr for entry in LogEntry.objects.filter(action_flag=3)] == ["queue mail"]
    answer = site.client.post(RESUME, {"kind": "queue", "name": "mail", "next": OVERVIEW}, follow=True)
    assert messages(answer) == ["mail is not paused any more."]


def test_a_pause_is_shown_on_the_pages_that_it_concerns(site: Site) -> None:
    django_jobs.pause(queue="mail", why="a reason of mail")
    django_jobs.pause(type=nothing.name, why="a reason of nothing")
    site.make(queue="elsewhere", type=nothing.name)
    site.make(queue="mail", type="shop.letter")
    mail = Worker.objects.using(site.alias).create(
        id="w1", host="h", pid=1, supervisor_pid=1, types=["other"], threads=1, queues=["mail"]
    )
    every = Worker.objects.using(site.alias).create(
        id="w2", host="h", pid=2, supervisor_pid=1, types=[nothing.name], threads=1
    )
    pages = {
        "/admin/django_jobs/": (True, True),
        "/admin/django_jobs/job/": (True, True),
        "/admin/django_jobs/job/?queue=mail": (True, False),
        "/admin/django_jobs/job/?queue=default": (False, True),
        "/admin/django_jobs/job/?queue=elsewhere": (False, True),
        "/admin/django_jobs/job/?queue=empty": (False, False),
        f"/admin/django_jobs/job/?type={nothing.name}": (False, True),
        "/admin/django_jobs/job/?type=shop.letter": (True, False),
        f"/admin/django_jobs/job/?type={nothing.name}&queue=default": (False, True),
        "/admin/django_jobs/worker/": (True, True),
        f"/admin/django_jobs/worker/{mail.pk}/change/": (True, False),
        f"/admin/django_jobs/worker/{every.pk}/change/": (True, True),
        "/admin/django_jobs/effect/": (False, False),
    }
    for address, shown in pages.items():
        page = site.client.get(address).content.decode()
        assert ("a reason of mail" in page, "a reason of nothing" in page) == shown, address


def test_a_pause_is_ended_by_a_post_of_our_own_page_only(as_user: As) -> None:
    site = as_user("pause_queue", "view_job", enforce_csrf_checks=True)
    django_jobs.pause(queue="mail")
    assert site.client.get(RESUME).status_code == 405
    assert site.client.post(RESUME, {"kind": "queue", "name": "mail"}).status_code == 403
    assert [row[1] for row in rows(site)] == ["mail"]
    token = re.search(r'name="csrfmiddlewaretoken" value="(.*?)"', front(site))
    assert token
    given = {"kind": "queue", "name": "mail", "csrfmiddlewaretoken": token[1]}
    assert site.client.post(RESUME, {**given, "next": "https://elsewhere.example/"})["Location"] == LIST
    assert rows(site) == []


def test_paused_schedules_are_listed_with_who_paused_them_why_and_since_when(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Paused schedules none A schedule is paused and resumed on its page" in text(site.client.get(LIST))
    made = [Schedule(name=f"nightly {n}", type=nothing.name, expression="30 2 * * *", enabled=n > 1) for n in range(3)]
    for schedule in made:
        schedule.save(using=site.alias)
    made[2].pause(by="eve", why="<b>holidays</b>")
    shown = site.client.get(LIST).content.decode().partition('id="paused-schedules"')[2].partition("</section>")[0]
    nobody, somebody = (unescape(text(line)) for line in re.findall("<tr>.*?</tr>", shown)[-2:])
    assert nobody.startswith(f"nightly 1 {NOTHING} {NOTHING} ")
    assert re.fullmatch(r"nightly 2 <b>holidays</b> eve 0(\.\d)? s ago Resume", somebody)
    assert f'href="{reverse("admin:django_jobs_schedule_change", args=[made[2].pk])}"' in shown
    monkeypatch.setattr(paused_schedules, "SHOWN", 2)
    shown = text(site.client.get(LIST))
    assert "nightly 2" not in shown
    assert "There are more." in shown


def test_who_may_not_see_schedules_is_told_of_no_paused_one(as_user: As) -> None:
    assert "Paused schedules" not in text(as_user("pause_queue").client.get(LIST))


# In one of them it is always another day than in UTC.
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_a_pause_until_tomorrow_ends_when_the_day_of_who_asks_does(site: Site, zone: str) -> None:
    with timezone.override(zone):
        add(site, lasts="tomorrow")
        until = Pause.objects.using(site.alias).get().until
        assert until is not None
        now = database_now(site.alias)
        local = from_row(until, site.alias).astimezone(timezone.get_current_timezone())
        assert (local.hour, local.minute) == (0, 0)
        assert timedelta(0) < local - now <= timedelta(days=1)


def test_of_a_choice_and_a_time_one_is_given(site: Site) -> None:
    answer = add(site, lasts="900", until_0="2126-01-02", until_1="03:04:05")
    assert "not both" in text(answer)
    assert rows(site) == []


def test_an_end_that_is_past_is_refused_at_its_field_and_what_is_paused_stays_so(site: Site) -> None:
    django_jobs.pause(queue="default", by="eve", why="old")
    anew = confirmation(add(site))
    answer = add(site, until_0="2001-01-02", until_1="03:04:05", nevertheless=anew)
    said = "until is 2001-01-02 03:04:05+00:00, which is past by the database's clock; give a later time."
    assert answer.context["adminform"].form.errors["until"] == [said]
    assert rows(site) == [("queue", "default", "eve", "old")]
    assert LogEntry.objects.count() == 0


def test_the_form_says_what_a_name_is_and_suggests_those_that_are_known(site: Site) -> None:
    site.make(queue='"><b>')
    page = site.client.get(ADD).content.decode()
    assert 'list="known-names"' in page
    assert '<option value="default">queue</option>' in page
    assert f'<option value="{nothing.name}">type</option>' in page
    assert '"><b>' not in page
    assert "as the list of jobs shows it" in text(page)
