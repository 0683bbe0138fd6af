"""Alerts: raised once for a crossing, cleared once, and told at least once by each way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.core import mail

from django_jobs import pause, resume
from django_jobs.alerts import channels, turns, webhook
from django_jobs.alerts.look import forget, look, open_alerts
from django_jobs.conf import conf
from django_jobs.models import Alert, Job
from django_jobs.models.clock import Clock
from django_jobs.signals import alert_cleared, alert_raised
from tests.acts import dead
from tests.engines.common import alone, alter, beside_others, on_postgresql
from tests.monitoring.common import due
from tests.monitoring.webhooks import Hook, served
from tests.threads import session, wait_for_blocked

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine

pytestmark = alone
GIVEN = {"DEAD_LETTER_ALERT": 10, "QUEUE_AGE_ALERT": 100}


@pytest.fixture(autouse=True)
def given(settings: Any) -> None:
    settings.DJANGO_JOBS = GIVEN
    settings.ADMINS = []


@pytest.fixture
def hook(settings: Any) -> Iterator[Hook]:
    with served() as server:
        settings.DJANGO_JOBS = {**GIVEN, "ALERT_WEBHOOK": server.url}
        yield server


def made(**values: Any) -> Alert:
    return Alert(value=11, raised_at=datetime(2026, 11, 30, tzinfo=UTC), **values)


def alerts(engine: Engine) -> list[tuple[str, str, bool]]:
    rows = Alert.objects.using(engine.alias).order_by("id")
    return [(row.kind, row.name, row.cleared_at is None) for row in rows]


def tell_all(engine: Engine) -> None:
    while (found := turns.take(engine)) is not None:
        channels.tell(found)
        turns.told(engine, found)


def test_a_threshold_that_is_passed_is_one_alert_however_often_somebody_looks(engine: Engine) -> None:
    dead(engine, 10)
    look(engine, conf())
    assert alerts(engine) == [], "ten there may be"
    dead(engine, 1)
    for _ in range(3):
        look(engine, conf())
    assert alerts(engine) == [("dead_letters", "", True)]
    (alert,) = open_alerts()
    assert (alert.value, alert.limit) == (11, 10)


@on_postgresql
@beside_others
def test_two_who_look_at_once_raise_one(engine: Engine) -> None:
    dead(engine, 11)
    with session(engine.alias) as other:
        other.begin()
        other.do(lambda: look(engine, conf()))
        with session(engine.alias) as third:
            looking = third.start(lambda: look(engine, conf()))
            wait_for_blocked()
            other.commit()
            looking.result(30)
    assert alerts(engine) == [("dead_letters", "", True)]


def test_it_is_over_when_nine_tenths_are_kept_and_the_next_crossing_is_another(engine: Engine) -> None:
    made = dead(engine, 11)
    look(engine, conf())
    Job.objects.using(engine.alias).filter(pk__in=[job.pk for job in made[:2]]).delete()
    look(engine, conf())
    assert alerts(engine) == [("dead_letters", "", True)], "nine are below the threshold, and not by much"
    assert open_alerts()[0].value == 9
    made[2].requeue()
    look(engine, conf())
    assert alerts(engine) == [("dead_letters", "", False)]
    dead(engine, 3)
    look(engine, conf())
    assert alerts(engine) == [("dead_letters", "", False), ("dead_letters", "", True)]


def test_each_queue_has_its_own_alert_by_its_oldest_due_job(engine: Engine) -> None:
    mail_job, _ = due(engine, 110, queue="mail"), due(engine, 90)
    due(engine, 120, queue="post")
    look(engine, conf())
    assert alerts(engine) == [("queue_age", "mail", True), ("queue_age", "post", True)]
    alter(engine, mail_job.pk, run_at=Clock() + timedelta(seconds=60))
    look(engine, conf())
    assert alerts(engine) == [("queue_age", "mail", False), ("queue_age", "post", True)]


def test_a_paused_queue_raises_nothing_and_clears_nothing(engine: Engine) -> None:
    due(engine, 110, queue="mail")
    pause(queue="mail")
    look(engine, conf())
    assert alerts(engine) == []
    resume(queue="mail")
    look(engine, conf())
    pause(queue="mail")
    look(engine, conf())
    assert alerts(engine) == [("queue_age", "mail", True)]


def test_an_alert_of_a_kind_without_a_threshold_is_over_and_nobody_is_told(engine: Engine, settings: Any) -> None:
    dead(engine, 11)
    look(engine, conf())
    tell_all(engine)
    settings.DJANGO_JOBS = {"QUEUE_AGE_ALERT": 100}
    assert open_alerts() == []
    look(engine, conf())
    assert alerts(engine) == [("dead_letters", "", False)]
    assert turns.take(engine) is None


def test_all_ways_are_told_in_order_and_each_once(
    engine: Engine, hook: Hook, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ADMINS = ["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")]
    heard: list[tuple[str, Any]] = []

    def raised(alert: Alert, **kwargs: Any) -> None:
        heard.append(("raised", alert.value))
        raise RuntimeError("a receiver's own fault")

    def cleared(alert: Alert, **kwargs: Any) -> None:
        heard.append(("cleared", alert.value))

    alert_raised.connect(raised)
    alert_cleared.connect(cleared)
    try:
        made = dead(engine, 11)
        with caplog.at_level(logging.INFO, "django_jobs"):
            look(engine, conf())
            tell_all(engine)
            Job.objects.using(engine.alias).filter(pk__in=[job.pk for job in made[:8]]).delete()
            look(engine, conf())
            tell_all(engine)
    finally:
        alert_raised.disconnect(raised)
        alert_cleared.disconnect(cleared)
    assert [record.levelname for record in caplog.records if record.name == "django_jobs"] == ["ERROR", "INFO"]
    said = "There are 11 dead letters; the threshold is 10."
    assert caplog.messages[0] == f"Alert raised: {said}"
    assert heard == [("raised", 11), ("cleared", 3)]
    told = [message for message in mail.outbox if "dead letters" in message.subject]
    assert [(message.to, message.subject) for message in told] == [
        (["ada@example.com"], "[Django] django_jobs: dead letters"),
        (["ada@example.com"], "[Django] django_jobs: dead letters: over"),
    ]
    assert said in told[0].body
    first, second = hook.posted
    assert {name: first[name] for name in ("event", "kind", "queue", "value", "limit", "cleared_at", "text")} == {
        "event": "raised", "kind": "dead_letters", "queue": None, "value": 11, "limit": 10, "cleared_at": None, "text": said,
    }  # fmt: skip
    assert (second["event"], second["alert"], second["value"]) == ("cleared", first["alert"], 3)
    assert turns.take(engine) is None
    assert [(message["event"]) for message in hook.posted] == ["raised", "cleared"]


def test_two_take_turns_and_one_who_does_not_come_back_is_replaced(engine: Engine) -> None:
    dead(engine, 11)
    look(engine, conf())
    found = turns.take(engine)
    assert found is not None
    assert turns.take(engine) is None
    Alert.objects.using(engine.alias).update(taken_until=Clock() - timedelta(seconds=1))
    again = turns.take(engine)
    assert again is not None
    assert (again.pk, again.to_tell) == (found.pk, found.to_tell)
    turns.told(engine, again)
    turns.told(engine, found)  # who was thought lost comes back
    (row,) = Alert.objects.using(engine.alias).all()
    assert row.to_tell == [["raised", "signal", 11]]


def test_what_fails_is_tried_again_after_a_while_and_given_up_in_the_end(engine: Engine, hook: Hook) -> None:
    dead(engine, 11)
    look(engine, conf())
    Alert.objects.using(engine.alias).update(to_tell=[["raised", "webhook", 11], ["cleared", "webhook", 3]])
    hook.answers = [500, 404]
    tries = 0
    while (found := turns.take(engine)) is not None:
        tries += 1
        if hook.answers:
            with pytest.raises(webhook.NotTold):
                channels.tell(found)
            assert turns.failed(engine, found)
            assert turns.take(engine) is None, "not at once"
            Alert.objects.using(engine.alias).update(taken_until=None)
        else:
            channels.tell(found)
            turns.told(engine, found)
    assert tries == 4
    assert [post["event"] for post in hook.posted] == ["raised", "raised", "raised", "cleared"]
    Alert.objects.using(engine.alias).update(to_tell=[["raised", "webhook", 11]], tries=turns.TRIES - 1)
    found = turns.take(engine)
    assert found is not None
    assert not turns.failed(engine, found)
    assert Alert.objects.using(engine.alias).get().to_tell == []


@pytest.mark.parametrize(("answer", "said"), [(302, "the webhook answered 302"), (500, "the webhook answered 500")])
def test_a_webhook_that_sends_us_elsewhere_is_not_followed(engine: Engine, hook: Hook, answer: int, said: str) -> None:
    hook.answers = [answer]
    with pytest.raises(webhook.NotTold) as caught:
        channels.tell(made(kind="dead_letters", limit=10, to_tell=[["raised", "webhook", 11]]))
    assert str(caught.value) == said, "without the address"
    assert "asked again elsewhere" not in hook.posted


def test_a_webhook_that_does_not_answer_is_not_waited_for(
    engine: Engine, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 0.1)
    hook.answers = [0]
    with pytest.raises(webhook.NotTold, match="cannot be reached") as caught:
        channels.tell(made(kind="queue_age", name="mail", limit=100, to_tell=[["raised", "webhook", 11]]))
    assert "hunter2" not in str(caught.value)


def test_the_sentences_say_what_there_is() -> None:
    letters, letter = (Alert(kind="dead_letters", limit=10), 1010), Alert(kind="dead_letters", limit=0)
    queue = Alert(kind="queue_age", name="mail", limit=100), 119.6
    assert [
        channels.sentence(found, event, value) for found, value in (letters, queue) for event in ("raised", "cleared")
    ] == [
        "There are at least 1010 dead letters; the threshold is 10.",
        "It is over: there are at least 1010 dead letters; the threshold is 10.",
        "The oldest due job of the queue mail waits for 120 s; the threshold is 100 s.",
        "It is over: no due job of the queue mail waits for long; the threshold is 100 s.",
    ]
    assert channels.sentence(letter, "raised", 1) == "There is 1 dead letter; the threshold is 0."


def test_alerts_that_are_over_for_long_are_deleted(engine: Engine) -> None:
    dead(engine, 11)
    look(engine, conf())
    assert forget(engine, 60) == 0
    Alert.objects.using(engine.alias).update(cleared_at=Clock() - timedelta(seconds=59))
    assert forget(engine, 60) == 0
    Alert.objects.using(engine.alias).update(cleared_at=Clock() - timedelta(seconds=61))
    assert forget(engine, 60) == 1
