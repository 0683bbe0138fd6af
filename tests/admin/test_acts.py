from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse

from django_jobs.admin.jobs import JobAdmin
from django_jobs.models import Worker
from django_jobs.queue.seen import version
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
ENDED = ("done", "failed", "dead", "cancelled")


@pytest.mark.parametrize("status", ENDED[1:])
def test_a_job_that_ended_is_requeued_from_its_page(site: Site, status: str) -> None:
    job = site.make(status)
    answer = site.act_on_page("requeue", job, why="the service is back")
    assert messages(answer) == [f"Job {job.pk} was requeued."]
    assert job.refresh().status == "ready"
    assert job.history[-1]["error"] == "by ada: the service is back"
    assert site.log() == [(str(job.pk), site.user, "Requeued: the service is back")]
    shown = text(site.client.get(reverse("admin:django_jobs_job_history", args=[job.pk])))
    assert "the service is back" in shown
    assert "Nobody" not in shown


def test_the_history_of_a_job_that_nobody_acted_on_says_so_and_leads_to_its_page(site: Site) -> None:
    job = site.make("dead")
    answer = site.client.get(reverse("admin:django_jobs_job_history", args=[job.pk]))
    assert "Nobody acted on this job alone in the admin. Its runs, and what a bulk act or a command did" in text(answer)
    page = reverse("admin:django_jobs_job_change", args=[job.pk])
    assert f'are on <a href="{page}">its page</a>' in answer.content.decode()
    assert "change history" not in text(answer)
    other = Worker.objects.using(site.alias).create(id="w1", host="h", pid=1, supervisor_pid=1, types=[], threads=1)
    answer = site.client.get(reverse("admin:django_jobs_worker_history", args=[other.pk]))
    assert "Nobody acted on it in the admin." in text(answer)


def test_a_waiting_job_is_cancelled_from_its_page_after_it_was_confirmed(site: Site) -> None:
    job = site.make()
    answer = site.act_on_page("cancel", job)
    assert "Cancel a job?" in text(answer)
    assert (job.refresh().status, site.log()) == ("ready", [])
    answer = site.act_on_page("cancel", job, confirmed="yes", why="a double")
    assert messages(answer) == [f"Job {job.pk} was cancelled."]
    assert (job.refresh().status, job.cancel_reason) == ("cancelled", "by ada: a double")
    assert site.log() == [(str(job.pk), site.user, "Cancelled: a double")]


def confirm(site: Site, answer: Any, url: str) -> Any:
    """Send what the page of a confirmation asks for."""
    assert "Yes, run again" in text(answer)
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]+)"', answer.content.decode())
    return site.client.post(url, {name: value for name, value in fields if name != "csrfmiddlewaretoken"}, follow=True)


def test_a_job_that_is_done_is_requeued_after_it_was_confirmed(site: Site) -> None:
    job = site.make("done")
    url = reverse("admin:django_jobs_job_requeue", args=[job.pk])
    answer = site.act_on_page("requeue", job, as_seen=version(job.refresh()))
    assert "Run a job again?" in text(answer)
    assert (job.refresh().status, site.log()) == ("done", [])
    assert messages(confirm(site, answer, url)) == [f"Job {job.pk} was requeued."]
    assert job.refresh().status == "ready"
    assert messages(confirm(site, answer, url)) == [f"Job {job.pk} waits; it can be requeued when it has ended."]


def test_selected_jobs_of_which_one_is_done_are_requeued_after_they_were_confirmed(site: Site) -> None:
    done, dead = site.make("done"), site.make("dead")
    answer = site.act_on_list("requeue", done, dead)
    assert "Run 2 jobs again?" in text(answer)
    assert (done.refresh().status, dead.refresh().status) == ("done", "dead")
    assert messages(site.act_on_list("requeue", done, dead, confirmed="yes")) == ["2 jobs were requeued."]


def test_a_running_job_is_asked_to_stop(site: Site) -> None:
    job = site.make("running")
    assert "is told to stop" in text(site.act_on_page("cancel", job))
    answer = site.act_on_page("cancel", job, confirmed="yes")
    assert messages(answer) == [f"Job {job.pk} runs; its handler is told to stop within a heartbeat."]
    assert (job.refresh().status, job.cancel_reason) == ("running", "by ada")
    assert site.log() == [(str(job.pk), site.user, "Asked to stop, to be cancelled.")]


def test_of_selected_jobs_each_conflict_is_reported_and_the_others_are_requeued(site: Site) -> None:
    dead, failed, running, ready = (site.make(status) for status in ("dead", "failed", "running", "ready"))
    answer = site.act_on_list("requeue", dead, failed, running, ready, 10**15, why="try again")
    assert messages(answer) == [
        "2 jobs were requeued.",
        f"Job {running.pk} runs; it can be requeued when it has ended.",
        f"Job {ready.pk} waits; it can be requeued when it has ended.",
        "There is no job 1000000000000000.",
    ]
    assert [job.refresh().status for job in (dead, failed, running, ready)] == ["ready", "ready", "running", "ready"]
    assert {entry[2] for entry in site.log()} == {"Requeued: try again"}


