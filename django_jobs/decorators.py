from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from django_jobs import options, registry
from django_jobs.backoff import Backoff
from django_jobs.calls import Call
from django_jobs.checked import text
from django_jobs.context import Context
from django_jobs.exceptions import InvalidJob, InvalidJobType, shown
from django_jobs.registry import JobType

if TYPE_CHECKING:
    from django_jobs.models import Job

C = ParamSpec("C")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Using(TypedDict, total=False):
    """The options of one enqueue. Durations are seconds or timedelta."""

    queue: str
    priority: int
    run_at: datetime | None
    delay: float | timedelta | None
    expires: datetime | float | timedelta | None
    idempotency_key: str | None
    unique: Literal["window", "unfinished", "waiting"] | None
    max_attempts: int
    timeout: float | timedelta | None
    detached: bool


class JobFunction(Generic[C, P, R_co]):
    """A function that may be called as before, or enqueued to be run by a worker."""

    def __init__(self, job_type: JobType, using: options.Enqueue | None = None) -> None:
        self.job_type = job_type
        self._using = using or options.Enqueue()
        functools.update_wrapper(self, job_type.function)

    @property
    def name(self) -> str:
        return self.job_type.name

    def __call__(self, /, *args: C.args, **kwargs: C.kwargs) -> R_co:
        """Call the function here and now, without a job; an async one gives its coroutine."""
        return self.job_type.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Store a call of this function in the caller's transaction on the jobs' database and return the job.

        Raises InvalidJob or InvalidJobType, before anything is written, when the arguments do not fit the signature
        or are not JSON; IdempotencyConflict and EnqueueTimeout for keys. The transaction stays usable.
        """
        # Enqueueing needs models, and this module is imported while INSTALLED_APPS loads.
        from django_jobs.queue.enqueue import enqueue

        return enqueue(self.job_type, self._using, args, kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Do what `enqueue` does, from async code."""
        from asgiref.sync import sync_to_async

        return await sync_to_async(self.enqueue)(*args, **kwargs)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """Return a call of this function with its options, for `enqueue_many`. It is checked when it is enqueued."""
        return Call(job_type=self.job_type, using=self._using, args=args, kwargs=kwargs)

    def enqueue_many(self, calls: Iterable[Call[P]], /) -> list[int]:
        """Store many calls of this function, all or none, and return their jobs' ids in the order of the calls.

        `calls` may be any iterable. It is read inside the transaction, or savepoint, in which the jobs are stored, and
        in parts: memory holds about a thousand calls, the ids, and all calls that have an idempotency key. Options on
        this function are those of the calls that do not have them. Of calls with one key the first is stored, and all
        get its id.

        Raises what `enqueue` raises, with the place of the call, as in `calls[3]: ...`. The transaction stays usable.
        """
        from django_jobs.queue.enqueue_many import enqueue_many  # as above

        return enqueue_many(self.job_type, self._using, calls)

    async def aenqueue_many(self, calls: Iterable[Call[P]], /) -> list[int]:
        """Do what `enqueue_many` does, from async code; `calls` is read on a thread that may use the database."""
        from asgiref.sync import sync_to_async

        return await sync_to_async(self.enqueue_many)(calls)

    def using(self, **changes: Unpack[Using]) -> JobFunction[C, P, R_co]:
        """Return a copy whose enqueues use these options.

        `delay` counts from the database's clock at the enqueue; `run_at` is an aware datetime. After `expires`, a
        datetime or a duration from the enqueue, no run of the job starts: it is cancelled instead. `unique` says how
        long `idempotency_key` holds: "window" (default) until the row is deleted, as by `jobs purge`, "unfinished" until
        the job has ended, "waiting" until it is claimed. `detached` allows an enqueue while a transaction is open on another
        database and none on the jobs' database. Raises InvalidJob or InvalidJobType when an option is unknown or its
        value cannot be used; what does not go together is found by the enqueue.
        """
        changed: JobFunction[C, P, R_co] = JobFunction.__new__(type(self))  # at a tenth of the cost of making one
        changed.__dict__.update(self.__dict__, _using=self._using.changed(dict(changes)))
        return changed


