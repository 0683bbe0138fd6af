from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.urls import reverse

from django_jobs import outside
from django_jobs.models import Effect
from django_jobs.models.clock import Clock
from tests.admin.conftest import As
from tests.admin.site import Site, messages, text

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
LIST = "/admin/django_jobs/effect/"
MARKUP = "<script>alert(1)</script>"


def make(site: Site, key: str = "a", **values: Any) -> Effect:
    given = {"kind": "outside", "key": key, **values}
    made: Effect = Effect.objects.using(site.alias).create(**given)
    return made


def keys(site: Site, **query: Any) -> list[str]:
    answer = site.client.get(LIST, query)
    assert answer.status_code == 200
    return [effect.key for effect in answer.context["cl"].result_list]


def page(site: Site, effect: Effect) -> Any:
    return site.client.get(reverse("admin:django_jobs_effect_change", args=[effect.pk]))


def act(site: Site, what: str, effect: Effect, **values: Any) -> Any:
    address = reverse(f"admin:django_jobs_effect_{what}", args=[effect.pk])
    if "asks" in values:
        values[f"asks-{effect.pk}"] = values.pop("asks")
    return site.client.post(address, values, follow=True)


def act_on_list(site: Site, what: str, *effects: Effect, **values: Any) -> Any:
    chosen = {"action": what, "index": "0", "_selected_action": [effect.pk for effect in effects], **values}
    return site.client.post(LIST, chosen, follow=True)


def left(site: Site) -> list[tuple[str, bool]]:
    return [(row.key, row.answered_at is not None) for row in Effect.objects.using(site.alias).order_by("key")]


def log() -> list[tuple[str, int, str]]:
    return [(entry.object_repr, entry.action_flag, entry.change_message) for entry in LogEntry.objects.order_by("pk")]


def test_the_list_says_what_is_known_of_each_the_last_asked_first(site: Site) -> None:
    job, running = site.make("done"), site.make("running")
    make(site, "open", job_id=job.pk, asks=3, asked_at=Clock() - timedelta(minutes=4))
    make(site, "under way", job_id=running.pk, asked_at=Clock() - timedelta(minutes=3))
    make(site, "answered", answered_at=Clock(), asked_at=Clock() - timedelta(minutes=2))
    make(site, "done", kind="once", job_id=10**15, asked_at=Clock() - timedelta(minutes=1))
    assert keys(site) == ["done", "answered", "under way", "open"]
    seen = text(site.client.get(LIST))
    assert "open may have happened outside the database" in seen
    assert "under way job runs outside the database" in seen
    assert "answered answered outside the database" in seen
    assert "done took place in the database, job 1000000000000000 (gone)" in seen
    assert "asked 3 times, last 4 min ago" in seen
    assert f'<a href="/admin/django_jobs/job/{job.pk}/change/">' in site.client.get(LIST).content.decode()


def test_the_list_is_narrowed_to_what_is_known(site: Site) -> None:
    running = site.make("running")
    make(site, "open")
    make(site, "under way", job_id=running.pk)
    make(site, "answered", answered_at=Clock())
    make(site, "done", kind="once")
    assert keys(site, what="may-have-happened") == ["open"]
    assert keys(site, what="answered") == ["answered"]
    assert keys(site, what="once") == ["done"]
    assert keys(site, what="nonsense") == []
    assert "Looked for among the newest 1000000 effects." in text(site.client.get(LIST, {"what": "once"}))
    assert site.client.get(LIST, {"result__x": 1}).status_code == 400


def test_the_search_takes_a_whole_key_of_either_kind(site: Site) -> None:
    for key, kind in (("charge:1", "outside"), ("charge:1", "once"), ("charge:12", "outside")):
        make(site, key, kind=kind)
    assert keys(site, q=" charge:1 ") == ["charge:1", "charge:1"]
    assert keys(site, q="charge:") == []
    assert len(keys(site, q="charge:1\x00")) == 3, "Django's own form refuses such a search"


def test_a_page_shows_the_record_and_escapes_what_is_in_it(site: Site) -> None:
    effect = make(site, MARKUP, answered_at=Clock(), result={"said": MARKUP}, note=MARKUP)
    seen = page(site, effect).content.decode()
    assert MARKUP not in seen
    assert "&lt;script&gt;" in seen
    assert "No run of its job asks again." in text(seen)
    assert "/happened/" not in seen


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("ready", "A next run of its job asks again, with the same key."),
        ("running", "its job runs now: it may be under way."),
        ("dead", "Its job is dead, so no run asks again; if somebody requeues it, one does, with the same key."),
        ("failed", "Its job is failed, so no run asks again; if"),
        ("cancelled", "Its job is cancelled, so no run asks again; if"),
        ("done", "Its job is done, so no run asks again; if"),
        ("gone", "Its job is gone, so no run of it asks again."),
        ("none", "No job asked for it: whoever did may do so again, with the same key."),
    ],
)
def test_a_page_promises_a_next_run_only_of_a_job_that_can_still_run(site: Site, status: str, says: str) -> None:
    without = {"gone": 10**15, "none": None}
    job_id = without[status] if status in without else site.make(status).pk
    seen = text(page(site, make(site, job_id=job_id)))
    assert says in seen
    assert ("next run" in seen) == (status == "ready")


def test_nothing_can_be_added_or_edited(site: Site) -> None:
    effect = make(site)
    assert site.client.get(f"{LIST}add/").status_code == 403
    assert not re.search(r'type="(text|submit)" name="(key|result|_save)"', page(site, effect).content.decode())
    assert site.client.post(f"{LIST}{effect.pk}/delete/", {"post": "yes"}).status_code == 403
    assert page(site, Effect(pk=999_999)).status_code == 302


