"""Which arguments a function takes, so that most calls can be told to fit it at a glance."""

from __future__ import annotations

import math
from inspect import Parameter, Signature
from typing import NamedTuple

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Shape(NamedTuple):
    """The names of the parameters, in order, that take an argument by its place, those that take one by name, and those that
    must be given one; and how many arguments alone, given by place, fit: `least` to `most`."""

    by_place: tuple[str, ...]
    by_name: frozenset[str]
    required: frozenset[str]
    least: float
    most: float

    @classmethod
    def of(cls, signature: Signature, takes_context: bool) -> Shape:
        """Return what is left for a caller to give: the context is none of it."""
        parameters = list(signature.parameters.values())[takes_context:]
        by_place = tuple(item.name for item in parameters if item.kind in _BY_PLACE)
        by_name = frozenset(item.name for item in parameters if item.kind in _BY_NAME)
        takes = by_name.union(by_place)
        required = frozenset(item.name for item in parameters if item.default is item.empty and item.name in takes)
        any_number = any(item.kind is Parameter.VAR_POSITIONAL for item in parameters)
        return cls(
            by_place=by_place,
            by_name=by_name,
            required=required,
            # Those with defaults come last.
            least=len(required) if required.issubset(by_place) else math.inf,
            most=math.inf if any_number else len(by_place),
        )

    def surely_fits(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Tell whether `Signature.bind` takes these. Of what `**kwargs` take it does not know, and says no."""
        number = len(args)
        if not kwargs:
            return self.least <= number <= self.most
        placed, named = self.by_place[:number], kwargs.keys()
        return (
            number <= self.most
            and named <= self.by_name
            and named.isdisjoint(placed)
            and self.required.difference(placed) <= named
        )
