"""Effects that take place once although a job may run again: in the database by `once`, outside of it by `outside`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from django_jobs import checked, payload
from django_jobs.conf import conf
from django_jobs.context import current
from django_jobs.exceptions import InvalidJob, JobsError, shown

if TYPE_CHECKING:
    from django_jobs.engines.effects import EffectStore

# A key may be deleted for its age between two statements; then it is tried again.
TRIES = 3
_OVER = "the `with` block is over: set it inside"


class _Result:
    """A result that whoever had the effect sets, and that everybody reads as it is stored."""

    __slots__ = ("_closed", "_key", "_result")  # a name that is misspelt must not pass for a result

    def __init__(self, key: str) -> None:
        self._key = key
        self._result: str | None = None
        self._closed = ""

    @property
    def key(self) -> str:
        """What the effect was named."""
        return self._key

    @property
    def result(self) -> Any:
        """What was set, or what an earlier run has stored; None if neither did. Every read gives a copy."""
        return None if self._result is None else json.loads(self._result)

    @result.setter
    def result(self, value: Any) -> None:
        if self._closed:
            raise InvalidJob(f"The result of {self.key!r} was set to {shown(value)}, and {self._closed}.")
        self._result = payload.dump_result(value, conf().max_result_bytes)

    def _read(self, value: Any, closed: str) -> None:
        self._result, self._closed = payload.dump(value), closed


class Once(_Result):
    """What `with once(key) as first` gives: true for the one run that is to have the effect, false for its replays."""

    __slots__ = ("_first",)

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._first = True

    def __bool__(self) -> bool:
        return self._first

    def __repr__(self) -> str:
        return f"<once {self.key!r}: {'first' if self._first else 'took place before'}>"


class OnceBlock:
    """The context manager that `once` makes."""

    def __init__(self, first: Once) -> None:
        self._first = first
        self._block: AbstractContextManager[Once] | None = None

    def __bool__(self) -> bool:
        raise InvalidJob(_unused("once", self._first.key, "first", "first"))

    def __enter__(self) -> Once:
        self._block = _have_once(self._first)
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._block is not None
        self._block.__exit__(kind, error, traceback)


def once(key: str) -> OnceBlock:
    """Have an effect in the jobs' database once for a key: `with once(key) as first: if first: ...`

    The body is a savepoint of the caller's transaction. The key and what the body writes commit together, or neither
    does; a body that raises frees the key. `first` is true for who is first. `first.result = ...` (JSON, at most
    MAX_RESULT_BYTES) is stored with the key, and `first.result` is what a replay reads. A key is text of 1 to 255
    characters, and is kept for EFFECT_WINDOW after the effect took place.

    While another transaction has the key this waits for its end, at most ENQUEUE_TIMEOUT, then raises EffectTimeout; the
    caller's transaction stays usable. Raises InvalidJob or InvalidJobType for a key that cannot be used, and InvalidJob
    outside of a transaction on the jobs' database, where the key would be stored whatever becomes of the effect.
    """
    return OnceBlock(Once(checked.text(key, "key")))


@contextmanager
def _have_once(first: Once) -> Iterator[Once]:
    store = _store()
    if not store.in_atomic:
        raise InvalidJob(
            f"once({first.key!r}) was used outside of a transaction on the jobs' database {store.alias!r}: the key would be "
            f"stored at once, whatever becomes of the effect. Write `with transaction.atomic(using={store.alias!r}):` "
            "around it and around what it guards."
        )
    with store.savepoint():
        _take(store, first)
        yield first
        if first and first._result is not None:
            store.keep(first.key, first._result)
    first._closed = first._closed or _OVER


def _take(store: EffectStore, first: Once) -> None:
    for _ in range(TRIES):
        if store.take(first.key, _job_id()):
            return
        # A statement of its own: the first one saw the table as it was before it waited.
        before = store.taken(first.key)
        if before is not None:
            first._first = False
            first._read(before.result, "the effect took place before: set it only `if first`")
            return
    raise _taken_and_freed(first.key)


class OutsideCall(_Result):
    """What `with outside(key) as call` gives.

    `key` is what to give the other side: the same in every run. `answered` tells that an earlier run got an answer,
    which is `result`: then do not ask again. `may_have_happened` tells that an earlier run asked, and that no answer
    was seen.
    """

    __slots__ = ("_answered", "_may_have_happened")

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._answered = self._may_have_happened = False

    @property
    def answered(self) -> bool:
        """Whether an earlier run got an answer."""
        return self._answered

    @property
    def may_have_happened(self) -> bool:
        """Whether an earlier run asked, and no answer was seen."""
        return self._may_have_happened

    def __repr__(self) -> str:
        state = "answered" if self.answered else "may have happened" if self.may_have_happened else "new"
        return f"<outside {self.key!r}: {state}>"


class Outside:
    """The context manager that `outside` makes, for `with` and for `async with`."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._job_id = _job_id()
        self._call: OutsideCall

    def __bool__(self) -> bool:
        raise InvalidJob(_unused("outside", self._key, "call", "not call.answered"))

    def __enter__(self) -> OutsideCall:
        from django_jobs.queue.new_job import refuse_event_loop  # needs models, as in _store

        refuse_event_loop("outside", "async with outside(...) as call")
        store = _store()
        if store.in_transaction:
            raise InvalidJob(
                f"outside({self._key!r}) was used inside a transaction on the jobs' database {store.alias!r}, as that of an "
                "atomic job: what is asked must be committed before the call, and a transaction must not stay open during "
                "it. Use it in an ordinary job, before or after a transaction; or enqueue in the transaction a job that "
                "makes the call."
            )
        self._call = OutsideCall(self._key)
        with store.working_connection():
            self._ask(store)
        return self._call

    def _ask(self, store: EffectStore) -> None:
        call = self._call
        for _ in range(TRIES):
            asks = store.ask(call.key, self._job_id)
            if asks is not None:
                call._may_have_happened = asks > 1
                return
            before = store.answered(call.key)
            if before is not None:
                call._answered = True
                call._read(before.result, "it was answered before: ask only `if not call.answered`")
                return
        raise _taken_and_freed(call.key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        call = self._call
        if error is None and not call.answered:
            store = _store()
            with store.working_connection():
                store.answer(call.key, self._job_id, call._result)
        call._closed = call._closed or _OVER

    async def __aenter__(self) -> OutsideCall:
        return await sync_to_async(self.__enter__)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await sync_to_async(self.__exit__)(None, None, None)


def outside(key: str) -> Outside:
    """Record an effect outside of the database: `with outside(key) as call: if not call.answered: ...`

    Before the body "asked" is committed; after it "answered", with `call.result` if that was set (JSON, at most
    MAX_RESULT_BYTES). A body that raises, or a process that dies in it, leaves "asked": the next run sees
    `call.may_have_happened`, and so does the admin. Give the other side `call.key`, if it takes keys. A key is text of 1
    to 255 characters, and is kept for EFFECT_WINDOW after it was asked for last. In async code: `async with`.

    Raises InvalidJob or InvalidJobType for a key that cannot be used, and InvalidJob inside a transaction on the jobs'
    database, as in an atomic job: "asked" would not be committed before the call; and by `with` in async code.
    """
    return Outside(checked.text(key, "key"))


def _unused(name: str, key: str, target: str, question: str) -> str:
    return (
        f"{name}({key!r}) by itself tells nothing: write `with {name}({key!r}) as {target}:` and inside it "
        f"`if {question}:`."
    )


def _store() -> EffectStore:
    from django_jobs.engines.effects import EffectStore  # needs models; this module is loaded with INSTALLED_APPS

    return EffectStore()


def _job_id() -> int | None:
    context = current.get()
    return None if context is None else context.job_id


def _taken_and_freed(key: str) -> JobsError:
    return JobsError(f"The key {key!r} was taken and freed {TRIES} times in a row; try again.")
