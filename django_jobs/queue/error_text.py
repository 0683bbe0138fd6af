"""How the last errors of jobs are looked through and told apart, by functions that both databases have."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, Func, TextField
from django.db.models.functions import Right

from django_jobs.engines.causes import CAME_FROM

# The end of an error in which its last line is looked for.
END_READ = 500
# The end of an error that a list reads for each job.
END_SHOWN = 300
# On SQLite runs of digits become one `#` by steps of which each halves what is left of a run.
HALVINGS = 7


class HasText(Func):
    """Whether a text contains another, in any case: of ASCII, and of other letters if the database's locale knows them."""

    output_field = BooleanField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # The rules of a language take ten times as long, and say the same of a text in ASCII.
        collation = ' COLLATE "C"' if str(self.source_expressions[1].value).isascii() else ""  # type: ignore[attr-defined]
        template = f"strpos(upper(%(expressions)s{collation})) > 0"
        return self.as_sql(compiler, connection, template=template, arg_joiner=f"{collation}), upper(", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "instr(upper(%(expressions)s)) > 0"
        return self.as_sql(compiler, connection, template=template, arg_joiner="), upper(", **extra)


class Raised(Func):
    """Of the errors of a chain the one that the handler raised, which stands before those that it came from."""

    output_field = TextField()
    arity = 1

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template=f"split_part(%(expressions)s, '{CAME_FROM}', 1)", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        length = f"instr(%(expressions)s || '{CAME_FROM}', '{CAME_FROM}') - 1"
        return self.as_sql(compiler, connection, template=f"substr(%(expressions)s, 1, {length})", **extra)


def error_end() -> Right:
    """Return the end of what a job's handler raised, for a list that shows its last line."""
    return Right(Raised("last_error"), END_SHOWN)


class FoldedLine(Func):
    """The last line of what was raised, each number in it as `#`: so that errors which differ in a number are the same."""

    output_field = TextField()

    def __init__(self, error: str) -> None:
        super().__init__(Raised(error))

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        line = f"split_part(rtrim(right(%(expressions)s, {END_READ}), E' \\n\\r\\t'), E'\\n', -1)"
        # `translate` takes four times as long, and to cut the whole text by an expression thirty times.
        folded = f"regexp_replace(btrim({line}, E' \\r\\t'), '[0-9]+', '#', 'g')"
        return self.as_sql(compiler, connection, template=folded, **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        blank = "' ' || char(10) || char(13) || char(9)"
        end = f"rtrim(substr(%(expressions)s, -{END_READ}), {blank})"
        line = f"trim(substr({end}, length(rtrim({end}, replace({end}, char(10), ''))) + 1), {blank})"
        for digit in range(10):
            line = f"replace({line}, '{digit}', '#')"
        for _ in range(HALVINGS):
            line = f"replace({line}, '##', '#')"
        return self.as_sql(compiler, connection, template=line, **extra)
