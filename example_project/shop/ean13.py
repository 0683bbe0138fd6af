"""EAN-13, the bar code of retail: check digit and bars."""

from __future__ import annotations

# Seven modules for a digit left of the middle with odd parity; the other two code sets are derived from it.
_ODD = ("0001101", "0011001", "0010011", "0111101", "0100011", "0110001", "0101111", "0111011", "0110111", "0001011")
_RIGHT = tuple(code.translate(str.maketrans("01", "10")) for code in _ODD)
_EVEN = tuple(code[::-1] for code in _RIGHT)
# The first digit has no bars: it is the choice of parities of the next six.
_PARITIES = ("OOOOOO", "OOEOEE", "OOEEOE", "OOEEEO", "OEOOEE", "OEEOOE", "OEEEOO", "OEOEOE", "OEOEEO", "OEEOEO")
_EDGE, _MIDDLE = "101", "01010"
MODULES = 95


def in_store_number(vendor: str, product: str) -> str:
    """Return the 13 digits for an article, in the range 20 that is left to shops for numbers of their own."""
    return with_check_digit(f"20{int(vendor, 16):05d}{int(product, 16):05d}")


def with_check_digit(digits: str) -> str:
    if len(digits) != 12 or not digits.isascii() or not digits.isdigit():
        raise ValueError(f"an EAN-13 without its check digit has 12 digits, not {digits!r}")
    weighted = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits))
    return digits + str(-weighted % 10)


def bars(number: str) -> str:
    """Return the 95 modules from left to right, "1" for black."""
    if number != with_check_digit(number[:12]):
        raise ValueError(f"{number!r} is not an EAN-13: the check digit does not fit")
    first, left, right = number[0], number[1:7], number[7:]
    parities = _PARITIES[int(first)]
    sets = {"O": _ODD, "E": _EVEN}
    left_bars = "".join(sets[parity][int(digit)] for parity, digit in zip(parities, left, strict=True))
    return _EDGE + left_bars + _MIDDLE + "".join(_RIGHT[int(digit)] for digit in right) + _EDGE
