"""How long a kernel takes on a machine that may be busy with something else.

A run counts where its thread had a processor nearly all the time. The least of such runs is taken once two of them
agree. Where that does not happen in time, the seconds that the thread was given a processor are taken, and the
figure is marked: it is measured again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

# The wall's clock, and the one that stands still while others have the processor.
clock, own_clock = time.perf_counter, time.thread_time

# Two runs agree within this share of the shorter one.
TOLERANCE = 0.2
# A run counts where its thread missed at most this share of it, or so many seconds, which asking clocks takes.
MISSED, MISSED_SECONDS = 0.1, 50e-6
# Where runs do not agree, so many times as many are made.
PATIENCE = 3

_unsettled = 0
"""How many figures were taken that no two runs agreed on."""


def least_seconds(run: Callable[[], object], runs: int, enough: float, here: bool = True) -> float:
    """The least seconds of some runs: so many, or for so long, and more where they do not agree. `here`: whether the
    calling thread does the work, and does not wait for others."""
    global _unsettled
    undisturbed: list[float] = []
    own: list[float] = []
    count, spent = 0, 0.0
    while True:
        start, own_start = clock(), own_clock()
        run()
        own_seconds, seconds = own_clock() - own_start, clock() - start
        count, spent = count + 1, spent + seconds
        own.append(own_seconds if here else seconds)
        if not here or seconds - own_seconds <= max(MISSED * seconds, MISSED_SECONDS):
            undisturbed.append(seconds)
        settled = agree(undisturbed)
        patience = 1 if settled else PATIENCE
        if count >= patience * runs or count > 1 and spent >= patience * enough:
            break
    if settled:
        return min(undisturbed)
    _unsettled += 1
    return min(undisturbed + own)


def agree(times: list[float]) -> bool:
    """Whether the two shortest of some times are about the same."""
    first, second = sorted(times)[:2] if len(times) > 1 else (0.0, 1.0)
    return second <= first * (1 + TOLERANCE) + MISSED_SECONDS / 10


def watched(measure: Callable[[], Answer]) -> tuple[Answer, bool]:
    """What a measurement finds, and whether runs agreed on it."""
    before = _unsettled
    return measure(), _unsettled == before
