"""What `@job` makes of a function, and which functions it refuses."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from django_jobs import Backoff, Context, InvalidJob, job, registry
from django_jobs.exceptions import InvalidJobType
from tests.app.jobs import nothing

pytestmark = pytest.mark.fast


def plain(number: int, *, text: str = "") -> str:
    """Repeat a text."""
    return text * number


async def waits(number: int) -> int:
    return number


def with_context(context: Context, number: int) -> int:
    return number


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, registry.JobType]:
    """Return the known types; those that a test adds are forgotten after it."""
    types = dict(registry._types)
    monkeypatch.setattr(registry, "_types", types)
    monkeypatch.setattr(registry, "_clashes", [])
    return types


# What @job makes of a function.


def test_a_bare_job_has_the_place_of_its_function_as_name_and_the_defaults() -> None:
    made = job(plain)
    assert (made.name, registry.find(made.name)) == ("tests.test_job.plain", made.job_type)
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("plain", "Repeat a text.", plain)  # type: ignore[attr-defined]
    found = made.job_type
    assert (found.queue, found.priority, found.takes_context, found.default_timeout) == ("default", 0, False, True)
    assert (found.max_attempts, found.backoff, found.timeout, found.retry_on, found.fail_on) == (None,) * 4 + ((),)


def test_a_job_with_options_keeps_them() -> None:
    made = job(  # type: ignore[call-overload]
        name="shop.greet",
        queue="mail",
        priority=-5,
        max_attempts=3,
        backoff=Backoff(base=1),
        retry_on=[OSError],
        fail_on=ValueError,
        timeout=timedelta(minutes=1),
        takes_context=True,
    )(with_context)
    found = made.job_type
    assert (found.name, found.queue, found.priority, found.max_attempts) == ("shop.greet", "mail", -5, 3)
    assert (found.backoff, found.retry_on, found.fail_on) == (Backoff(base=1), (OSError,), (ValueError,))
    assert (found.timeout, found.default_timeout, found.takes_context) == (60.0, False, True)


def test_no_deadline_is_had_only_by_writing_it() -> None:
    found = job(timeout=None)(plain).job_type
    assert (found.timeout, found.default_timeout) == (None, False)


def test_a_job_is_still_called_as_a_function() -> None:
    assert job(plain)(2, text="ab") == "abab"
    with pytest.raises(TypeError):
        job(plain)()  # type: ignore[call-arg]


def test_an_async_job_is_called_as_the_coroutine_function_that_it_is() -> None:
    made = job(waits)
    assert asyncio.run(made(3)) == 3
    assert made.job_type.function is waits


def test_a_second_function_under_a_name_does_not_take_the_place_of_the_first() -> None:
    first, second = job(name="twice")(plain), job(name="twice", takes_context=True)(with_context)
    assert registry.find("twice") is first.job_type
    assert registry.clashes() == [(first.job_type, second.job_type)]


def test_a_module_that_is_loaded_again_replaces_its_own_functions() -> None:
    job(plain)
    again = job(plain)
    assert (registry.find("tests.test_job.plain"), registry.clashes()) == (again.job_type, [])


# What @job refuses.


class Holder:
    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...

    def __call__(self) -> None: ...


def generates() -> Iterator[int]:
    yield 1


async def generates_asynchronously() -> AsyncIterator[int]:
    yield 1


def nested() -> Callable[[], None]:
    def inside() -> None: ...

    return inside


MODULE = "tests.test_job"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (lambda: None, f"@job cannot take the lambda {MODULE}.<lambda>; give it a name with def."),
        (
            nested(),
            f"@job cannot take {MODULE}.nested.<locals>.inside, defined inside a function; move it to the module.",
        ),
        (Holder.method, f"@job cannot take the method {MODULE}.Holder.method; use a function of the module."),
        (Holder.static, f"@job cannot take the method {MODULE}.Holder.static; use a function of the module."),
        (Holder().method, "@job takes a function, and <method> is none."),
        (Holder, "@job takes a function, and <class 'tests.test_job.Holder'> is none."),
        (Holder(), "@job takes a function, and <Holder> is none."),
        (staticmethod(plain), "@job takes a function, and <staticmethod> is none."),
        (functools.partial(plain, 1), "@job takes a function, and <partial> is none."),
        (len, "@job takes a function, and <builtin_function_or_method> is none."),
        ("mail", "@job takes a function, and 'mail' is none."),
        (nothing, "<job tests.app.jobs.nothing> is a job already; use @job once."),
        (
            generates,
            f"@job cannot take the generator function {MODULE}.generates; return a list instead of yielding.",
        ),
        (
            generates_asynchronously,
            f"@job cannot take the generator function {MODULE}.generates_asynchronously; "
            "return a list instead of yielding.",
        ),
    ],
)
def test_what_is_no_plain_function_of_a_module_is_refused(
    target: Any, said: str, registered: dict[str, registry.JobType]
) -> None:
    before = dict(registered)
    for decorate in (job, job(queue="mail")):
        with pytest.raises(InvalidJobType) as caught:
            decorate(target)
        assert str(caught.value) == said
    assert registered == before


def test_a_job_that_takes_a_context_has_a_place_for_it() -> None:
    def check(function: Callable[..., Any]) -> None:
        with pytest.raises(InvalidJob) as caught:
            job(takes_context=True)(function)
        assert str(caught.value) == (
            f"@job(takes_context=True) calls {function.__qualname__} with the context as its first positional "
            "argument; add it: def f(context, ...)."
        )

    for function in (without_parameters, only_keywords, only_rest):
        check(function)


def without_parameters() -> None: ...


def only_keywords(*, context: Context) -> None: ...


def only_rest(*rest: Any) -> None: ...


def test_a_default_name_that_is_too_long_is_refused() -> None:
    def long() -> None: ...

    long.__name__ = long.__qualname__ = "f" * 255
    with pytest.raises(InvalidJob, match=r"^name is 'tests.test_job.ff+\.\.\. of 270 characters; give 1 to 255\.$"):
        job(long)


def test_what_registers_itself_while_the_registry_is_read_breaks_nothing(
    registered: dict[str, registry.JobType],
) -> None:
    class Importing:
        """Stands for a type at which another thread has its turn, and imports a module with jobs."""

        @property
        def queue(self) -> str:
            registered["late"] = registered["tests.app.jobs.nothing"]
            return "early"

    registered["early"] = cast(registry.JobType, Importing())
    assert "early" in registry.queues()
    assert "late" in registry.names()
