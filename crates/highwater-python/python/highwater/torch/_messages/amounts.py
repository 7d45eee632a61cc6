"""Amounts of memory as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from .arguments import is_number

# In any case of letters. As for the program's `--memory`, letters alone are binary, as in most tools.
UNITS = {"": 1, "b": 1} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("kmgt", 1)
    for end, base in (("", 1024), ("i", 1024), ("ib", 1024), ("b", 1000))
}

AMOUNT = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)

HOW = 'Write bytes as a number, or text with a unit: KiB, MiB, GiB, TiB (powers of 1024; also K, M, G, T), or KB, MB, GB, TB (of 1000), as in "8GiB"'

# No machine has as much.
MOST = 1 << 61


def parse(memory: int | float | str, name: str = "memory") -> int:
    """Bytes of an amount: a number, or text such as "8GiB" or "8G" (8 * 1024^3 bytes), "8GB" (8 * 1000^3) or "8e9".
    `name`: the argument's, for errors."""
    match = AMOUNT.fullmatch(memory) if isinstance(memory, str) else None
    if not (match or is_number(memory)):
        kind = ValueError if isinstance(memory, str) else TypeError
        raise kind(f"{name}={memory!r} is not an amount of memory. {HOW}.")
    digits, unit = (match[1], match[2].lower()) if match else (str(memory.item() if hasattr(memory, "item") else memory), "")
    if match and unit not in UNITS:
        raise ValueError(f"{name}={memory!r} has an unknown unit, {match[2]!r}. {HOW}.")
    try:
        bytes = Decimal(digits) * UNITS[unit]
        wrong = "is negative" if bytes < 0 else "is more than any machine has" if bytes >= MOST else None
    except ArithmeticError:  # of a NaN
        wrong = "is not a number"
    if not wrong and not unit and bytes % 1:
        wrong = "is not a whole number of bytes"
    if wrong:
        raise ValueError(f"{name}={memory!r} {wrong}. {HOW}.")
    return int(bytes)


def show(count: int, other: int | None = None) -> str:
    """An amount for people: rounded, but not to the same words as another one that it is beside."""
    for digits in (1, 2, 3):
        words = rounded(count, digits)
        if other is None or count == other or words != rounded(other, digits):
            return words
    return f"{count} bytes"


def rounded(count: int, digits: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.{0 if units[0] == 'B' else digits}f} {units[0]}"
