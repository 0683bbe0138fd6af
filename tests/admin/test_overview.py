from __future__ import annotations

import re
from datetime import timedelta, timezone
from html import unescape
from typing import Any
from xml.etree import ElementTree

import pytest
from django.contrib.admin import AdminSite, ModelAdmin
from django.db import connections
from django.db.models import Sum
from django.db.models.functions import Now
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.timezone import override

import django_jobs
from django_jobs.admin.overview import dead, health, page, queues, workers
from django_jobs.engines.base import Engine
from django_jobs.models import Job, Schedule, ScheduleState, Stat, Worker
from django_jobs.models.clock import database_now
from tests.admin import addresses
from tests.admin.conftest import As
from tests.admin.front import cells, front, stat, tile
from tests.admin.schedules import make
from tests.admin.site import Site, text
from tests.admin.test_schedule_acts import UNREADABLE
from tests.app.jobs import nothing
from tests.engines.common import on_postgresql
from tests.threads import Session

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
CONTROL = re.compile(r"^(BEGIN|COMMIT|SAVEPOINT|RELEASE|SELECT set_config\('statement_timeout')")
MARKUP = '"><script>alert(1)</script>'


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_kept", {})


def worker(site: Site, name: str = "w1", **values: object) -> Worker:
    given = {"host": "web-1", "pid": 7, "supervisor_pid": 6, "types": ["t"], "threads": 4, **values}
    made: Worker = Worker.objects.using(site.alias).create(id=name, **given)
    return made


def fill(site: Site) -> None:
    for queue, number in (("mail", 4), ("default", 2)):
        for age in range(number):
            site.make(queue=queue, run_at=Now() - timedelta(seconds=300 + age))
        site.make(queue=queue, run_at=Now() + timedelta(hours=1))
        site.make("running", queue=queue, locked_by=f"w1:{number}")
    site.make(queue="mail", parked="type")
    site.make(queue="mail", parked="suspect")
    for status in ("dead", "failed", "failed", "done"):
        site.make(status, queue="mail")


def test_what_waits_and_runs_in_each_queue_equals_sql(site: Site) -> None:
    fill(site)
    shown = front(site)
    rows = Job.objects.using(site.alias)
    for queue in ("mail", "default"):
        of = rows.filter(queue=queue)
        _name, due, oldest, running, later, parked, dead_letters, *_rest = cells(shown, f'data-queue="{queue}"')
        assert int(due) == of.due().count()
        assert int(later) == of.ready().filter(parked=None, run_at__gt=Now()).count()
        assert int(running) == of.running().count()
        assert int(dead_letters) == of.dead_letters().count()
        assert oldest == "5 min"
        assert parked == ("1 , suspects: 1" if queue == "mail" else "0")
        for state in ("due", "later", "running"):
            assert f"state={state}&amp;queue={queue}" in shown
    assert int(tile(shown, "due")) == rows.due().count() == 6
    assert int(tile(shown, "running")) == rows.running().count() == 2
    assert int(tile(shown, "dead")) == rows.dead_letters().count() == 3


def test_a_number_that_reached_the_limit_says_that_it_may_be_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "COUNT_LIMIT", 3)
    fill(site)
    shown = front(site)
    most = "3 or more" if site.alias == "default" else "4 or more"  # SQLite reads all that waits
    assert cells(shown, 'data-queue="mail"')[1] == most
    assert cells(shown, 'data-queue="default"')[1] == "2"
    assert tile(shown, "due") == ("5 or more" if site.alias == "default" else "6 or more")
    assert tile(shown, "dead") == "3"
    assert tile(shown, "running") == "2"
    site.make("failed")
    assert tile(front(site), "dead") == "4 or more"


