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

from django_jobs.admin.strands import Order, Way
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
    except (ValueError, TypeError, IndexError, RecursionError, ValidationError):
        said = _("The place in the list is %(value)s, which is none of this list; begin at its first page.")
        raise InvalidJob(said % {"value": shown(text[:80])}) from None


def _value(kind: Any, given: Any) -> Any:
    value = kind.to_python(given)
    if isinstance(value, bool) or value is None or (isinstance(value, int) and abs(value) >= ID_LIMIT):
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
    if place.is_backward and len(found) <= size and end is None:
        # Nothing is before it: it is the first page, and a full one.
        return page_at(way, Place(), size=size, most=most, looked=looked)
    shown_keys = found[:size]
    beyond = Place(BEFORE if place.is_backward else AFTER, shown_keys[-1]) if len(found) > size else None
    page = Page(shown_keys[::-1] if place.is_backward else shown_keys, len(found))
    page.further = end
    back = _back(place, shown_keys)
    page.previous, page.next = (beyond, back) if place.is_backward else (back, beyond)
    if way.rest is None:
        page.found = sum(strand.rows.order_by()[:most].count() for strand in way.strands)
    page.is_capped = page.found >= most
    return page


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
        if looked <= 0 or len(found) >= most:
            break
        names = [_column(name) for name in order]
        left = most - len(found)
        if way.rest is None:
            found += [(number, *values) for values in rows.values_list(*names)[:left]]
            continue
        found += [
            (number, *values)
            for values in way.rest.rows(first_rows(rows, looked)).order_by(*order).values_list(*names)[:left]
        ]
        if len(found) < most:
            last = rows.values_list(*names)[looked - 1 : looked].first()
            if last is not None:
                return found, Place(BEFORE if place.is_backward else AFTER, (number, *last))
            looked -= rows.order_by()[:looked].count()
    return found, None


def _ranges(way: Way, place: Place) -> Iterator[tuple[int, Order, QuerySet[Any]]]:
    """Return the rows from a place on, in parts of which each is a range of an index."""
    strands = list(enumerate(way.strands))
    start = place.key[0] if place.key is not None else None
    for number, strand in reversed(strands) if place.is_backward else strands:
        order = _reversed(strand.order) if place.is_backward else strand.order
        if start is not None and number == start and place.key is not None:
            for beyond in _beyond(order, place.key[1:]):
                yield number, order, strand.rows.filter(beyond).order_by(*order)
        elif start is None or (number > start) != place.is_backward:
            yield number, order, strand.rows.order_by(*order)


def _beyond(order: Order, values: Key) -> Iterator[Q]:
    """Return what is beyond a key: first what is alike but for the last value, at last what differs in the first."""
    names = [_column(name) for name in order]
    for place in reversed(range(len(order))):
        alike = dict(zip(names[:place], values[:place], strict=True))
        beyond = f"{names[place]}__{'lt' if order[place].startswith('-') else 'gt'}"
        yield Q(**alike, **{beyond: values[place]})


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
        return f"({sql}) {compiler.quote_name_unless_alias(self.table_alias)}", params


def first_rows(rows: QuerySet[Any], number: int) -> QuerySet[Any]:
    """Return a question of the first rows of another one, and of no others; they are read in their order."""
    found = rows.model._default_manager.using(rows.db).all()
    table = rows.model._meta.db_table
    found.query.get_initial_alias()
    found.query.alias_map[table] = _First(table, rows[:number])
    return found
