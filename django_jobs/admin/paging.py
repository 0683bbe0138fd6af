"""Pages of a list by the key of its order: each is found from the last row of the one before, and none is counted off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.db.models.sql.datastructures import BaseTable
from django.utils import timezone
from django.utils.translation import gettext as _

from django_jobs.admin.strands import Order, Strand, Way
from django_jobs.exceptions import InvalidJob, shown
from django_jobs.queue.sought import ID_LIMIT

# A strand, and in it the values of its order.
Key = tuple[Any, ...]
AFTER, BEFORE, LAST = "after", "before", "last"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page is: after or before a row, which need not be there any more; at the end; or, by default, at the beginning."""

    side: str = AFTER
    key: Key | None = None

    @property
    def is_backward(self) -> bool:
        return self.side in (BEFORE, LAST)

    def written(self) -> str:
        """Return the place as an address has it."""
        if self.key is None:
            return LAST if self.side == LAST else ""
        values = [value.isoformat() if isinstance(value, datetime) else value for value in self.key]
        return f"{self.side}:{json.dumps(values, separators=(',', ':'))}"


@dataclass(slots=True)
class Page:
    """The keys of the jobs of a page, and the places beside it; `None` where there is nothing.

    `found`: how many there are, up to the limit; of a list whose rows have to be read, in those that were looked through.
    `further`: where to look on, when not all were.
    """

    keys: list[Key]
    found: int
    previous: Place | None = None
    next: Place | None = None
    further: Place | None = None
    is_capped: bool = False
    ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = [key[-1] for key in self.keys]


def place_of(text: str, way: Way) -> Place:
    """Return the place that an address names; raise InvalidJob when it is none in this list."""
    if text in ("", LAST):
        return Place(LAST) if text else Place()
    side, _colon, given = text.partition(":")
    try:
        number, *values = json.loads(given)
        strand = way.strands[number] if type(number) is int and number >= 0 else None
        if side not in (AFTER, BEFORE) or strand is None or len(values) != len(strand.order):
            raise ValueError(side)
        kinds = [strand.rows.model._meta.get_field(_column(name)) for name in strand.order]
        return Place(side, (number, *map(_value, kinds, values)))
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError, ValidationError):
        said = _("The place in the list is %(value)s, which is none of this list; begin at its first page.")
        raise InvalidJob(said % {"value": shown(text[:80])}) from None


def _value(kind: Any, given: Any) -> Any:
    value = kind.to_python(given)
    if isinstance(given, bool) or value is None or (isinstance(value, int) and abs(value) >= ID_LIMIT):
        raise ValueError(given)
    if isinstance(value, datetime):
        if not 1 < value.year < 9999 or timezone.is_aware(value) != settings.USE_TZ:
            raise ValueError(given)
        return value
    if isinstance(value, str) and "\x00" in value:
        raise ValueError(given)
    return value


def page_at(way: Way, place: Place, *, size: int, most: int, looked: int) -> Page:
    """Return the page at a place: of `size` jobs, counted to `most`; of rows that have to be read, in the next `looked`."""
    found, end = _keys(way, place, size + 1 if way.rest is None else most, looked)
    if len(found) <= size and end is None:
        if place.side == BEFORE:  # nothing is before it: it is the first page, and a full one
            return page_at(way, Place(), size=size, most=most, looked=looked)
        if place.key is None:
            is_capped = way.is_cut or len(found) >= most
            return Page(found[::-1] if place.is_backward else found, len(found), is_capped=is_capped)
    shown_keys = found[:size]
    beyond = Place(BEFORE if place.is_backward else AFTER, shown_keys[-1]) if len(found) > size else None
    page = Page(shown_keys[::-1] if place.is_backward else shown_keys, len(found))
    page.further = end
    back = _back(place, shown_keys)
    page.previous, page.next = (beyond, back) if place.is_backward else (back, beyond)
    if way.rest is None:
        page.found = sum(_counted(strand, most) for strand in way.strands)
    page.is_capped = way.is_cut or page.found >= most
    return page


def _counted(strand: Strand, most: int) -> int:
    # In their order: of a LIMIT without one PostgreSQL may expect to be filled soon by reading the table.
    return int(strand.rows.order_by(*strand.order)[:most].count())


