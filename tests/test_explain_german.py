"""Why a job is where it is, in German: every part of the sentence that there is."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation import override

import django_jobs
from django_jobs import texts, waiting
from django_jobs.engines.base import Engine
from django_jobs.explain import Around, explain, sentence
from django_jobs.models import ArchivedJob, Job, Pause, Worker
from django_jobs.texts import Text

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.fast]
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
MODULES = [Path(django_jobs.__file__).with_name(name) for name in ("explain.py", "waiting.py")]
# Names of things and of causes, and what German writes alike. All else that the cases have is shorter than a word.
ALIKE = {"worker", "handler", "min", "in", "raised", "died", "lease", "threads", "thread", "job", "jobs", "pause"}


def line(cause: str, error: str = "E1.", **values: Any) -> dict[str, Any]:
    at = (NOW - 3 * SECOND).isoformat()
    return {"run": 1, "cause": cause, "error": error, "worker": "h:1", "seconds": 1, "at": at, **values}


RAISED, REQUEUED = line("raised"), line("requeued", "by a1: w1")
RUNNING = {
    "status": "running",
    "token": 1,
    "last_started_at": NOW - HOUR,
    "locked_by": "w:1",
    "locked_until": NOW + HOUR,
}
SOON, LATE = {"run_at": NOW + HOUR}, {"run_at": NOW - HOUR}
SUSPECT = {"parked": "suspect", "suspect": True}


def ended(status: str, **values: Any) -> dict[str, Any]:
    return {"status": status, "token": 1, "last_started_at": NOW - HOUR, "finished_at": NOW - 3 * SECOND, **values}


def worker(**values: Any) -> Worker:
    known = {"id": "w", "host": "h", "pid": 1, "threads": 9, "types": ["t"], "queues": None, "asked": ""}
    return Worker(**{"heartbeat_at": NOW, **known, **values})


def pauses() -> list[Pause]:
    queue = Pause(kind="queue", name="q", until=NOW + HOUR, by="a1", why="w1.", created_at=NOW - HOUR)
    return [queue, Pause(kind="type", name="t", until=None, by="", why="", created_at=NOW - HOUR)]


def around(*workers: Worker) -> Around:
    return Around((), workers)


NOBODY, ONE, TWO = around(), around(worker()), around(worker(), worker(id="v"))
NO_THREAD, BUSY = around(worker(threads=0)), around(worker(threads=0), worker(id="v", threads=0))
SILENT = around(worker(heartbeat_at=NOW - HOUR))
CASES: list[tuple[dict[str, Any], Around]] = [
    ({**SOON, "history": [REQUEUED]}, NOBODY),
    ({**SOON, "token": 1, "history": [line("requeued", "no reason given")], "expires_at": NOW + 2 * HOUR}, NOBODY),
    ({**SOON, "attempts": 1, "history": [RAISED] * 2, "suspect": True}, NOBODY),
    ({**SOON, "history": [RAISED] * 10}, Around(pauses())),
    ({**SOON, "history": [{**REQUEUED, "at": None}]}, NOBODY),
    (LATE, NOBODY),
    ({**LATE, "expires_at": NOW - SECOND}, NOBODY),
    ({**LATE, "expires_at": NOW + HOUR}, Around(pauses())),
    (LATE, SILENT),
    (LATE, around(worker(queues=[]))),
    (LATE, around(worker(types=[]))),
    (LATE, around(worker(asked="quiet"))),
    (LATE, around(worker(asked="quiet"), worker(asked="quiet"))),
    ({**LATE, "parked": "type"}, ONE),
    ({**LATE, "parked": "pause"}, ONE),
    ({**LATE, **SUSPECT}, ONE),
    ({**LATE, **SUSPECT, "losses": 2, "history": [line("died")]}, ONE),
    ({**LATE, "history": [RAISED]}, TWO),
    (LATE, NO_THREAD),
    (LATE, BUSY),
    (LATE, around(worker(threads=1))),
    ({**RUNNING, "history": [RAISED]}, ONE),
    ({**RUNNING, "suspect": True, "locked_until": NOW - SECOND}, NOBODY),
    ({**RUNNING, "cancel_reason": "w1", "history": [line("asked to stop")]}, SILENT),
    (ended("done"), NOBODY),
    (ended("done", token=3, finished_at=NOW - 400 * HOUR), NOBODY),
    (ended("failed", finished_at=None), NOBODY),
    (ended("failed", history=[RAISED]), NOBODY),
    (ended("dead", attempts=8, losses=1, last_error="E1"), NOBODY),
    (ended("dead", attempts=8, losses=0, last_error="E1"), NOBODY),
    (ended("cancelled", history=[line("expired")]), NOBODY),
    (ended("cancelled", cancel_reason="by a1: w1", history=[line("asked to stop")]), NOBODY),
    (ended("cancelled", cancel_reason="by a1", history=[RAISED]), NOBODY),
    (ended("done", archived_at=NOW - HOUR), NOBODY),
    (ended("done", archived_at=NOW - HOUR, requeued_as=8), NOBODY),
]


def job(engine: Engine, values: dict[str, Any]) -> Any:
    columns = {
        "pk": 7, "type": "t", "queue": "q", "payload": {"args": [], "kwargs": {}}, "status": "ready", "run_at": NOW,
        "priority": 0, "token": 0, "attempts": 0, "max_attempts": 8, "losses": 0, "suspect": False, "history": [], "meta": {},
        "last_error": "",
    }  # fmt: skip
    made: Any = (ArchivedJob if "archived_at" in values else Job)(**{**columns, **values})
    made._state.db, made.clock, made.clock_text = engine.alias, NOW, NOW.isoformat()
    return made


def forms(said: Any) -> Iterator[str]:
    """Return the formats that a text was made of."""
    if isinstance(said, texts._Filled):
        yield said.forms[0]
        values = said.values.values() if isinstance(said.values, dict) else said.values
        for value in values:
            yield from forms(value)


def known() -> set[str]:
    """Return the formats that there are."""
    calls = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [call for call in calls if getattr(call.func, "id", "") in ("_", "ngettext")]
    return {str(call.args[0].value) for call in named if isinstance(call.args[0], ast.Constant)}


def words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[^\W\d_]{2,}", re.sub(r"`[^`]*`", "", text))}


def test_every_part_of_the_sentence_is_german(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [sentence(job(engine, values), there) for values, there in CASES]
    said.append(explain(job(engine, {})))
    runs = {"status": "running", "locked_by": "w:1", "last_started_at": NOW, "locked_until": NOW}
    Job.objects.using(engine.alias).create(type="t", payload={}, suspect=True, **runs)
    said.append(sentence(job(engine, {**SUSPECT, "run_at": NOW - SECOND}), ONE))
    monkeypatch.setattr(waiting, "AHEAD_LIMIT", 0)
    said.append(sentence(job(engine, LATE), ONE))
    said.append(sentence(job(engine, LATE), around(worker(threads=1))))
    assert known() - {form for text in said for form in forms(text)} == set(), "have a case of it here"
    with override("de"):
        left = {text.translated(): found for text in said if (found := words(text) & words(text.translated()) - ALIKE)}
    assert left == {}


def test_numbers_and_ages_go_by_the_language_and_the_text_itself_is_english_whatever_is_active(engine: Engine) -> None:
    with override("de"):
        said = job(engine, {}).explain()
        assert said == "Job 7 is gone: it was deleted."
        assert said.translated() == "Job 7 ist nicht mehr da: Er wurde gelöscht."
        done = sentence(
            job(engine, ended("done", finished_at=NOW - 3.5 * SECOND, last_started_at=NOW - 4 * SECOND)), NOBODY
        )
        assert done == "Done 3.5 s ago, 0.5 s after its start."
        assert done.translated() == "Erledigt vor 3,5 s, 0,5 s nach seinem Beginn."
        assert texts.number(12345).translated() == "12.345"
    assert done.translated() == done


def test_a_text_that_was_stored_is_said_anew_and_one_that_was_spoiled_as_it_stands() -> None:
    text = texts.text("Job %(id)d%(state)s; it can be requeued when it has ended.", id=7, state=texts.text(" runs"))
    english, parts = json.loads(json.dumps(texts.kept(text)))
    with override("de"):
        again = texts.kept_text(english, parts)
        assert (again, texts.translated(again)) == (text, text.translated())
        assert text.translated() == "Job 7 läuft; neu einreihen lässt er sich, wenn er beendet ist."
        for spoiled in (
            None,
            5,
            {},
            {**parts, "forms": []},
            {**parts, "forms": ["%(id)d %(x)s"]},
            {**parts, "values": []},
        ):
            assert texts.kept_text(english, spoiled) == english
        assert texts.kept_text(*texts.kept("as a trigger said")) == "as a trigger said"


def test_templates_show_a_text_in_the_language_of_the_page_and_escaped() -> None:
    from django.template import Context, Template

    text = texts.text("Job %(id)d cannot be requeued: its idempotency key %(key)r is held by job %(holder)d, which%(state)s.",
                      id=1, key="<b>", holder=2, state=texts.text(" waits"))  # fmt: skip
    assert isinstance(text, Text)
    with override("de"):
        shown = Template("{{ text }}").render(Context({"text": text}))
    assert shown.startswith(
        "Job 1 kann nicht neu eingereiht werden: Seinen Idempotenzschlüssel &#x27;&lt;b&gt;&#x27; hat Job 2"
    )
