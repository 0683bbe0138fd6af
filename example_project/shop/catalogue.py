"""Reads the USB ID repository: the vendors, and below each its products."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).resolve().parent / "data"
USB_IDS = DATA / "usb.ids"

_VENDOR = re.compile(r"([0-9a-f]{4})\s+(.+)")
_PRODUCT = re.compile(r"\t([0-9a-f]{4})\s+(.+)")
# After the vendors the file goes on with lists of other things, each line led by letters: "C 00  (Defined ...".
_OTHER_LIST = re.compile(r"[A-Z]+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorEntry:
    code: str
    name: str
    products: list[tuple[str, str]] = field(default_factory=list)


def read_vendors(path: Path = USB_IDS) -> Iterator[VendorEntry]:
    """Yield the vendors in the order of the file, each with its (code, name) pairs."""
    vendor: VendorEntry | None = None
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.startswith("#") or not line.strip():
                continue
            if _OTHER_LIST.match(line):
                break
            if found := _VENDOR.fullmatch(line.rstrip()):
                if vendor is not None:
                    yield vendor
                vendor = VendorEntry(code=found[1], name=found[2])
            elif vendor is not None and (found := _PRODUCT.fullmatch(line.rstrip())):
                vendor.products.append((found[1], found[2]))
            elif not line.startswith("\t\t"):
                raise ValueError(f"{path.name}, line {number}: neither a vendor nor a product: {line.rstrip()!r}")
    if vendor is not None:
        yield vendor


def read_part(part: int, parts: int, path: Path = USB_IDS) -> list[VendorEntry]:
    """Return every `parts`-th vendor, from number `part` (counted from 0) on."""
    if not 0 <= part < parts:
        raise ValueError(f"part is {part}, but must be from 0 to {parts - 1}")
    return list(read_vendors(path))[part::parts]