def _back(place: Place, keys: list[Key]) -> Place | None:
    """Return the way back to where one came from; by the row of the place itself if the page is empty."""
    if place.key is None:
        return None
    opposite = AFTER if place.is_backward else BEFORE
    return Place(opposite, keys[0] if keys else place.key)


def _keys(way: Way, place: Place, most: int, looked: int) -> tuple[list[Key], Place | None]:
    """Return the keys of what is found from a place on, and where to look on if not all rows were looked at."""
    found: list[Key] = []
    for number, order, rows in _ranges(way, place):
        names = [_column(name) for name in order]
        if way.rest is None:
            found += [(number, *values) for values in rows.values_list(*names)[: most - len(found)]]
        else:
            read = way.rest.rows(first_rows(rows, looked)).order_by(*order)
            found += [(number, *values) for values in read.values_list(*names)[: most - len(found)]]
            last = rows.values_list(*names)[looked - 1 : looked].first() if len(found) < most else None
            if last is not None:
                return found, Place(BEFORE if place.is_backward else AFTER, (number, *last))
        if len(found) >= most:
            break
    return found, None


def _ranges(way: Way, place: Place) -> Iterator[tuple[int, Order, QuerySet[Any]]]:
    """Return the rows from a place on, in parts of which each is a range of an index."""
    start = None if place.key is None else place.key[0]
    strands = list(enumerate(way.strands))
    for number, strand in reversed(strands) if place.is_backward else strands:
        order = _reversed(strand.order) if place.is_backward else strand.order
        beyond = [Q()]
        if start is not None and place.key is not None:
            if (number < start) != place.is_backward and number != start:
                continue
            if number == start:
                beyond = list(_beyond(order, place.key[1:]))
                # Rows that are read anyway need no exact range, and a range more is a question more.
                beyond = beyond if way.rest is None else [_as_one(order, place.key[1:], beyond)]
        for range_ in beyond:
            yield number, order, strand.rows.filter(range_).order_by(*order)


def _beyond(order: Order, values: Key) -> Iterator[Q]:
    """Return what is beyond a key: first what is alike but for the last two values, at last what differs in the first."""
    names = [_column(name) for name in order]
    for place in reversed(range(max(1, len(order) - 1))):
        alike = Q(**dict(zip(names[:place], values[:place], strict=True)))
        beyond = Q(**{f"{names[place]}__{_way_on(order[place])}": values[place]})
        if place == len(order) - 2:  # ids differ: these are one range
            alike &= Q(**{f"{names[place]}__{_way_on(order[place])}e": values[place]})
            beyond |= Q(**{f"{names[-1]}__{_way_on(order[-1])}": values[-1]})
        yield alike & beyond


def _as_one(order: Order, values: Key, ranges: list[Q]) -> Q:
    """Return all ranges as one, with the bound that the index begins at."""
    one = Q()
    for range_ in ranges:
        one |= range_
    return one & Q(**{f"{_column(order[0])}__{_way_on(order[0])}e": values[0]})


def _way_on(name: str) -> str:
    return "lt" if name.startswith("-") else "gt"


def _column(name: str) -> str:
    name = name.removeprefix("-")
    return "id" if name == "turn" else name


def _reversed(order: Order) -> Order:
    return tuple(name.removeprefix("-") if name.startswith("-") else f"-{name}" for name in order)


class _First(BaseTable):
    """The first rows of a question, in the place of their table."""

    def __init__(self, table: str, rows: QuerySet[Any]) -> None:
        super().__init__(table, table)
        self.rows = rows

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        sql, params = self.rows.query.get_compiler(connection=connection).as_sql()
        return f"({sql}) {connection.ops.quote_name(self.table_alias)}", params


def first_rows(rows: QuerySet[Any], number: int) -> QuerySet[Any]:
    """Return a question of the first rows of another one, and of no others; they are read in their order."""
    found: QuerySet[Any] = rows.model._default_manager.using(rows.db).all()
    table = rows.model._meta.db_table
    found.query.get_initial_alias()
    found.query.alias_map[table] = _First(table, rows[:number])
    return found
