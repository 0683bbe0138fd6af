"""The options of tasks: where they may stand, and what is said of those that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import Backoff, registry
from django_jobs.engines.base import Engine
from django_jobs.tasks import types
from tests.tasks import app_tasks as typed
from tests.tasks.common import OURS, options, stored
from tests.tasks_contract.framework import InvalidTask, default_task_backend, task

# The framework's types know none of our options.
app_tasks: Any = typed
pytestmark = [pytest.mark.fast, pytest.mark.django_db(databases="__all__")]


@pytest.mark.usefixtures("engine")
def test_options_of_the_backend_are_for_all_and_those_of_a_path_come_first(engine: Engine) -> None:
    default, by_path = stored(app_tasks.nothing.enqueue(), engine), stored(app_tasks.by_path.enqueue(), engine)
    assert (default.max_attempts, default.timeout) == (1, 900.0)
    assert (by_path.max_attempts, by_path.timeout) == (7, 11.0)
    plain = stored(app_tasks.by_path.using(backend="any_queue").enqueue(), engine)
    assert (plain.max_attempts, plain.timeout) == (8, 900.0)


def test_an_enqueue_may_say_more(engine: Engine) -> None:
    later = datetime(2126, 1, 1, tzinfo=UTC)
    changed = app_tasks.by_path.using(
        max_attempts=3, timeout=None, expires=later, idempotency_key="one", unique="unfinished"
    )
    job = stored(changed.using(priority=1).enqueue(), engine)
    assert (job.max_attempts, job.timeout, job.expires_at, job.priority) == (3, None, later, 1)
    assert (job.idempotency_key, job.key_holds) == ("one", "unfinished")
    assert stored(app_tasks.by_path.enqueue(), engine).max_attempts == 7


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"attempts": 3}, TypeError, "no option 'attempts'; it has .*max_attempts"),
        ({"atomic": True}, TypeError, "no option 'atomic'"),
    ],
)
def test_an_option_that_is_unknown_is_refused(changes: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        app_tasks.nothing.using(**changes)


@pytest.mark.skipif(not app_tasks.with_own_options, reason="@task takes no more options on Django 6.0")
def test_a_task_has_options_of_its_own(engine: Engine) -> None:
    made = task(
        max_attempts=4, timeout=timedelta(minutes=1), backoff=Backoff(base=7), fail_on=[KeyError], tags=["mail"]
    )(app_tasks.nothing.func)
    with options(max_attempts=2, durable=True, tasks={made.module_path: {"max_attempts": 3, "backoff": (1, 2, 3)}}):
        job, found = stored(made.enqueue(), engine), registry.find(made.module_path)
        assert stored(made.using(max_attempts=5).enqueue(), engine).max_attempts == 5
    assert (job.max_attempts, job.timeout, job.tags) == (4, 60.0, ["mail"])
    assert found is not None
    assert (found.backoff, found.fail_on, found.durable) == (Backoff(base=7), (KeyError,), True)


def test_three_numbers_are_a_backoff(engine: Engine) -> None:
    with options(backoff=[1, 2, 3]):
        app_tasks.nothing.enqueue()
        found = registry.find(app_tasks.nothing.module_path)
    assert found is not None
    assert found.backoff == Backoff(base=1, factor=2, cap=3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", "OPTIONS is 'text'; give a dict"),
        ({"attempts": 3}, "OPTIONS has no option 'attempts'; it has .*max_attempts.*tasks"),
        ({"max_attempts": 0}, "OPTIONS: max_attempts is 0; give a whole number"),
        ({"idempotency_key": "x"}, "OPTIONS has no option 'idempotency_key'"),
        ({"backoff": [1, 2]}, r"OPTIONS: backoff is \[1, 2\]"),
        ({"tasks": ["a.b"]}, r"OPTIONS\['tasks'\] is .*; give a dict"),
        ({"tasks": {"a.b": {"timeout": -1}}}, r"OPTIONS\['tasks'\]\['a.b'\]: timeout is -1"),
        ({"tasks": {"a.b": {"tasks": {}}}}, r"OPTIONS\['tasks'\]\['a.b'\] has no option 'tasks'"),
        ({"modules": "shop.mail"}, r"OPTIONS\['modules'\] is 'shop.mail'; give a list"),
    ],
)
def test_options_that_cannot_be_used_are_refused_and_found_by_the_check(given: Any, said: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": OURS, "OPTIONS": given}}):
        (found,) = default_task_backend.check()
        # Else a traceback of its module would come before the check.
        defined = task(app_tasks.nothing.func).using(priority=1)
        with pytest.raises(InvalidTask, match=said):
            defined.enqueue()
    assert found.id == "django_jobs.E011"
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found.msg)


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ("default", "QUEUES is 'default'; give a list"),
        (None, "QUEUES is None; give a list"),
        (["default", "a b"], "QUEUES has 'a b': queue: .*space"),
        ([5], "QUEUES has 5: queue"),
    ],
)
def test_queues_that_cannot_be_used_are_refused_and_found_by_the_check(queues: Any, said: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": OURS, "QUEUES": queues}}):
        (found,) = default_task_backend.check()
        defined = task(app_tasks.nothing.func)
        with pytest.raises(InvalidTask, match=rf"TASKS\['default'\]: {said}"):
            defined.enqueue()
    assert (found.id, found.msg.startswith("TASKS['default']: QUEUES ")) == ("django_jobs.E011", True)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("tests.tasks.app_tasks.by_pth", "Is it 'tests.tasks.app_tasks.by_path'"),
        ("tests.tasks.app_tasks.Broken", "Is it "),
        ("shop", "Give the path of a task, as 'shop.tasks.send'."),
    ],
)
def test_a_path_in_the_options_that_no_task_has_is_reported_with_those_near_to_it(path: str, hint: str) -> None:
    with options(tasks={path: {"timeout": 5}, "tests.tasks.app_tasks.by_path": {"timeout": 5}}):
        (found,) = default_task_backend.check()
    assert found.id == "django_jobs.W005"
    assert found.msg == f"TASKS['default']['OPTIONS']['tasks'] names {path!r}, and no task is known by this path."
    assert found.hint.startswith(hint)


def test_a_path_of_a_task_for_another_backend_is_none_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(types._tasks, "tests.tasks.app_tasks.by_path")
    with options(tasks={"tests.tasks.app_tasks.by_path": {"timeout": 5}}):
        assert default_task_backend.check() == []


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"unique": "always"}, "unique is 'always'; give one of 'window', 'unfinished', 'waiting'"),
    ({"unique": True}, "unique is True"),
    ({"expires": "1h"}, "expires is '1h'; give a datetime, seconds as a number, or a timedelta"),
    ({"expires": 0}, "expires is 0; give seconds over 0"),
    ({"expires": datetime(2126, 1, 1)}, "expires is .* without a time zone"),
    ({"idempotency_key": ""}, "idempotency_key is '' of 0 characters"),
    ({"idempotency_key": 5}, "idempotency_key is 5; give text"),
    ({"idempotency_key": "job:1"}, "keys beginning with 'job:' are reserved"),
    ({"max_attempts": 0}, "max_attempts is 0"),
    ({"max_attempts": True}, "max_attempts is True"),
    ({"timeout": -1}, "timeout is -1"),
    ({"detached": "yes"}, "detached is 'yes'; give True or False"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG_OPTIONS)
def test_an_option_of_one_enqueue_that_cannot_be_used_is_refused_where_it_is_given(changes: Any, said: str) -> None:
    with pytest.raises(InvalidTask, match=rf"app_tasks\.nothing: .*{said}"):
        app_tasks.nothing.using(**changes)


@pytest.mark.skipif(not app_tasks.with_own_options, reason="@task takes no more options on Django 6.0")
@pytest.mark.parametrize(
    ("own", "said"),
    [
        *WRONG_OPTIONS,
        ({"tags": "mail"}, "tags is 'mail'; give a list of texts"),
        ({"fail_on": [5]}, "take exception classes, and 5 is none"),
        ({"backoff": 5}, "backoff is 5; give Backoff"),
        ({"backoff": [1, 0, 3]}, r"Backoff\(factor=0\)"),
        ({"atomic": 1}, "atomic is 1; give True or False"),
        ({"other_databases": True}, "other_databases says .*; give atomic=True as well"),
    ],
)
def test_an_option_of_a_task_that_cannot_be_used_is_refused_where_it_is_defined(own: Any, said: str) -> None:
    for function in (app_tasks.nothing.func, copied(app_tasks.nothing.func)):
        with pytest.raises(InvalidTask, match=rf"app_tasks\.nothing: .*{said}"):
            task(**own)(function)


def copied(function: Any) -> Any:
    """Return a function of the same path that this process does not know."""
    made = type(function)(function.__code__, function.__globals__, function.__name__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


@pytest.mark.skipif(not app_tasks.with_own_options, reason="@task takes no more options on Django 6.0")
def test_an_option_of_a_task_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match=r"@task has no option 'key'; it has atomic, .*idempotency_key.*unique"):
        task(key="x")(app_tasks.nothing.func)


def test_a_generator_function_is_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    numbers.__module__, numbers.__qualname__ = "tests.tasks.app_tasks", "numbers"
    with pytest.raises(InvalidTask, match="numbers: it is a generator function; return a list instead of yielding"):
        task(numbers)


def test_the_terms_of_one_enqueue_are_never_those_of_another_that_comes_meanwhile() -> None:
    """Two threads share what is kept of the last enqueue."""
    one, other = (app_tasks.nothing.using(idempotency_key=key) for key in ("one", "other"))
    known = types.know(one, "default", default_task_backend.options)

    class Changing(types.Known):
        @property
        def last(self) -> Any:
            return next(found)

        @last.setter
        def last(self, value: Any) -> None: ...

    found = iter([types.terms(known, task) and known.last for task in (one, one, other)])
    raced = Changing(known.task, known.given, known.job_type)
    assert types.terms(raced, one)[1].idempotency_key == "one"


def test_an_async_task_cannot_be_atomic() -> None:
    with (
        options(atomic=True),
        pytest.raises(InvalidTask, match="asynchronous is an async function, which cannot be atomic"),
    ):
        app_tasks.asynchronous.using(priority=1)


@pytest.mark.parametrize("queue", ["", "a queue", "a,b"])
def test_a_queue_that_jobs_cannot_have_is_refused(queue: str) -> None:
    with pytest.raises(InvalidTask, match="queue name"):
        app_tasks.nothing.using(backend="any_queue", queue_name=queue)