def test_what_ended_in_a_minute_and_in_the_span_equals_sql(site: Site) -> None:
    for minutes in (0, 1, 2, 50, 300):
        stat(site, minutes, done=1000 + minutes, failed=2, dead=3, retried=7, repeats=2, attempts=[5, 2, 1])
        stat(site, minutes, queue="default", type="u", done=10)
    shown = front(site)
    # By when in a minute it is.
    assert cells(shown, 'data-queue="mail"')[7:9] in (["1,000", "5"], ["1,001", "5"], ["1,002", "5"])
    stats = Stat.objects.using(site.alias)
    for span, hours in (("1h", 1), ("24h", 24)):
        shown = front(site, span=span)
        done = stats.filter(type="t", minute__gt=Now() - timedelta(hours=hours)).aggregate(found=Sum("done"))["found"]
        row = cells(shown, 'data-type="t"')
        assert row[1] == f"{done:,}"
        assert re.search(rf"Repeats {'8' if span == '1h' else '10 0.4'} Lease", text(shown))
        assert [row[2].split()[0], row[4]] == (["20", "28"] if span == "1h" else ["25", "35"])
    assert re.search(r"Jobs ended in attempt 1 25 6[23]", text(shown))
    assert "As of " in text(shown)


def test_the_type_that_fails_most_comes_first_by_number_or_by_rate(site: Site) -> None:
    stat(site, 5, type="shop.often", done=1000, dead=3)
    stat(site, 5, type="shop.bad", done=1, dead=40)
    stat(site, 5, type="shop.good", done=5000)
    stat(site, 5, type="shop.rare", dead=1)
    shown = front(site, span="24h")
    assert re.findall(r'data-type="(.*?)"', shown) == ["shop.bad", "shop.often", "shop.rare", "shop.good"]
    assert cells(shown, 'data-type="shop.bad"')[3] == "98 %"
    shown = front(site, types="done")
    assert re.findall(r'data-type="(.*?)"', shown) == ["shop.good", "shop.often", "shop.bad", "shop.rare"]
    shown = front(site, types="rate")
    assert re.findall(r'data-type="(.*?)"', shown) == ["shop.rare", "shop.bad", "shop.often", "shop.good"]
    assert re.search(r'<a href="[^"]*types=rate#types" aria-current="true">Failure rate</a>', shown)


def test_what_failed_in_the_span_and_is_still_dead_is_counted_and_leads_to_just_these(site: Site) -> None:
    stat(site, 5, type="shop.bad", dead=40)
    stat(site, 5, type="shop.mended", failed=2)
    made = [site.make(status, type="shop.bad") for status in ("dead", "dead", "failed")]
    site.make("dead", type="shop.bad", finished_at=Now() - timedelta(hours=2))
    site.make("dead", type="shop.other")
    site.make("done", type="shop.mended")
    made.pop().requeue()
    shown = front(site)
    assert cells(shown, 'data-type="shop.bad"')[2] == "40 still dead: 2"
    assert cells(shown, 'data-type="shop.mended"')[2] == "2 still dead: 0"
    [url] = re.findall(r'<a href="([^"]*)"[^>]*>still dead: 2</a>', shown)
    listed = site.client.get(unescape(url)).context["cl"].result_list
    assert {job.pk for job in listed} == {job.pk for job in made}
    assert cells(front(site, span="24h"), 'data-type="shop.bad"')[2] == "40 still dead: 3"


def test_what_was_done_is_shown_of_one_queue_and_links_within_it(site: Site) -> None:
    stat(site, 5, type="shop.both", done=10, dead=3, repeats=1, runs=[0] * 9 + [10])
    stat(site, 5, type="shop.both", queue="slow", done=1, waits=[0] * 14 + [1])
    stat(site, 5, type="shop.other", queue="slow", done=7)
    for queue in ("mail", "slow"):
        site.make("dead", type="shop.both", queue=queue)
    assert 'aria-current="true">all queues</a>' in front(site)
    assert cells(front(site), 'data-type="shop.both"')[1:3] == ["11", "3 still dead: 2"]
    shown = front(site, queue="mail", span="24h")
    assert 'aria-current="true">mail</a>' in shown
    assert re.findall(r'data-type="(.*?)"', shown) == ["shop.both"]
    row = cells(shown, 'data-type="shop.both"')
    assert (row[1:3], row[8]) == (["10", "3 still dead: 1"], "≤ 1 s")
    [url] = re.findall(r'<a href="([^"]*)"[^>]*>still dead: 1</a>', shown)
    assert [job.queue for job in site.client.get(unescape(url)).context["cl"].result_list] == ["mail"]
    assert "Types in the queue mail, last 24 h" in text(shown)
    assert 'data-queue="slow"' in shown, "what waits is of all queues"
    shown = front(site, queue="slow")
    assert cells(shown, 'data-type="shop.both"')[5:8] == ["≤ 60 s"] * 3
    assert shown.count("nothing in this time") == 1, "no run time was counted, but that none of those that ended failed"
    assert "Nothing ended in this time." in front(site, queue="no\x00queue")


