"""From the arguments of a call to the JSON that is stored of them.

What is plainly right is let through by quick looks. They say nothing of what they do not know: that is looked at piece by
piece, which finds the words for what is wrong, or that nothing is.
"""

from __future__ import annotations

from typing import Any

from django_jobs import payload
from django_jobs.exceptions import InvalidJob, InvalidJobType
from django_jobs.registry import JobType


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
        f"The arguments of {job_type.name} are {size} bytes of JSON; MAX_PAYLOAD_BYTES allows {limit:,}. "
        "Store the data elsewhere and pass where."
    )


def _check_arguments(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> None:
    bound = _bound(job_type, args, kwargs)
    parameters = job_type.signature.parameters
    check = payload.Check(limit)
    try:
        for name, value in bound:
            kind = parameters[name].kind
            if kind is kind.VAR_POSITIONAL:
                for index, item in enumerate(value):
                    check(item, f"{job_type.name}: argument *{name}[{index}]")
            elif kind is kind.VAR_KEYWORD:
                for key, item in value.items():
                    check(key, f"{job_type.name}: the name of an argument")
                    check(item, f"{job_type.name}: argument {key!r}")
            else:
                check(value, f"{job_type.name}: argument {name!r}")
    except payload.TooLarge:
        raise _too_large(job_type, f"over {limit:,}", limit) from None


def _bound(job_type: JobType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    # A stand-in for the context: a **kwargs must not take its name, which would fail at the call only.
    context = [None] if job_type.takes_context else []
    try:
        bound = job_type.signature.bind(*context, *args, **kwargs)
    except TypeError as error:
        raise InvalidJobType(
            f"The arguments do not fit {job_type.name}{job_type.signature}: {error}. Nothing was enqueued."
        ) from None
    return list(bound.arguments.items())[len(context) :]
