"""Alerts by real supervisors: one of them tells, and whoever is told does not hold up anything."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_jobs.alerts import webhook
from django_jobs.conf import conf
from django_jobs.engines import engine as engine_of
from django_jobs.models import Alert, Job
from django_jobs.models.clock import Clock
from django_jobs.workers.alerting import Alerting
from django_jobs.workers.outage import Outage
from tests.harness import Tree, wait_for
from tests.monitoring.webhooks import served
from tests.processes.common import on_postgresql, with_processes

pytestmark = with_processes
NAME = "django_jobs-alerts"


def dead(tree: Tree, count: int) -> None:
    given = {"type": "t", "payload": {"args": [], "kwargs": {}}, "status": "dead", "finished_at": Clock()}
    Job.objects.using(tree.alias).bulk_create([Job(**given) for _ in range(count)])


@on_postgresql
def test_of_two_supervisors_one_tells_that_it_began_and_one_that_it_is_over(tree: Tree) -> None:
    dead(tree, 3)
    with served() as hook:
        trees = [tree.start(settings={"DEAD_LETTER_ALERT": 2, "ALERT_WEBHOOK": hook.url}) for _ in range(2)]
        for found in trees:
            found.wait_until_ready()
        wait_for(lambda: hook.posted)
        Job.objects.using(tree.alias).filter(type="t").delete()
        wait_for(lambda: len(hook.posted) > 1)
        wait_for(lambda: not Alert.objects.using(tree.alias).untold().exists())
        for found in trees:
            assert found.stop() == 0
        assert [post["event"] for post in hook.posted] == ["raised", "cleared"]
        logs = "".join(found.log for found in trees)
    assert logs.count("Alert raised: There are 3 dead letters; the threshold is 2.") == 1
    assert logs.count("Alert cleared: ") == 1
    assert "hunter2" not in logs


def loops() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def test_a_server_of_somebody_else_that_does_not_answer_holds_up_neither_a_fork_nor_the_next_thread(
    tree: Tree, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 60.0)
    dead(tree, 3)
    with served() as hook:
        hook.answers = [0]
        settings.DJANGO_JOBS = {"DEAD_LETTER_ALERT": 2, "ALERT_WEBHOOK": hook.url}
        alerting = Alerting(engine_of(), conf(), Outage("test", 30.0))
        alerting.start()
        wait_for(lambda: hook.posted)
        (held,) = loops()
        assert alerting.end(0.05)
        assert held.is_alive()
        alerting.start()
        wait_for(lambda: len(loops()) == 2)
        hook.silent.set()
        held.join(30)
        assert not held.is_alive()
        assert alerting.end(30)
        wait_for(lambda: not loops())
        assert len(hook.posted) == 1


def test_without_thresholds_nobody_looks(tree: Tree, settings: Any) -> None:
    settings.DJANGO_JOBS = {}
    alerting = Alerting(engine_of(), conf(), Outage("test", 30.0))
    alerting.start()
    assert loops() == []
    assert alerting.end(0.0)
