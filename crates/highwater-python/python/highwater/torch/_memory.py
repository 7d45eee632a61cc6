"""Amounts of memory as people write them."""

from __future__ import annotations

import re

UNITS = {"": 1, "B": 1} | {f"{letter}iB": 1 << 10 * i for i, letter in enumerate("KMGT", 1)} | {
    f"{letter}B": 1000**i for i, letter in enumerate("KMGT", 1)
}


def parse(memory: int | str) -> int:
    """Bytes of an amount: a number of bytes, or text like "8GiB" (powers of 1024) or "8GB" (of 1000)."""
    if isinstance(memory, int):
        found: float | None = memory
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", memory)
        unit = UNITS.get(match[2]) if match else None
        found = float(match[1]) * unit if match and unit else None
    if found is None or found < 0:
        raise ValueError(f"memory={memory!r} is no amount of memory: write bytes as a number, or text like '8GiB' or '512MiB'")
    return int(found)


def show(count: int) -> str:
    """An amount for people: at most three digits before the unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
