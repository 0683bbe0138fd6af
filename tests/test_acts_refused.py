"""`jobs pause` and `resume`, and what none of the verbs can use."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs import pause
from django_jobs.models import Pause
from tests.acts import Ran, dead, statuses
from tests.app.jobs import nothing
from tests.engines.common import alone
from tests.harness import Tree

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine


@pytest.fixture(autouse=True)
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")


# Pause and resume.


@alone
def test_pause_and_resume_by_command(engine: Engine) -> None:
    ran = Ran("pause", "--queue", "letters", "--for", "30m", "--why", "paper")
    row = Pause.objects.using(engine.alias).get()
    assert (row.kind, row.name, row.by, row.why) == ("queue", "letters", "ada", "paper")
    assert ran.out.startswith("The queue 'letters' is paused until ")
    assert ran.err.startswith("No queue 'letters' is known to the code, a worker, a schedule or a job. It is paused")
    state = Ran("status", "--json").data["pauses"]
    assert [(item["name"], 1790 < item["seconds_left"] <= 1800) for item in state] == [("letters", True)]
    assert "Paused: queue 'letters' by ada, for " in Ran("status").out
    ran = Ran("pause", "--queue", "letters", "--json")
    assert (ran.data["until"], ran.data["by"], ran.data["why"]) == (None, "ada", "")
    assert Ran("resume", "--queue", "letters").out == "The queue 'letters' is resumed.\n"
    assert Ran("resume", "--queue", "letters").out == "The queue 'letters' was not paused.\n"
    assert Ran("resume", "--type", "x", "--json").data == {"kind": "type", "name": "x", "resumed": False}
    ran = Ran("pause", "--type", nothing.name)
    assert (ran.out, ran.err) == (
        f"The type '{nothing.name}' is paused until it is resumed. What runs goes on.\n",
        "",
    )
    ran = Ran("pause", "--type", f"{nothing.name}s")
    assert f"a job; did you mean '{nothing.name}'" in ran.err
    assert ran.code == 0


@alone
def test_a_name_that_nothing_has_is_refused_if_only_known_ones_are_to_be_paused(engine: Engine) -> None:
    ran = Ran("pause", "--queue", "defualt", "--known")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error.endswith("; did you mean 'default'? Nothing was paused.")
    assert not Pause.objects.using(engine.alias).exists()
    assert Ran("pause", "--queue", "default", "--known").code == 0


@alone
@pytest.mark.parametrize("text", ["2031-05-01T12:00", "2031-05-01T10:00+00:00", "2031-05-01 12:00:00"])
def test_an_end_without_a_zone_is_in_the_projects(engine: Engine, settings: Any, text: str) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    try:
        assert "2031-05-01T12:00:00.000+02:00" in Ran("pause", "--queue", "default", "--until", text).out
    finally:
        settings.TIME_ZONE = "UTC"


@alone
def test_who_has_no_name_pauses_without_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert Ran("pause", "--queue", "default", "--json").data["by"] == ""


# What cannot be used.


@alone
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("requeue", "Say which jobs: their ids, or at least one of --status, --queue, --type."),
        ("cancel --limit 5", "Say which jobs: their ids, or at least one of --status, --queue, --type."),
        ("purge --with-keys", "Say which jobs: their ids, or at least one of --status, --queue, --type."),
        ("requeue abc", "'abc' is not the id of a job: give a whole number from 1 to 9223372036854775807."),
        ("cancel 1 9223372036854775808", "'9223372036854775808' is not the id of a job: give a whole number from 1"),
        ("purge 0", "'0' is not the id of a job: give a whole number from 1"),
        ("requeue 1 --queue a", "Give ids (1), or options that choose by queue, type, age or number, not both."),
        ("requeue --status ready", "--status is 'ready'; give one of done, failed, dead, cancelled."),
        ("cancel --status dead", "--status is 'dead'; give one of ready, running."),
        ("purge --status running", "--status is 'running'; give one of ready, done, failed, dead, cancelled."),
        ("list --status gone", "--status is 'gone'; give one of ready, running, done, failed, dead, cancelled."),
        ("list --limit 0", "'0' is not a limit: give a whole number from 1 to 10000."),
        ("requeue --queue a --limit 0", "'0' is not a limit: give a whole number from 1"),
        ("list --queue a,b", "queue: the queue name 'a,b' has a comma, a space or a control character; leave it out."),
        ("list --type=", "--type is '' of 0 characters; give 1 to 255."),
        ("purge --older-than soon", "--older-than is 'soon'; give seconds, or a number with s, m, h or d"),
        ("purge --older-than 0", "--older-than is '0'; give seconds, or a number with s, m, h or d"),
        ("purge --older-than 9999999d", "--older-than is '9999999d'; give seconds, or a number with"),
        ("pause", "Give one of --queue, --type and --schedule."),
        ("resume --queue a --type b", "Give one of --queue, --type and --schedule."),
        ("pause --queue a --until then", "--until is 'then'; give a time as 2030-12-31T18:00"),
        ("pause --queue a --until 2020-01-01", "until is 2020-01-01 00:00:00+00:00, which is past"),
        ("pause --queue a --until 2030-01-01 --for 5", "--until is '2030-01-01' and --for is '5'; give one of them."),
        ("pause --queue a --for -5", "--for is '-5'; give seconds"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line_and_changes_nothing(
    engine: Engine, arguments: str, says: str
) -> None:
    dead(engine, 1)
    before = statuses(engine)
    ran = Ran(*arguments.replace("--for -5", "--for=-5").split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.error.startswith(says)
    assert "\n" not in ran.error
    assert (statuses(engine), Pause.objects.using(engine.alias).count()) == (before, 0)


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__", available_apps=["django_jobs", "tests.app"])
def test_the_exit_codes_are_the_processes(tree: Tree, vendor: str) -> None:
    job = nothing.enqueue()
    done = tree.run("jobs", "cancel", str(job.pk))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 cancelled, 0 asked to stop.\n", "")
    refused = tree.run("jobs", "cancel", str(job.pk))
    assert (refused.returncode, refused.stdout) == (1, "0 cancelled, 0 asked to stop, 1 refused.\n")
    assert refused.stderr.splitlines()[0].startswith(f"Job {job.pk} is cancelled already")
    twice = tree.run("jobs", "cancel", "--queue", "a", "--queue", "b")
    assert twice.returncode == 2
    assert "--queue is given twice (a, b); give it once." in twice.stderr
    unusable = tree.run("jobs", "status", settings={"THREADS": 0})
    assert (unusable.returncode, "DJANGO_JOBS['THREADS'] is 0" in unusable.stderr) == (2, True)
    wrong = tree.run("jobs", "cancel", "x" * 5000)
    assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (2, "", 1)
    pause(queue="default")
    assert tree.run("jobs", "resume", "--queue", "default").returncode == 0
