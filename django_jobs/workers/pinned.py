"""Ending a call in another thread by an exception that can hit nothing but this call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from django_jobs.exceptions import DeadlinePassed

_set_async_exception = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
_NOTHING = ctypes.py_object()
_NOT_RETURNED = object()


class PinnedCall:
    """One call, and the thread that makes it. The exception is raised in it once at most.

    Python delivers such an exception between any two steps of that thread, sooner or later. So the thread takes the lock
    before it leaves the call, and withdraws what was not delivered: after that nothing can come. What is delivered on
    the way there is caught, and since it comes once only, the second try to leave is not interrupted.
    """

    __slots__ = ("_inside", "_raised", "_thread", "error", "lock", "value")

    def __init__(self) -> None:
        # Reentrant: the exception may come when the lock was taken and before that is known, and it is taken again.
        self.lock = threading.RLock()
        self._thread = threading.get_ident()
        self._inside = False
        self._raised = False
        self.value: Any = _NOT_RETURNED
        self.error: BaseException | None = None

    def make(self, function: Callable[[], Any]) -> None:
        """Call the function in this thread, and keep as `value` or `error` how it ended; again, if not interrupted."""
        self.value, self.error = _NOT_RETURNED, None
        try:
            try:
                self._inside = True
                self.value = function()
            except BaseException as error:
                self.error = error
            self._leave()
        except DeadlinePassed as late:
            self._leave()
            if self.value is _NOT_RETURNED and self.error is None:
                # It came when the call had ended by another error that was not kept yet.
                self.error = late.__context__ or late

    def _leave(self) -> None:
        with self.lock:
            self._inside = False
            if self._raised:
                _set_async_exception(self._thread, _NOTHING)

    @property
    def inside(self) -> bool:
        """Whether the call is being made; it stays so for as long as the lock is held."""
        return self._inside

    def interrupt(self) -> None:
        """Raise DeadlinePassed in the call, from another thread that holds the lock. It works once.

        Where it comes is left to Python: also between taking a lock and the `try` that lets go of it, as in `logging`. To
        look at the frames of the thread first, in order to spare such places, crashes Python 3.11.
        """
        if self._inside and not self._raised:
            self._raised = True
            _set_async_exception(self._thread, ctypes.py_object(DeadlinePassed))
