"""Amounts of memory as people write them."""

from __future__ import annotations

import re

UNITS = {"": 1, "B": 1} | {f"{letter}iB": 1 << 10 * i for i, letter in enumerate("KMGT", 1)} | {
    f"{letter}B": 1000**i for i, letter in enumerate("KMGT", 1)
}


# No machine has as much.
MOST = 1 << 61


def parse(memory: int | str) -> int:
    """Bytes of an amount: a number of bytes, or text like "8GiB" (powers of 1024) or "8GB" (of 1000)."""
    found: float | None = None
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", memory)
        unit = UNITS.get(match[2]) if match else None
        found = float(match[1]) * unit if match and unit else None
    elif isinstance(memory, int) and not isinstance(memory, bool):
        found = memory
    if found is None or not 0 <= found < MOST:
        raise ValueError(f"memory={memory!r} is no amount of memory: write bytes as a number, or text like '8GiB' or '512MiB'")
    return int(found)


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
