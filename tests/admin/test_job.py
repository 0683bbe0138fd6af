from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.urls import reverse

from django_jobs.models import Effect, Job, Worker
from django_jobs.models.clock import Clock, database_now
from tests.admin.conftest import As
from tests.admin.site import Site, text

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
MARKUP = "<script>alert('x')</script>"
LINE = {"run": 1, "cause": MARKUP, "error": MARKUP, "worker": MARKUP, "seconds": 0.5, "at": "2026-11-29T20:15:11.123Z"}


def worker(site: Site, **values: Any) -> Worker:
    given = {"id": "w", "host": "web", "pid": 7, "supervisor_pid": 6, "types": ["shop.a"], "threads": 4, **values}
    made: Worker = Worker.objects.using(site.alias).create(**given)
    return made


def test_the_heading_and_the_title_name_the_type(site: Site) -> None:
    job = site.make("done")
    page = site.page(job)
    named = f"Job {job.pk}: {job.type}"
    assert f"<h1>{named}</h1>" in page
    assert f"<title>{named} |" in page


@pytest.mark.parametrize(
    ("losses", "said"), [(0, "Runs 3 "), (1, "Runs 3, 1 loss in a row "), (2, "3, 2 losses in a row ")]
)
def test_losses_in_a_row_are_said_where_there_are_any(site: Site, losses: int, said: str) -> None:
    assert said in text(site.page(site.make("dead", token=3, losses=losses)))


def test_the_page_begins_with_the_sentence_of_explain(site: Site) -> None:
    job = site.make("done")
    assert "Done 0." in text(site.page(job))


def test_everything_that_comes_from_a_row_is_escaped(site: Site) -> None:
    holder = worker(site, host=MARKUP, types=[MARKUP], queues=[MARKUP])
    values = {
        "type": MARKUP,
        "queue": MARKUP,
        "payload": {"args": [MARKUP], "kwargs": {MARKUP: MARKUP}},
        "idempotency_key": MARKUP,
        "last_error": MARKUP,
        "history": [LINE],
        "meta": {"tags": [MARKUP]},
        "schedule": MARKUP,
        "cancel_reason": MARKUP,
    }
    job = site.make("running", **values, progress={"done": 1, "total": 2, "note": MARKUP}, result=[MARKUP])
    pages = [
        site.page(job),
        site.list().content.decode(),
        site.client.get(reverse("admin:django_jobs_worker_changelist")).content.decode(),
        site.client.get(reverse("admin:django_jobs_worker_change", args=[holder.pk])).content.decode(),
        site.client.get(reverse("admin:django_jobs_job_cancel", args=[job.pk])).content.decode(),
        site.client.get(reverse("admin:django_jobs_job_history", args=[job.pk])).content.decode(),
    ]
    for page in pages:
        assert MARKUP not in page
        assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    "values",
    [
        {"type": "shop.renamed"},
        {"payload": {"args": ["x" * 2**20], "kwargs": {}}, "result": "y" * 2**20},
        {"payload": {"args": list(range(200_000)), "kwargs": {}}},
        {"payload": {"args": [], "kwargs": {f"name{n}": n for n in range(60)}}},
        {"payload": [1], "history": [LINE, LINE], "meta": [], "progress": {"done": "x"}},
        {"payload": {"args": 3, "kwargs": None}},
        {"history": [LINE], "last_error": "x" * 20_000, "progress": {"done": 1, "total": 0}},
        {"queue": "a/b c", "type": "ünï/…?&", "idempotency_key": "k" * 255},
    ],
)
def test_no_row_breaks_its_page_or_the_list(site: Site, values: dict[str, Any]) -> None:
    job = site.make("dead", **values)
    assert len(site.page(job)) < 500_000
    assert site.ids() == [job.pk]


def left(site: Site, job: Job, key: str, **values: Any) -> Effect:
    given = {"kind": "outside", "key": key, "job_id": job.pk, **values}
    made: Effect = Effect.objects.using(site.alias).create(**given)
    return made


def named(page: str) -> list[str]:
    """Return the keys of the effects that a job's page names."""
    section = page.partition('id="effects"')[2].partition("</section>")[0]
    return re.findall(r'class="dj-name">([^<]*)<', section)


def test_a_job_names_the_effects_that_may_have_happened_and_leads_to_them(site: Site) -> None:
    job, other = site.make("dead"), site.make("dead")
    effect = left(site, job, MARKUP, asks=3, asked_at=Clock() - timedelta(minutes=2))
    left(site, job, "newer")
    left(site, job, "answered", answered_at=Clock())
    left(site, job, "in the database", kind="once")
    page = site.page(job)
    assert named(page) == ["newer", "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"]
    assert f'href="{reverse("admin:django_jobs_effect_change", args=[effect.pk])}"' in page
    assert "asked 3 times, last 2 min ago" in text(page)
    assert MARKUP not in page
    assert "May have happened" not in site.page(other)
    Job.objects.using(site.alias).filter(pk=job.pk).update(
        status="running", finished_at=None, locked_by="w:1", locked_until=Now(), token=1
    )
    assert named(site.page(job)) == [], "they may be under way"


