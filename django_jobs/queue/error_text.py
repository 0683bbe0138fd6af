"""How the last errors of jobs are looked through and told apart, by functions that both databases have."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, Func, TextField

# The end of an error in which its last line is looked for.
END_READ = 500
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


class FoldedLine(Func):
    """The last line of an error, each number in it as `#`: so that errors which differ in a number are the same."""

    output_field = TextField()
    arity = 1

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
