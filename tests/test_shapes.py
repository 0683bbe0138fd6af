"""Which calls are told to fit a function at a glance."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobs.shapes import Shape
from tests.enqueues import strict, take, with_context

pytestmark = pytest.mark.fast
quietly = settings(deadline=None, database=None)
KINDS: Any = list(type(Parameter.VAR_KEYWORD))  # type: ignore[call-overload]
NAMES = ["a", "b", "c", "d", "e"]


@st.composite
def signatures(draw: Any) -> Signature:
    kinds = sorted(draw(st.lists(st.sampled_from(KINDS), max_size=5)))
    found: list[Parameter] = []
    optional = False
    for name, kind in zip(NAMES, kinds, strict=False):
        single = kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if single and any(item.kind is kind for item in found):
            continue
        with_default = not single and draw(st.booleans())
        if kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            optional = with_default = with_default or optional
        found.append(Parameter(name, kind, default=None if with_default else Parameter.empty))
    return Signature(found)


def fits(signature: Signature, takes_context: bool, number: int, names: set[str]) -> bool:
    try:
        signature.bind(*range(number + takes_context), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


@quietly
@given(signatures(), st.integers(0, 6), st.sets(st.sampled_from([*NAMES, "f"]), max_size=5))
def test_a_call_that_is_said_to_fit_does(signature: Signature, number: int, names: set[str]) -> None:
    first = next(iter(signature.parameters.values()), None)
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    for takes_context in (False, True) if first is not None and first.kind in by_place else (False,):
        said = Shape.of(signature, takes_context).surely_fits((0,) * number, dict.fromkeys(names))
        does = fits(signature, takes_context, number, names)
        assert does or not said
        takes_any = any(item.kind is Parameter.VAR_KEYWORD for item in signature.parameters.values())
        # Some releases of Python take one by name there where another is missing.
        only_by_place = {item.name for item in signature.parameters.values() if item.kind is Parameter.POSITIONAL_ONLY}
        assert said == does or (takes_any and names) or names & only_by_place


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (take, (), {}, True),
        (take, (1, 2, 3), {"option": 1}, True),
        (take, (1,), {"other": 1}, False),
        (strict, (1, 2), {}, True),
        (strict, (1,), {"second": 2, "third": 3}, True),
        (strict, (1,), {}, False),
        (strict, (1,), {"third": 3}, False),
        (strict, (1, 2), {"second": 2}, False),
        (strict, (), {"first": 1, "second": 2}, False),
        (with_context, (1,), {}, True),
        (with_context, (), {"number": 1}, True),
        (with_context, (1, 2), {}, False),
        (with_context, (), {"context": 1}, False),
    ],
)
def test_jobs_know_the_calls_that_fit_them(function: Any, args: Any, kwargs: Any, said: bool) -> None:
    assert function.job_type.shape.surely_fits(args, kwargs) is said
