"""The pages in German, as the proof that they can be had in another language."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import override
from pytest_django.fixtures import Settings

from django_jobs import report, report_schedules
from django_jobs.engines import engine as engine_of
from django_jobs.engines.base import Engine
from django_jobs.exceptions import StateConflict
from django_jobs.models import ScheduleState
from django_jobs.queue import operate
from django_jobs.queue.seen import version
from django_jobs.queue.sought import Sought
from django_jobs.schedules import tick as ticks
from tests import bulk
from tests.admin import addresses, schedules
from tests.admin.site import Site, messages, text
from tests.app.jobs import nothing

GERMAN = {"Accept-Language": "de"}
pytestmark = [pytest.mark.django_db(databases="__all__")]


@pytest.fixture(autouse=True)
def as_the_browser_asks(settings: Settings) -> None:
    place = settings.MIDDLEWARE.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    between = ["django.middleware.locale.LocaleMiddleware"]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:place], *between, *settings.MIDDLEWARE[place:]]


def test_every_page_can_be_had_in_german(site: Site) -> None:
    rows = addresses.rows(site.alias)
    for address in addresses.addresses():
        answer = site.client.get(address.url(rows), headers=GERMAN)
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            assert 'lang="de"' in answer.content.decode() or "<html" not in answer.content.decode(), str(address)


def test_a_jobs_page_and_what_is_said_of_an_act_are_german(site: Site) -> None:
    job = site.make("dead", last_error="ValueError: no such order")
    page = text(site.client.get(f"/admin/django_jobs/job/{job.pk}/change/", headers=GERMAN))
    for words in ("Job", "aufgegeben", "Letzter Fehler", "Neu einreihen", "Warteschlange"):
        assert words in page
    assert "Requeue" not in page
    asked = {"why": "der Dienst ist wieder da"}
    answer = site.client.post(f"/admin/django_jobs/job/{job.pk}/requeue/", asked, follow=True, headers=GERMAN)
    assert messages(answer) == [f"Job {job.pk} wurde neu eingereiht."]


def test_the_name_of_what_is_paused_and_a_snapshot_that_there_is_not_are_said_as_germans_do(site: Site) -> None:
    page = text(site.client.get("/admin/django_jobs/pause/add/", headers=GERMAN))
    assert " Name: " in page
    assert "Ihr Name" not in page
    assert "Ältester Snapshot keine " not in text(site.client.get("/admin/django_jobs/", headers=GERMAN))


def test_one_job_is_one_and_a_schedule_is_resumed_not_ended_in_german(site: Site) -> None:
    site.make("dead")
    asked = {"act": "requeue", "state": "dead"}
    page = text(site.client.get(reverse("admin:django_jobs_bulkact_add"), asked, headers=GERMAN))
    assert "1 Job im Zustand aufgegeben" in page
    schedules.make(site, "nightly")
    page = text(site.client.get(reverse("admin:django_jobs_schedule_changelist"), headers=GERMAN))
    assert "Ausgewählte Zeitpläne fortsetzen" in page


def test_numbers_and_plurals_of_lists_are_german(site: Site, engine: Engine) -> None:
    for _number in range(2):
        site.make("dead")
    page = text(site.client.get("/admin/django_jobs/job/?state=dead-letters", headers=GERMAN))
    assert "2 Jobs" in page
    assert "gescheitert" in page


# What is refused, and why.


@pytest.fixture
def german(site: Site) -> Site:
    site.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    return site


def test_refused_acts_upon_a_job_are_german(german: Site) -> None:
    runs, done, dead = german.make("running"), german.make("done"), german.make("dead")
    due = german.make("ready", run_at=Now() - timedelta(minutes=1))
    refused = [
        *messages(german.act_on_page("requeue", runs)),
        *messages(german.act_on_page("cancel", done, confirmed="1")),
        *messages(german.act_on_page("run_now", due)),
        *messages(german.act_on_page("run_now", dead)),
        *messages(german.act_on_page("requeue", dead, as_seen="something else")),
        *messages(german.act_on_list("requeue", runs)),
    ]
    assert refused == [
        f"Job {runs.pk} läuft; neu einreihen lässt er sich, wenn er beendet ist.",
        f"Job {done.pk} ist schon erledigt; abbrechen lässt sich nur, was wartet oder läuft.",
        f"Job {due.pk} ist schon fällig; worauf er sonst wartet, steht auf seiner Seite und sagt explain().",
        f"Job {dead.pk} ist aufgegeben; ändern lässt sich nur ein Job, der wartet. Es wurde nichts geändert.",
        f"Job {dead.pk} hat sich geändert, seit er gezeigt wurde: Er ist aufgegeben jetzt. Es wurde nichts getan; bitte "
        "erneut ansehen.",
        f"Job {runs.pk} läuft; neu einreihen lässt er sich, wenn er beendet ist.",
    ]


def test_what_is_wrong_in_a_form_and_what_an_edit_has_changed_is_german(german: Site) -> None:
    job = german.make("ready", priority=3, run_at=Now() + timedelta(hours=1)).refresh()
    given = {"args": "[]", "kwargs": "{}", "priority": "4", "run_at": "2031-01-01T00:00:00", "as_seen": version(job)}
    wrong = unescape(text(german.act_on_page("edit", job, **{**given, "kwargs": '{"page": 1}'})))
    assert "Die Argumente passen nicht zu tests.app.jobs.nothing(number" in wrong
    assert "Es wurde nichts geändert." in wrong
    assert messages(german.act_on_page("edit", job, **given)) == [
        f"Job {job.pk} wurde bearbeitet: Priorität, Fälligkeit."
    ]
    pause = {"kind": "queue", "called": "a,b", "until_0": "", "until_1": "", "why": ""}
    answer = unescape(text(german.client.post("/admin/django_jobs/pause/add/", pause)))
    assert "queue: der Name der Warteschlange 'a,b' enthält ein Komma" in answer
    answer = unescape(text(german.client.get("/admin/django_jobs/job/?argument=x%3D1")))
    assert "argument ist" in answer
    assert "give" not in answer


def test_refusals_of_an_act_upon_all_are_german_by_row(german: Site) -> None:
    (job_id,) = bulk.make(german.alias, 1, idempotency_key="k")
    act = bulk.carry_out(bulk.begin("delete"))
    said = f"Job {job_id} hat den Idempotenzschlüssel 'k' und endete innerhalb von IDEMPOTENCY_WINDOW"
    page = german.client.get(reverse("admin:django_jobs_bulkact_change", args=[act.pk]))
    assert said in unescape(text(page))
    ended = german.client.post(reverse("admin:django_jobs_bulkact_resume", args=[act.pk]), follow=True)
    assert messages(ended) == [f"Aktion {act.pk} ist erledigt; es ist nichts mehr davon übrig."]


def test_what_keeps_schedules_from_firing_is_german(german: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = schedules.five(german, monkeypatch)
    schedules.state(found["paused"], paused_at=Now() - timedelta(hours=2), paused_by="ada", paused_why="Umzug")
    told = schedules.make(german, "f told")
    schedules.state(told, error="nobody answers", errors=1)
    lists = unescape(text(german.client.get(schedules.LIST)))
    over = unescape(text(german.client.get("/admin/django_jobs/")))
    for reason in (
        "Sein Termin kam vor 5 min, und kein Scheduler, der seinen Job kennt, hat nachgesehen; `manage.py runworkers`",
        "Zeitzone 'Mars' ist hier nicht bekannt; erwartet wird ein Name der IANA-Datenbank",
        "Im Code, der hier läuft, gibt es ihn nicht mehr; er läuft weiter, bis er pausiert oder gelöscht wird.",
        "der Scheduler sagte: nobody answers",
    ):
        assert reason in lists
        assert reason in over
    assert "Pausiert vor 2 h von ada: Umzug. Er erzeugt keine Jobs, bis er fortgesetzt wird." in lists
    assert messages(schedules.act(german, "run", found["broken"]))[0].startswith(
        "Der Zeitplan 'd broken' ist defekt, also wurde nichts erzeugt: Zeitzone 'Mars' ist hier nicht bekannt"
    )
    schedules.write(found["ok"], missed_limit=0)
    page = unescape(text(schedules.page(german, found["ok"])))
    assert "missed_limit ist 0; erlaubt ist eine ganze Zahl von 1 bis 10000." in page
    wrong = schedules.add(german, expression="61 * * * *", spread="soon", priority="101", kwargs="[")
    assert schedules.errors(wrong) == {
        "expression": [
            "Cron-Ausdruck '61 * * * *': '61' passt nicht ins Feld Minute; erlaubt ist eine Zahl von 0 bis 59."
        ],
        "spread": [
            "'soon': erwartet werden Sekunden oder eine Zahl mit s, m, h oder d, etwa 90, 30m oder 7d (höchstens zehn Jahre)."
        ],
        "priority": ["priority ist 101; erlaubt ist eine ganze Zahl von -100 bis 100."],
        "kwargs": ["Das ist kein JSON: Expecting value: line 1 column 2 (char 1). Erwartet wird ein JSON-Objekt, etwa "
                   '{"limit": 10}.'],
    }  # fmt: skip


# What others read is English, whoever wrote it.


def test_what_is_stored_logged_or_raised_is_english_where_the_project_is_german(
    site: Site, settings: Settings, caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Any
) -> None:
    settings.LANGUAGE_CODE = "de"
    site.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    dead, runs = site.make("dead"), site.make("running")
    (job_id,) = bulk.make(site.alias, 1, idempotency_key="k")
    broken = schedules.make(site)
    schedules.write(broken, overlap="never")
    with override("de"), django_capture_on_commit_callbacks(using=site.alias, execute=True):
        ticks.tick(engine_of(site.alias), (nothing.name,), "h:1")
        act = bulk.carry_out(bulk.begin("delete", Sought(state="dead-letters", key="k")))
        with pytest.raises(StateConflict) as refused:
            operate.requeue(runs.pk)
        shown = report.story(runs.refresh())["explanation"]
        explained = f"{runs.explain()}"
        listed = report_schedules.schedules(limit=1)[0]["reason"]
    site.act_on_page("requeue", dead, why="wieder da")
    state = ScheduleState.objects.using(site.alias).get()
    assert state.error == "overlap is 'never'; give one of 'allow', 'skip', 'queue'."
    assert listed == "overlap: Value 'never' is not a valid choice."  # in Django's words
    assert any(state.error in record.getMessage() for record in caplog.records)
    assert act.refusals[0][1].startswith(f"Job {job_id} has the idempotency key 'k' and finished within")
    assert str(refused.value) == f"Job {runs.pk} runs; it can be requeued when it has ended."
    assert explained.startswith("Runs for some time in a worker process that is gone")
    assert shown.startswith("Runs for some time in a worker process that is gone")
    assert site.log() == [(str(dead.pk), site.user, "Requeued: wieder da")]
    dead.refresh()
    assert dead.history[-1]["error"] == "by ada: wieder da"