def test_where_more_died_than_is_read_their_number_may_be_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "READ", 2)
    stat(site, 5, type="shop.bad", dead=40)
    for _ in range(3):
        site.make("dead", type="shop.bad")
    shown = front(site)
    assert cells(shown, 'data-type="shop.bad"')[2] == "40 still dead: 2 or more"
    assert cells(shown, 'data-queue="default"')[6] == "2 or more"


def test_today_is_what_ended_since_midnight_in_the_time_zone_of_the_page(site: Site, settings: Any) -> None:
    if not settings.USE_TZ:
        pytest.skip("without time zones there is one day")
    now = database_now(site.alias)
    # A day that began less than an hour ago, and one that began more than four before.
    for hours in (0, 5):
        zone = timezone(timedelta(hours=(hours - now.hour + 11) % 24 - 11))
        minutes = hours * 60 + now.minute
        for ago in (minutes - 1, minutes + 1):
            stat(site, ago, type=f"shop.h{hours}", dead=1 if ago < minutes else 100)
        with override(zone):
            shown = front(site, span="today")
        assert cells(shown, f'data-type="shop.h{hours}"')[2].startswith("1 ")
        assert 'aria-current="true">today</a>' in shown
        assert (
            f"since {database_now(site.alias).astimezone(zone) - timedelta(minutes=minutes):%a %Y-%m-%d} 00:00;"
            in shown
        )
        assert "Types, today" in shown


def test_another_span_is_shown_at_the_same_place_of_the_page(site: Site) -> None:
    part = front(site, types="done").partition('<section class="module" id="rates">')[2].partition("</p>")[0]
    links = re.findall(r'<a href="([^"]*)"', part)
    assert [unescape(link) for link in links] == [
        f"?types=done&span={span}#rates" for span in ("1h", "today", "24h", "7d")
    ]


def test_which_type_fails_most_stands_below_the_choice_of_a_span_and_above_the_plots(site: Site) -> None:
    shown = front(site)
    places = [shown.index(mark) for mark in ('id="queues"', 'id="rates"', 'id="types"', 'class="dj-plots"')]
    assert places == sorted(places)


def test_a_type_that_has_not_run_yet_is_paused_by_a_form_that_suggests_it(site: Site, as_user: As) -> None:
    found = re.search(r'<a href="([^"]*)" class="dj-pause-another">Pause another type or queue…</a>', front(site))
    assert found
    form = site.client.get(unescape(found[1])).content.decode()
    assert f'<option value="{nothing.name}">type</option>' in form
    assert re.search(r'value="type"[^>]* (selected|checked)', form)
    answer = site.client.post(unescape(found[1]), {"kind": "type", "called": nothing.name})
    assert answer["Location"] == reverse("admin:app_list", args=["django_jobs"])
    assert "dj-pause-another" not in front(as_user("view_job"))


def test_percentiles_are_said_as_the_ends_of_their_classes_and_long_ones_to_be_longer(site: Site) -> None:
    """Runs of 25 to 33 s: nothing that is shown is a time that none of them took."""
    stat(site, 5, done=100, runs=[0] * 13 + [70, 30], waits=[0] * 18 + [3])
    shown = front(site)
    assert cells(shown, 'data-type="t"')[5:11] == [*["over 60 min"] * 3, "≤ 30 s", "≤ 60 s", "≤ 60 s"]
    assert "p50: ≤ 30 s\np95: ≤ 60 s\np99: ≤ 60 s" in shown
    assert "p50: over 60 min\n" in shown
    assert set(re.findall(r">([^<]*) s</text>", shown)) == {"1", "10", "60"}, "the scale is of plain times"