def test_selected_jobs_are_cancelled_after_one_confirmation_even_those_that_left_the_filter(site: Site) -> None:
    jobs = [site.make(), site.make()]
    address = reverse("admin:django_jobs_job_changelist") + "?state=due"
    chosen = {"action": "cancel", "_selected_action": [job.pk for job in jobs], "why": "wrong"}
    answer = site.client.post(address, {**chosen, "index": "0"})
    assert "Cancel 2 jobs?" in text(answer)
    assert 'value="wrong"' in answer.content.decode()
    assert [job.refresh().status for job in jobs] == ["ready", "ready"]
    type(jobs[0]).objects.using(site.alias).filter(pk=jobs[0].pk).update(parked="pause")
    answer = site.client.post(address, {**chosen, "confirmed": "yes"}, follow=True)
    assert messages(answer) == ["2 jobs were cancelled."]
    assert [job.refresh().status for job in jobs] == ["cancelled", "cancelled"]


def test_many_conflicts_are_summed_up(site: Site) -> None:
    jobs = [site.make() for _number in range(11)]
    running = site.make("running")
    answer = site.act_on_list("requeue", *jobs, running)
    ids = ", ".join(str(job.pk) for job in jobs[:10])
    assert messages(answer) == [
        f"11 jobs were refused in the same way ({ids}, ...). Of the first: "
        f"Job {jobs[0].pk} waits; it can be requeued when it has ended.",
        f"Job {running.pk} runs; it can be requeued when it has ended.",
    ]


def test_a_second_click_changes_nothing_and_is_not_recorded(site: Site) -> None:
    job = site.make("dead")
    site.act_on_page("requeue", job)
    answer = site.act_on_page("requeue", job)
    assert messages(answer) == [f"Job {job.pk} waits; it can be requeued when it has ended."]
    assert len(site.log()) == 1
    assert len(job.refresh().history) == 1


@pytest.mark.parametrize("act", ["requeue", "cancel"])
def test_an_act_is_asked_by_post_alone(site: Site, act: str) -> None:
    job = site.make("dead" if act == "requeue" else "ready")
    status = job.status
    answer = site.client.get(reverse(f"admin:django_jobs_job_{act}", args=[job.pk]), {"confirmed": "yes", "why": "x"})
    assert answer.status_code == (405 if act == "requeue" else 200)
    assert job.refresh().status == status


@pytest.mark.parametrize("act", ["requeue", "cancel"])
def test_an_act_from_another_site_is_refused(as_user: As, act: str) -> None:
    site = as_user("view_job", "requeue_job", "cancel_job", enforce_csrf_checks=True)
    job = site.make("dead" if act == "requeue" else "ready")
    status = job.status
    assert site.act_on_page(act, job, confirmed="yes").status_code == 403
    assert site.act_on_list(act, job, confirmed="yes").status_code == 403
    assert job.refresh().status == status


@pytest.mark.parametrize(("may", "may_not"), [("requeue", "cancel"), ("cancel", "requeue")])
def test_each_act_has_a_permission_of_its_own(as_user: As, may: str, may_not: str) -> None:
    site = as_user("view_job", f"{may}_job")
    jobs = {"requeue": site.make("dead"), "cancel": site.make()}
    assert f'id="{may}"' in site.page(jobs[may])
    assert f'id="{may_not}"' not in site.page(jobs[may_not])
    choices = site.list().context["action_form"].fields["action"].choices
    assert [name for name, _label in choices] == ["", may]
    before = jobs[may_not].status
    assert site.act_on_page(may_not, jobs[may_not], confirmed="yes").status_code == 403
    site.act_on_list(may_not, jobs[may_not], confirmed="yes")
    assert jobs[may_not].refresh().status == before
    site.act_on_page(may, jobs[may], confirmed="yes")
    assert jobs[may].refresh().status == {"requeue": "ready", "cancel": "cancelled"}[may]


def test_an_act_that_cannot_be_recorded_is_not_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> None:
        raise RuntimeError("the log is full")

    job = site.make("dead")
    monkeypatch.setattr(JobAdmin, "log_change", broken)
    with pytest.raises(RuntimeError):
        site.act_on_page("requeue", job)
    assert job.refresh().status == "dead"


def test_odd_reasons_and_ids_are_taken_for_what_they_are(site: Site) -> None:
    job = site.make("dead")
    answer = site.act_on_page("requeue", job, why="\x00 " + "<b>" * 500)
    assert messages(answer) == [f"Job {job.pk} was requeued."]
    assert site.log()[0][2].startswith("Requeued: <b><b>")
    answer = site.client.post(
        reverse("admin:django_jobs_job_changelist"),
        {"action": "requeue", "index": "0", "_selected_action": ["9" * 19]},
        follow=True,
    )
    assert answer.status_code == 200
    assert site.client.post(f"/admin/django_jobs/job/{'9' * 30}/requeue/").status_code == 302


@pytest.mark.parametrize(
    ("why", "says"), [("x" * 1001, "at most 300 characters (it has 1001)"), ("a\x00b", "Null characters")]
)
def test_a_reason_that_cannot_be_taken_on_the_list_is_named(site: Site, why: str, says: str) -> None:
    job = site.make("dead")
    (message,) = messages(site.act_on_list("requeue", job, why=why))
    assert message.startswith("Why: ")
    assert says in message
    assert job.refresh().status == "dead"
