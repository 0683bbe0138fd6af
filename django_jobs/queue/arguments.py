"""From the arguments of a call to the JSON that is stored of them.

What is plainly right is let through by quick looks. They say nothing of what they do not know: that is looked at piece by
piece, which finds the words for what is wrong, or that nothing is.
"""

from __future__ import annotations

from typing import Any

from django_jobs import payload
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.registry import JobType
from django_jobs.texts import text as _


def payload_of(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
    """Return what is stored, at most `limit` bytes, or raise InvalidJob or InvalidJobType."""
    found = plain_payload(job_type, args, kwargs, limit)
    return _looked_at(job_type, args, kwargs, limit) if found is None else found


def plain_payload(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str | None:
    """Return the same, or None for what has to be looked at; no code but ours runs."""
    return payload.plain(list(args), kwargs, limit) if job_type.shape.surely_fits(args, kwargs) else None


def _looked_at(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
    _check_arguments(job_type, args, kwargs, limit)
    text = payload.dump({"args": list(args), "kwargs": kwargs})
    size = len(text.encode())
    if size > limit:
        raise _too_large(job_type, f"{size:,}", limit)
    return text


def _too_large(job_type: JobType, size: str, limit: int) -> InvalidJob:
    return InvalidJob(
        _(
            "The arguments of %(type)s are %(size)s bytes of JSON; MAX_PAYLOAD_BYTES allows %(limit)s. Store the data "
            "elsewhere and pass where.",
            type=job_type.name,
            size=size,
            limit=f"{limit:,}",
        )
    )


def _check_arguments(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> None:
    bound, of = _bound(job_type, args, kwargs), job_type.name
    parameters = job_type.signature.parameters
    check = payload.Check(limit)
    try:
        for name, value in bound:
            kind = parameters[name].kind
            if kind is kind.VAR_POSITIONAL:
                for index, item in enumerate(value):
                    check(item, _("%(type)s: argument *%(name)s[%(place)d]", type=of, name=name, place=index))
            elif kind is kind.VAR_KEYWORD:
                for key, item in value.items():
                    check(key, _("%s: the name of an argument", of))
                    check(item, _("%(type)s: argument %(name)r", type=of, name=key))
            else:
                check(value, _("%(type)s: argument %(name)r", type=of, name=name))
    except payload.TooLarge:
        raise _too_large(job_type, _("over %s", f"{limit:,}"), limit) from None


def _bound(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    # A stand-in for the context: a **kwargs must not take its name, which would fail at the call only.
    context = [None] if job_type.takes_context else []
    try:
        bound = job_type.signature.bind(*context, *args, **kwargs)
    except TypeError as error:
        words = {"call": f"{job_type.name}{job_type.signature}", "problem": str(error)}
        fault = _("The arguments do not fit %(call)s: %(problem)s.", **words)
        refused = InvalidJobType(_("%s Nothing was enqueued.", fault))
        refused.fault = fault
        raise refused from None
    return list(bound.arguments.items())[len(context) :]