def test_the_plots_are_whole_xml_and_each_part_tells_its_values(site: Site) -> None:
    shown = front(site)
    assert shown.count("nothing in this time") == 4
    stat(site, 4, done=120, dead=30, retried=10, repeats=2, lease_expirations=1, runs=[0] * 9 + [5], waits=[4])
    shown = front(site)
    plots = [ElementTree.fromstring(found) for found in re.findall(r'<svg class="dj-plot".*?</svg>', shown, re.DOTALL)]
    assert len(plots) == 5
    hints = [[title.text or "" for title in plot.iter("title")] for plot in plots]
    assert [found[0] for found in hints] == [
        "Throughput",
        "Failure and retry rate",
        "Wait",
        "Run time",
        "Irregularities",
    ]
    assert shown.count(" dj-dot") == 8, "what is alone in its time is a dot: of a line nothing could be seen"
    assert any("done: 120\nto run again: 10\nfailed: 30" in hint for hint in hints[0])
    assert any("failed: 20 %\nto run again: 6.2 %" in hint for hint in hints[1])
    assert any("p50: ≤ 1 ms\n" in hint for hint in hints[2])
    assert any("p50: ≤ 1 s\n" in hint for hint in hints[3])
    assert any("repeats: 2\nlease expirations: 1\nlost leases: 0\nslots missed: 0" in hint for hint in hints[4])
    assert "done: last 0, at most 120." in (plots[0].findtext("desc") or "")


def test_plots_say_their_unit_and_irregularities_are_counted_in_whole(site: Site) -> None:
    for minutes in (125, 130):
        stat(site, minutes, done=100, repeats=1)
    for span, average, each in (
        ("1h", "runs a minute", "Number in each minute"),
        ("24h", "runs a minute, on average over 20 min", "Number in each 20 min"),
        ("7d", "runs a minute, on average over 2 h", "Number in each 2 h"),
    ):
        shown = front(site, span=span)
        units = re.findall(r'class="quiet dj-unit">([^<]*)<', shown)
        assert (len(units), units[0], units[-1]) == (5, average, each)
    assert re.search(r"Repeats 2 under 0.1 Lease", text(shown))
    assert sum(map(int, re.findall(r"^repeats: (\d+)", shown, re.M))) == 2


def test_a_worker_shows_what_each_of_its_threads_runs(site: Site) -> None:
    worker(site)
    worker(site, "w2", host="web-2", heartbeat_at=Now() - timedelta(hours=1))
    progress = {"done": 1, "total": 4, "note": ""}
    job = site.make("running", locked_by="w1:1", last_started_at=Now(), progress=progress)
    site.make("running", locked_by="w10:1")
    shown = front(site)
    assert tile(shown, "workers") == "1 of 2"
    part = text(shown.partition('id="workers"')[2].partition("</section>")[0])
    assert re.search(rf"web-1:7 live all 1 of 4 {job.pk} tests\. app\. jobs\. nothing 0\.\d s ago 1 of 4", part)
    assert "web-2:7 silent all 0 of 4 nothing" in part


def test_of_what_runs_and_of_workers_no_more_is_shown_than_the_page_holds(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "RUNS_SHOWN", 2)
    monkeypatch.setattr(workers, "WORKERS_SHOWN", 1)
    worker(site)
    worker(site, "w2", host="web-2")
    for age in (3, 1, 2):
        site.make("running", locked_by="w1:1", type=f"t{age}", last_started_at=Now() - timedelta(minutes=age))
    part = text(front(site).partition('id="workers"')[2].partition("</section>")[0])
    assert re.search(r"2 of 4 \d+ t3 3 min ago \d+ t2 2 min ago", part)
    assert "One more worker is not shown here. Of what runs, the 2 that began first are shown" in part


def test_schedules_show_when_they_fire_next_and_which_are_in_trouble(site: Site) -> None:
    for name in ("early", "weekly", "zebra"):
        Schedule.objects.using(site.alias).create(name=name, type=nothing.name, expression="0 3 * * *", timezone="UTC")
    off = Schedule.objects.using(site.alias).create(
        name="off", type=nothing.name, expression="0 3 * * *", timezone="UTC"
    )
    Schedule.objects.using(site.alias).filter(pk=off.pk).update(enabled=False)
    late = Now() - timedelta(minutes=2)
    states = ScheduleState.objects.using(site.alias)
    states.filter(schedule__name="weekly").update(wake_at=late, next_run_at=late)
    states.filter(schedule__name="early").update(
        wake_at=Now() + timedelta(hours=1), next_run_at=Now() + timedelta(hours=1)
    )
    states.filter(schedule__name="zebra").update(error="it cannot be")
    part = text(front(site).partition('id="schedules"')[2].partition("</section>")[0])
    assert re.search(
        r"zebra tests\. app\. jobs\. nothing broken the scheduler said: it cannot be .* weekly .* overdue Its slot came "
        r"2 min ago",
        part,
    )
    assert part.index("zebra") < part.index("weekly") < part.index("early")
    assert "4 in all. Paused: 1." in part