class Options(TypedDict, total=False):
    """The options of `@job`. Durations are seconds or timedelta; `timeout=None` means no deadline."""

    name: str | None
    queue: str
    priority: int
    max_attempts: int | None
    backoff: Backoff | None
    retry_on: Iterable[type[BaseException]] | None
    fail_on: Iterable[type[BaseException]]
    timeout: float | timedelta | None
    durable: bool
    atomic: bool
    other_databases: bool
    tags: Iterable[str]


@overload
def job(function: Callable[P, R], /) -> JobFunction[P, P, R]: ...
@overload
def job(
    *, takes_context: Literal[True], **given: Unpack[Options]
) -> Callable[[Callable[Concatenate[Context, P], R]], JobFunction[Concatenate[Context, P], P, R]]: ...
@overload
def job(
    *, takes_context: Literal[False] = False, **given: Unpack[Options]
) -> Callable[[Callable[P, R]], JobFunction[P, P, R]]: ...
def job(function: Callable[..., Any] | None = None, /, *, takes_context: bool = False, **given: Any) -> Any:
    """Make a module-level function, `def` or `async def`, a job type, named `module.function` unless `name` is given.

    Use it bare or with options. `durable` has each run's end written at once rather than in a batch within some 20 ms;
    `tags` are kept with every job of the type. With `atomic` the function and the end of its job share one transaction on
    the jobs' database: what it writes there takes effect exactly once, and a write to another database raises AtomicBroken
    unless `other_databases` is given. Raises InvalidJob or InvalidJobType when the function or an option cannot be used.
    A second function under one name is reported by `manage.py check`.
    """
    if not isinstance(takes_context, bool):
        raise InvalidJobType(f"@job(takes_context={shown(takes_context)}): give True or False.")
    if function is not None and given:
        raise InvalidJobType("@job takes its options by keyword: @job(queue='mail').")
    settings = options.Define.read(given)

    def decorate(target: Callable[..., Any]) -> JobFunction[..., ..., Any]:
        job_type = _job_type(target, settings, takes_context)
        registry.register(job_type)
        return JobFunction(job_type)

    return decorate if function is None else decorate(function)


def _job_type(function: Callable[..., Any], given: options.Define, takes_context: bool) -> JobType:
    _refuse_unusable(function)
    _refuse_atomic(function, given)
    return JobType(
        name=given.name or text(f"{function.__module__}.{function.__qualname__}", "name"),
        function=function,
        signature=_signature(function, takes_context),
        takes_context=takes_context,
        queue=given.queue,
        priority=given.priority,
        max_attempts=given.max_attempts,
        backoff=given.backoff,
        timeout=given.timeout,
        default_timeout=given.default_timeout,
        retry_on=given.retry_on,
        fail_on=given.fail_on,
        durable=given.durable,
        atomic=given.atomic,
        other_databases=given.other_databases,
        tags=given.tags,
    )


def _refuse_unusable(function: object) -> None:
    if isinstance(function, JobFunction):
        raise InvalidJobType(f"{function!r} is a job already; use @job once.")
    if not inspect.isfunction(function):
        raise InvalidJobType(f"@job takes a function, and {shown(function)} is none.")
    name = f"{function.__module__}.{function.__qualname__}"
    if function.__name__ == "<lambda>":
        raise InvalidJobType(f"@job cannot take the lambda {name}; give it a name with def.")
    if "<locals>" in function.__qualname__:
        raise InvalidJobType(f"@job cannot take {name}, defined inside a function; move it to the module.")
    if function.__qualname__ != function.__name__:
        raise InvalidJobType(f"@job cannot take the method {name}; use a function of the module.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidJobType(f"@job cannot take the generator function {name}; return a list instead of yielding.")


def _refuse_atomic(function: Callable[..., Any], given: options.Define) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    if given.atomic and inspect.iscoroutinefunction(function):
        raise InvalidJobType(
            f"@job(atomic=True) cannot take {name}, an async function: what it does with the database is done by another "
            "thread, outside the job's transaction. Make it a plain function."
        )
    if given.other_databases and not given.atomic:
        raise InvalidJob("@job(other_databases=True) says what an atomic job may write to; give atomic=True as well.")


def _signature(function: Callable[..., Any], takes_context: bool) -> inspect.Signature:
    signature = inspect.signature(function)
    if takes_context:
        first = next(iter(signature.parameters.values()), None)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if first is None or first.kind not in positional:
            raise InvalidJob(
                f"@job(takes_context=True) calls {function.__qualname__} with the context as its first positional "
                "argument; add it: def f(context, ...)."
            )
    return signature
