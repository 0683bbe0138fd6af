"""Archived jobs in the admin: shown as jobs are, and requeued as new ones."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from django_jobs.engines.base import Engine
from django_jobs.models import ArchivedJob, Effect, Job
from django_jobs.models.clock import Clock
from tests.admin.conftest import As
from tests.admin.site import Site, text
from tests.archive.common import DAY, go_round

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LIST = "admin:django_jobs_archivedjob_changelist"
PAGE = "admin:django_jobs_archivedjob_change"
REQUEUE = "admin:django_jobs_archivedjob_requeue"
MARKUP = "<script>alert('x')</script>"


def old(site: Site, engine: Engine, status: str = "done", **values: Any) -> ArchivedJob:
    long_ago = Clock() - 40 * DAY
    job = site.make(status, finished_at=long_ago, created_at=long_ago, **values)
    go_round(engine)
    return ArchivedJob.objects.using(site.alias).get(pk=job.pk)


def ids(site: Site, **query: Any) -> list[int]:
    answer = site.client.get(reverse(LIST), query)
    assert answer.status_code == 200
    return [job.pk for job in answer.context["cl"].result_list]


def page(site: Site, job_id: int) -> Any:
    return site.client.get(reverse(PAGE, args=[job_id]))


def test_the_list_shows_the_newest_first_and_narrows(site: Site, engine: Engine) -> None:
    first = old(site, engine, type="shop.a", payload={"args": [17], "kwargs": {}})
    second = old(site, engine, "dead", queue="mail", last_error="OSError: disk")
    third = old(site, engine, "cancelled", idempotency_key="receipt:1")
    assert ids(site) == [third.pk, second.pk, first.pk]
    assert ids(site, state="dead-letters") == [second.pk]
    assert ids(site, state="done") == [first.pk]
    assert ids(site, state="cancelled") == [third.pk]
    assert ids(site, state="ready") == []
    assert ids(site, queue="mail") == [second.pk]
    assert ids(site, type="shop.a") == [first.pk]
    assert ids(site, q=str(first.pk)) == [first.pk]
    assert ids(site, q="receipt") == []
    assert ids(site, q="key:receipt") == ids(site, key="receipt:1") == [third.pk]
    assert ids(site, q="DISK") == ids(site, error="oserror") == [second.pk]
    assert ids(site, q="args.0=17") == [first.pk]
    assert ids(site, q="args.0=18") == ids(site, state="done", error="disk") == []
    assert ids(site, until="30d") == ids(site, at="last") == [third.pk, second.pk, first.pk]
    assert ids(site, since="30d") == ids(site, worker="w") == []
    assert ids(site, at=f"after:[0,{third.pk}]") == [second.pk, first.pk]
    assert "q=key%3Areceipt" in site.client.get(reverse(LIST), {"q": "receipt"}).content.decode()
    content = site.client.get(reverse(LIST)).content.decode()
    assert "17" in text(content)
    assert "OSError: disk" in content


def test_a_page_says_since_when_the_job_is_archived_and_escapes_what_comes_from_it(site: Site, engine: Engine) -> None:
    job = old(
        site,
        engine,
        "dead",
        type=MARKUP,
        last_error=MARKUP,
        payload={"args": [MARKUP], "kwargs": {}},
        meta={"tags": [MARKUP]},
    )
    content = page(site, job.pk).content.decode()
    assert "; archived 0." in text(content)
    assert "Archived at" in text(content)
    assert MARKUP not in content


def test_a_requeue_makes_a_new_job_and_both_lead_to_each_other(site: Site, engine: Engine) -> None:
    job = old(site, engine, "dead", idempotency_key="key")
    answer = site.client.post(reverse(REQUEUE, args=[job.pk]), {"why": "asked for"}, follow=True)
    (new,) = Job.objects.using(site.alias).values_list("pk", flat=True)
    said = [str(message) for message in answer.context["messages"]]
    assert said[0] == f"Job {job.pk} was requeued."
    assert f">{new}</a>, without an idempotency key." in said[1]
    assert reverse("admin:django_jobs_job_change", args=[new]) in answer.content.decode()
    assert reverse("admin:django_jobs_job_change", args=[job.pk]) in site.page(
        Job.objects.using(site.alias).get(pk=new)
    )
    assert site.log() == [(str(job.pk), site.user, "Requeued: asked for")]
    again = site.client.post(reverse(REQUEUE, args=[job.pk]), follow=True)
    assert [str(message) for message in again.context["messages"]] == [
        f"Job {job.pk} is archived, and was requeued as job {new}; look at that one."
    ]
    assert Job.objects.using(site.alias).count() == 1


def test_jobs_are_requeued_from_the_list(site: Site, engine: Engine) -> None:
    jobs = [old(site, engine, "dead") for _ in range(2)]
    values = {"action": "requeue", "index": "0", "_selected_action": [str(job.pk) for job in jobs]}
    answer = site.client.post(reverse(LIST), values, follow=True)
    assert str(next(iter(answer.context["messages"]))) == "2 jobs were requeued."
    assert Job.objects.using(site.alias).ready().count() == 2


def test_a_job_that_was_archived_since_its_page_was_opened_is_requeued_as_a_new_one(site: Site, engine: Engine) -> None:
    job = old(site, engine)
    answer = site.act_on_page("requeue", Job(pk=job.pk))
    assert answer.redirect_chain[-1][0] == reverse(PAGE, args=[job.pk])
    assert Job.objects.using(site.alias).ready().count() == 1


def test_the_page_of_a_job_leads_to_that_of_the_archive_once_it_is_there(site: Site, engine: Engine) -> None:
    job = old(site, engine)
    answer = site.client.get(reverse("admin:django_jobs_job_change", args=[job.pk]))
    assert (answer.status_code, answer["Location"]) == (302, reverse(PAGE, args=[job.pk]))
    gone = site.client.get(reverse("admin:django_jobs_job_change", args=[job.pk + 1]), follow=True)
    assert "doesn’t exist" in gone.content.decode()  # noqa: RUF001
    assert page(site, job.pk + 1).status_code == 302


def test_an_effect_knows_its_job_in_the_archive(site: Site, engine: Engine) -> None:
    job = old(site, engine, "dead")
    effect = Effect.objects.using(site.alias).create(kind="outside", key="card", job_id=job.pk)
    content = site.client.get(reverse("admin:django_jobs_effect_change", args=[effect.pk])).content.decode()
    assert "Its job is dead" in text(content)
    assert reverse("admin:django_jobs_job_change", args=[job.pk]) in content


@pytest.mark.parametrize(
    ("codenames", "sees", "acts"),
    [
        ((), False, False),
        (("view_archivedjob",), True, False),
        (("requeue_archivedjob",), False, False),
        (("requeue_job", "view_job", "view_archivedjob"), True, False),
        (("view_archivedjob", "requeue_archivedjob"), True, True),
    ],
)
def test_permissions_are_those_of_archived_jobs(
    as_user: As, engine: Engine, codenames: tuple[str, ...], sees: bool, acts: bool
) -> None:
    site = as_user(*codenames)
    job = old(site, engine)
    assert (page(site, job.pk).status_code == 200) is sees
    url = reverse(REQUEUE, args=[job.pk])
    assert site.client.post(url).status_code == (200 if acts else 403)  # it is done: that is asked once more
    assert site.client.post(url, {"confirmed": "yes"}).status_code == (302 if acts else 403)
    assert (Job.objects.using(site.alias).count() == 1) is acts
    if sees:
        assert ('id="requeue"' in page(site, old(site, engine).pk).content.decode()) is acts


@pytest.mark.parametrize("what", ["add", "delete", "cancel"])
def test_nothing_else_can_be_done_to_the_archive(site: Site, engine: Engine, what: str) -> None:
    job = old(site, engine)
    root = reverse(LIST)
    address = f"{root}add/" if what == "add" else f"{root}{job.pk}/{what}/"
    assert site.client.post(address).status_code in (302, 403, 404)
    assert ArchivedJob.objects.using(site.alias).count() == 1