def test_a_schedule_whose_row_cannot_be_read_is_shown_as_broken_beside_the_others(site: Site) -> None:
    made = [make(site, name) for name in ("fine", "odd")]
    with connections[site.alias].cursor() as cursor:
        values = UNREADABLE[site.alias]
        cursor.execute(f"UPDATE django_jobs_schedule SET {values} WHERE id = %s", [made[1].pk])
    part = text(front(site).partition('id="schedules"')[2].partition("</section>")[0])
    assert "fine tests. app. jobs. nothing ok" in part
    assert re.search(r"odd broken Its row cannot be read: ", part)
    assert "2 in all." in part


@on_postgresql
def test_the_health_of_the_tables_is_shown_with_who_holds_the_oldest_snapshot(site: Site, other: Session) -> None:
    other.begin()
    other.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.sql("SET LOCAL application_name = 'the old one'")
    other.sql("SELECT 1")
    with CaptureQueriesContext(connections[site.alias]) as first:
        part = text(front(site).partition('id="health"')[2].partition("</section>")[0])
    assert "Dead rows about" in part
    assert re.search(r"Oldest snapshot .*the old one, user \w+, process \d+", part)
    assert "partition" in part
    with CaptureQueriesContext(connections[site.alias]) as again:
        assert "As of 0 s ago" in text(front(site))
    assert len(again) == len(first) - 1, "it is kept for a minute"


@pytest.mark.parametrize(
    ("codename", "seen"),
    [
        ("view_job", {"queues", "rates"}),
        ("view_worker", {"workers"}),
        ("view_schedule", {"schedules"}),
        ("view_effect", set()),
    ],
)
def test_a_part_is_shown_only_to_who_may_see_its_rows(as_user: As, codename: str, seen: set[str]) -> None:
    site = as_user(codename)
    site.make("running", queue="mail", locked_by="w1:1")
    worker(site)
    django_jobs.pause(queue="mail", why="a reason")
    shown = front(site)
    parts = {"queues", "rates", "workers", "schedules"}
    assert {part for part in parts if f'<section class="module" id="{part}"' in shown} == seen
    assert ("tests.<wbr>" in shown) is False, "what a worker runs is for who may see jobs"
    assert ("a reason" in shown) == bool(seen & {"queues", "workers"}), "a pause is told to whom it concerns"
    assert "Pause…" not in shown


def test_the_page_asks_few_questions(site: Site, as_user: As) -> None:
    fill(site)
    worker(site)
    stat(site, 3, done=5)
    django_jobs.pause(queue="mail")
    viewer = as_user("view_job", "view_worker", "view_schedule", "view_pause")
    for seen_by in (site, viewer):
        with CaptureQueriesContext(connections[site.alias]) as asked:
            front(seen_by)
        questions = [query["sql"] for query in asked if not CONTROL.match(query["sql"])]
        assert 5 < len(questions) < 15, questions


@on_postgresql
def test_a_part_that_is_too_slow_is_left_out_and_the_page_says_so(
    site: Site, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "SECONDS", 0.3)
    fill(site)
    other.begin()
    other.sql("LOCK TABLE django_jobs_stat IN ACCESS EXCLUSIVE MODE")
    shown = front(site)
    assert "Not shown, since the database did not answer within 0.3 s: statistics." in text(shown)
    assert tile(shown, "due") == "6"
    assert 'id="health"' in shown
    assert 'id="types"' not in shown


