"""Ctrl-C while parameters are updated."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Has the first Ctrl-C wait for the end of what is within, and the second one act at once.

    Only where Python itself handles it: in the main thread, with a handler that Python can call.
    """
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):
        yield
        return
    waiting: list[FrameType | None] = []

    def hold(number: int, frame: FrameType | None) -> None:
        waiting.append(frame)
        if len(waiting) > 1:
            handler(number, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if len(waiting) == 1:
        handler(signal.SIGINT, waiting[0])