def test_of_many_effects_that_may_have_happened_the_newest_are_named_and_the_others_counted(site: Site) -> None:
    job = site.make("failed")
    for number in range(7):
        left(site, job, f"charge:{number}", asked_at=Clock() - timedelta(minutes=number))
    page = site.page(job)
    assert named(page) == [f"charge:{number}" for number in range(5)]
    assert "2 more are not shown here." in text(page)
    assert 'href="/admin/django_jobs/effect/?what=may-have-happened"' in page


def test_who_may_not_see_effects_is_not_led_to_them(as_user: As) -> None:
    site = as_user("view_job")
    job = site.make("dead")
    left(site, job, "charge:1")
    page = site.page(job)
    assert named(page) == ["charge:1"]
    assert "/django_jobs/effect/" not in page


def test_long_values_are_folded_and_short_ones_are_not(site: Site) -> None:
    job = site.make(payload={"args": [{"order": 17}, "x" * 3_000], "kwargs": {"note": "hello"}})
    page = site.page(job)
    assert page.count("<details") - page.count('<details class="dj-folded"') == 0
    assert page.count('<details class="dj-folded"') == 1
    assert "1 number {&quot;order&quot;: 17}" in text(page)
    assert "note &quot;hello&quot;" in text(page)
    assert "3,002 characters" in text(page)


def test_times_have_an_age_by_the_databases_clock_and_the_exact_time(site: Site) -> None:
    page = site.page(site.make(run_at=Now() + timedelta(minutes=5), created_at=Now() - timedelta(hours=3)))
    assert "(in 5 min)" in text(page).replace("( ", "(").replace(" )", ")")
    assert "3 h ago" in text(page)
    assert 'title="20' in page


def test_the_history_shows_each_run_the_newest_first(site: Site) -> None:
    web = worker(site)
    lines = [{**LINE, "run": run, "cause": "raised", "error": f"error {run}", "worker": str(web)} for run in (1, 2)]
    page = site.page(site.make("dead", history=lines))
    assert text(page).index("error 2") < text(page).index("error 1")
    assert page.count(reverse("admin:django_jobs_worker_change", args=[web.pk])) == 2


def test_a_running_job_leads_to_its_worker_and_back(site: Site) -> None:
    web = worker(site)
    job = site.make("running", locked_by=f"{web.pk}:3", progress={"done": 3, "total": 16, "note": "half"})
    site.make("running", locked_by="other:1")
    address = reverse("admin:django_jobs_worker_change", args=[web.pk])
    assert f'href="{address}"' in site.page(job)
    page = site.client.get(address).content.decode()
    assert "1 job runs here now." in text(page)
    assert f'href="{reverse("admin:django_jobs_job_change", args=[job.pk])}"' in page
    assert "3 of 16 half" in text(page)


def test_workers_are_live_or_silent(site: Site) -> None:
    worker(site)
    worker(site, id="v", pid=8, queues=["mail"], heartbeat_at=Now() - timedelta(minutes=5))
    page = text(site.client.get(reverse("admin:django_jobs_worker_changelist")))
    assert "web:7 live all 4 – 0." in page  # noqa: RUF001
    assert "web:8 silent mail 4 – 5 min ago" in page  # noqa: RUF001


@pytest.mark.parametrize("id_", ["999", "9" * 30, "9" * 5000, "abc", "-1"])
def test_the_page_of_a_job_that_is_not_there_says_so(site: Site, id_: str) -> None:
    answer = site.client.get(f"/admin/django_jobs/job/{id_}/change/", follow=True)
    assert answer.status_code == 200
    assert "Perhaps it was deleted?" in text(answer)


def test_nobody_edits_a_row_by_a_form(site: Site) -> None:
    job = site.make()
    address = reverse("admin:django_jobs_job_change", args=[job.pk])
    site.client.post(address, {"status": "done", "queue": "other"})
    assert job.refresh().queue == "default"
    assert site.client.get("/admin/django_jobs/job/add/").status_code == 403
    assert site.client.post(f"/admin/django_jobs/job/{job.pk}/delete/", {"post": "yes"}).status_code == 403
    assert site.client.get("/admin/django_jobs/worker/add/").status_code == 403


def test_who_may_not_view_jobs_sees_none(as_user: As) -> None:
    site = as_user("requeue_job", "cancel_job")
    job = site.make("dead")
    assert site.list().status_code == 403
    assert site.client.get(reverse("admin:django_jobs_job_change", args=[job.pk])).status_code == 403
    assert site.act_on_page("requeue", job).status_code == 403
    assert job.refresh().status == "dead"


def test_a_due_time_after_the_first_start_is_said_to_be_that_of_another_run(site: Site) -> None:
    now = database_now(site.alias)
    first = site.make("done", run_at=now, started_at=now, last_started_at=now)
    again = site.make("done", run_at=now, started_at=now - timedelta(hours=1), last_started_at=now)
    assert "Due at" in text(site.page(first))
    times = text(site.page(again)).partition("Times")[2]
    assert "Due again at" in times
    assert times.index("First started") < times.index("Due again at")