def test_what_happened_is_answered_with_a_note_of_who_when_and_why(site: Site) -> None:
    effect = make(site, asks=2)
    answer = act(site, "happened", effect, asks="2", why="it is on their list")
    assert messages(answer) == ["Recorded that 'a' happened: no run of its job asks again."]
    stored = Effect.objects.using(site.alias).get()
    assert stored.answered_at is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, ada: it happened: it is on their list", stored.note)
    assert log() == [("a", CHANGE, "It happened: it is on their list")]
    assert "Somebody looked and said that it happened." in text(page(site, effect))
    with outside("a") as call:
        assert (call.answered, call.result) == (True, None)


def test_what_did_not_happen_is_asked_for_as_if_for_the_first_time(site: Site) -> None:
    effect = make(site, asks=2)
    answer = act(site, "did_not_happen", effect, asks="2")
    assert messages(answer) == ["Deleted the record of 'a': the next run of its job asks as if for the first time."]
    assert answer.redirect_chain[-1][0] == LIST
    assert (left(site), log()) == ([], [("a", DELETION, "It did not happen.")])
    with outside("a") as call:
        assert (call.answered, call.may_have_happened) == (False, False)


@pytest.mark.parametrize("what", ["happened", "did_not_happen"])
def test_nothing_is_settled_that_is_settled_gone_under_way_or_was_asked_for_again(site: Site, what: str) -> None:
    running = site.make("running")
    refused = [
        (
            make(site, "under way", job_id=running.pk),
            "",
            f"Job {running.pk} runs now and may have 'under way' under way",
        ),
        (make(site, "settled", answered_at=Clock()), "", "'settled' has taken place; there is nothing to settle"),
        (make(site, "done", kind="once"), "", "'done' has taken place; there is nothing to settle"),
        (make(site, "again", asks=3), "2", "'again' was asked for again since you looked"),
    ]
    before = left(site)
    for effect, asks, why in refused:
        (message,) = messages(act(site, what, effect, asks=asks))
        assert why in message
    (message,) = messages(act(site, what, Effect(pk=999_999)))
    assert "There is no effect 999999 any more." in message
    assert (left(site), log()) == (before, [])


def test_several_are_settled_on_the_list_and_what_cannot_be_is_named(site: Site) -> None:
    effects = [make(site, "a"), make(site, "b"), make(site, "done", kind="once")]
    answer = act_on_list(site, "happened", *effects, why="their list")
    assert messages(answer)[:2] == [f"Recorded that '{key}' happened: no run of its job asks again." for key in "ab"]
    assert "'done' has taken place" in messages(answer)[2]
    assert left(site) == [("a", True), ("b", True), ("done", False)]


def test_on_the_list_one_is_asked_before_records_are_deleted(site: Site) -> None:
    effects = [make(site, "a"), make(site, MARKUP), make(site, "other")]
    question = act_on_list(site, "did_not_happen", *effects[:2], why="their list")
    assert "Did these not happen?" in text(question)
    assert MARKUP not in question.content.decode()
    assert len(left(site)) == 3
    shown = dict(re.findall(r'name="(asks-\d+)" value="(\d+)"', question.content.decode()))
    assert shown == {f"asks-{effect.pk}": "1" for effect in effects[:2]}
    act_on_list(site, "did_not_happen", *effects[:2], why="their list", confirmed="yes", **shown)
    assert left(site) == [("other", False)]
    assert {entry[2] for entry in log()} == {"It did not happen: their list"}


def test_what_was_asked_for_again_since_the_question_is_not_deleted(site: Site) -> None:
    effects = [make(site, "again", asks=2), make(site, "once")]
    shown = {f"asks-{effect.pk}": "1" for effect in effects}
    answer = act_on_list(site, "did_not_happen", *effects, confirmed="yes", **shown)
    assert "'again' was asked for again since you looked" in messages(answer)[0]
    assert left(site) == [("again", False)]


@pytest.mark.parametrize(
    ("codenames", "yes", "no"),
    [
        (["view_effect"], False, False),
        (["view_effect", "change_effect"], True, False),
        (["view_effect", "delete_effect"], False, True),
    ],
)
def test_each_act_needs_its_permission(as_user: As, codenames: list[str], yes: bool, no: bool) -> None:
    site = as_user(*codenames)
    effect = make(site)
    seen = page(site, effect).content.decode()
    assert (">It happened<" in seen, ">It did not happen<" in seen) == (yes, no)
    act_on_list(site, "happened", effect)
    assert (left(site) == [("a", True)]) is yes
    Effect.objects.using(site.alias).update(answered_at=None)
    assert act(site, "happened", effect).status_code == (200 if yes else 403)
    Effect.objects.using(site.alias).update(answered_at=None)
    act_on_list(site, "did_not_happen", effect, confirmed="yes")
    assert (left(site) == []) is no
    again = make(site, "b")
    assert act(site, "did_not_happen", again).status_code == (200 if no else 403)


def test_who_may_not_see_effects_sees_none(as_user: As) -> None:
    site = as_user("view_job")
    effect = make(site)
    assert site.client.get(LIST).status_code == 403
    assert page(site, effect).status_code == 403


def test_acts_are_sent_by_post_with_the_token(as_user: As) -> None:
    site = as_user("view_effect", "change_effect", enforce_csrf_checks=True)
    effect = make(site)
    assert act(site, "happened", effect).status_code == 403
    assert site.client.get(reverse("admin:django_jobs_effect_happened", args=[effect.pk])).status_code == 405
    assert left(site) == [("a", False)]
