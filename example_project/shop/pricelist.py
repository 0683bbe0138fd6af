"""Reads a supplier's price list: CSV with the columns `article` (like 046d:c52b) and `price_eur` (like 12.90)."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ARTICLE = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})")
_PRICE = re.compile(r"\d{1,6}\.\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    vendor: str
    product: str
    cents: int


def read_prices(path: Path) -> Iterator[Price]:
    """Yield the rows. Raises ValueError that names file, line and value for a row that cannot be read."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            article = _ARTICLE.fullmatch(row.get("article") or "")
            price = _PRICE.fullmatch(row.get("price_eur") or "")
            if article is None or price is None:
                raise ValueError(f"{path.name}, line {rows.line_num}: cannot read {row}")
            yield Price(vendor=article[1], product=article[2], cents=int(Decimal(price[0]) * 100))
