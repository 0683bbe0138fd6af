"""What an atomic run may not send: statements that would end its transaction, and writes that are not in it.

Known by their first words. What goes past Django, by the driver's own connection, is found when the run has returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DatabaseError, connections

from django_jobs.exceptions import AtomicBroken
from django_jobs.receivers.guard import calling

# Possessive: what is no comment to the end is not tried again from its middle, which takes for ever with many of them.
_COMMENTS = r"(?:\s|--[^\n]*+(?:\n|$)|/\*(?:[^*]|\*(?!/))*+\*/|\(|;)*+"
_FIRST = re.compile(rf"{_COMMENTS}(\w+)")
_ENDS = re.compile(
    rf"{_COMMENTS}(?:BEGIN|COMMIT|END|ABORT|START\s+TRANSACTION|PREPARE\s+TRANSACTION|"
    r"ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO\b))\b",
    re.IGNORECASE,
)
# Texts, names and comments, in which words mean nothing.
_QUIET = re.compile(
    r"'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|\$(\w*)\$.*?\$\1\$|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/", re.DOTALL
)
_WRITES = re.compile(r"\b(?:INSERT|DELETE|MERGE|TRUNCATE|UPDATE)\b", re.IGNORECASE)
_LOCKS = re.compile(r"\bFOR\s+(?:NO\s+KEY\s+)?UPDATE\b", re.IGNORECASE)
_INTO = re.compile(r"\bINTO\b", re.IGNORECASE)
_SECOND = re.compile(r";\s*\S")
# fmt: off
_READS = frozenset((
    "SELECT", "VALUES", "TABLE", "SHOW", "SET", "RESET", "PRAGMA", "DECLARE", "FETCH", "MOVE", "CLOSE", "DISCARD",
    "LISTEN", "UNLISTEN", "BEGIN", "START", "COMMIT", "END", "ABORT", "ROLLBACK", "SAVEPOINT", "RELEASE",
))
# fmt: on
Wrapper = Callable[..., Any]


def text(sql: Any) -> str:
    """Return a statement as text: it may be one of psycopg's composed ones."""
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    return sql if isinstance(sql, str) else str(sql.as_string(None))


def ends_transaction(sql: str) -> bool:
    if _ENDS.match(sql):
        return True
    # Only of a trigger's or a function's body: these are one statement.
    if ";" not in sql or _first(sql) == "CREATE":
        return False
    return any(_ENDS.match(part) for part in _QUIET.sub(" ", sql).split(";"))


def _first(sql: str) -> str:
    found = _FIRST.match(sql)
    return found[1].upper() if found else ""


def may_write(sql: str) -> bool:
    word = _first(sql)
    rest = _LOCKS.sub("", _QUIET.sub(" ", sql))
    if word in ("SELECT", "WITH") and _INTO.search(rest):
        return True
    if word == "PRAGMA" and "=" in rest:
        return True
    if word in _READS and not _SECOND.search(rest):
        return False
    return word not in {*_READS, "WITH", "EXPLAIN"} or _WRITES.search(rest) is not None


@contextmanager
def refusing(
    alias: str,
    broken: Callable[[AtomicBroken], None],
    failed: Callable[[DatabaseError], None],
    other_databases: bool,
) -> Iterator[None]:
    """Refuse, in this thread, what an atomic run on a database may not send, also to the others; tell `broken` why.

    `failed` is told of errors of the database itself.
    """

    def own(execute: Wrapper, sql: Any, *rest: Any) -> Any:
        if ends_transaction(text(sql)):
            return refuse(
                f"The function of an atomic job may not send {_said(sql)}: the transaction is ended when it has "
                "returned. Use `with transaction.atomic()` for parts of it."
            )
        try:
            return execute(sql, *rest)
        except DatabaseError as error:
            failed(error)
            raise

    def others(execute: Wrapper, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if may_write(text(sql)):
            other = context["connection"].alias
            return refuse(
                f"An atomic job wrote to the database {other!r}, but its transaction is on {alias!r}: what it writes "
                f"elsewhere is not undone with it ({_said(sql)}). Do it in a follow-up job, or say that it may be "
                "repeated: @job(atomic=True, other_databases=True)."
            )
        return execute(sql, params, many, context)

    def refuse(why: str) -> None:
        error = AtomicBroken(why)
        if not calling():  # what is refused a receiver is no fault of the run's
            broken(error)  # the function may catch it
        raise error

    with ExitStack() as stack:
        for name in connections:
            if name == alias:
                stack.enter_context(connections[name].execute_wrapper(own))
            elif not other_databases:
                stack.enter_context(connections[name].execute_wrapper(others))
        yield


def _said(sql: Any) -> str:
    words = " ".join(text(sql).split())
    return words if len(words) <= 60 else f"{words[:57]}..."