@on_postgresql
def test_tables_whose_state_took_too_long_are_not_asked_about_again_for_a_minute(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cost the database the whole time limit at every refresh."""
    monkeypatch.setattr(page, "SECONDS", 0.2)
    asked: list[str] = []

    def slow(engine: Engine) -> None:
        asked.append(engine.alias)
        with engine.connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(health, "health", slow)
    for _ in range(2):
        shown = front(site)
        assert "did not answer within 0.2 s: the state of the tables." in text(shown)
        assert 'id="tile-due"' in shown
    assert len(asked) == 1
    monkeypatch.setattr(health, "KEPT_FOR", 0.0)
    front(site)
    assert len(asked) == 2


def test_what_comes_from_rows_is_escaped(site: Site) -> None:
    site.make(queue="mail", type=MARKUP)
    django_jobs.pause(queue="mail", why=MARKUP, by=MARKUP)
    stat(site, 2, type=MARKUP, queue='"><b>', dead=1)
    worker(site, host=MARKUP)
    site.make("running", type=MARKUP, locked_by="w1:1")
    shown = front(site)
    assert MARKUP not in shown
    assert '"><b>' not in shown
    assert "&lt;script&gt;" in shown


def test_it_is_the_first_page_of_another_site_too(site: Site) -> None:
    another = AdminSite(name="another")
    another.register(Job, ModelAdmin)
    site.make(queue="mail")
    request = RequestFactory().get("/")
    request.user = site.user
    answer = another.app_index(request, "django_jobs")
    assert isinstance(answer, TemplateResponse)
    assert tile(answer.render().content.decode(), "due") == "1"


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_admins_index_leads_to_the_overview_by_its_first_row(
    site: Site, as_user: As, settings: Any, language: str
) -> None:
    settings.LANGUAGE_CODE = language
    index = site.client.get(reverse("admin:index")).content.decode()
    first = re.search(r'class="app-django_jobs.*?<tr class="model-(\w+).*?<a href="([^"]*)"', index, re.DOTALL)
    assert first
    assert first[1] == "overview"
    answer = site.client.get(first[2], follow=True)
    assert answer.redirect_chain == [(reverse("admin:app_list", args=["django_jobs"]), 302)]
    assert "model-overview" in as_user("view_pause").client.get(reverse("admin:index")).content.decode()


def test_who_may_see_nothing_of_the_app_has_no_row_for_the_overview(as_user: As) -> None:
    assert "model-overview" not in as_user("view_user").client.get(reverse("admin:index")).content.decode()


def test_every_page_has_its_style_sheets_in_its_head(site: Site) -> None:
    rows = addresses.rows(site.alias)
    shown = [site.client.get(address.url(rows)).content.decode() for address in addresses.addresses()]
    shown = [found for found in shown if 'class="dj-nav"' in found]
    assert len(shown) > 20
    for found in shown:
        head, _end, body = found.partition("</head>")
        assert "django_jobs/overview.css" in head, found[:1000]
        assert "stylesheet" not in body


def test_djangos_list_of_models_stays_on_the_page(site: Site) -> None:
    assert 'class="model-pause' in front(site)


def test_only_pages_that_one_may_see_are_linked_and_the_one_that_is_shown_is_marked(site: Site, as_user: As) -> None:
    viewer = as_user("view_job", "view_pause")
    nav = re.search(r'<nav class="dj-nav".*?</nav>', front(viewer), re.DOTALL)
    assert nav
    assert {"Overview", "Jobs", "Pauses"} <= set(text(nav[0]).split())
    assert not {"Bulk", "Schedules", "Workers", "Effects", "Archive"} & set(text(nav[0]).split())
    assert 'href="/admin/django_jobs/" aria-current="page"' in nav[0]
    listed = viewer.list().content.decode()
    assert 'href="/admin/django_jobs/job/" aria-current="page"' in listed
    assert 'aria-current="page">Overview' not in listed
    dead = site.client.get(reverse("admin:django_jobs_job_dead_letters")).content.decode()
    nav = re.search(r'<nav class="dj-nav".*?</nav>', dead, re.DOTALL)
    assert nav
    assert re.findall(r'aria-current="page">(.*?)<', nav[0]) == ["Dead letters"]
    for address in ("worker/", "pause/add/", "schedule/", "effect/", "archivedjob/", "schedule/add/"):
        assert 'class="dj-nav"' in site.client.get(f"/admin/django_jobs/{address}").content.decode(), address
