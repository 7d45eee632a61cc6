"""What PyTorch's allocator is asked for on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy, _profiler_enabled
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

from .._messages.errors import Shortened

Answer = TypeVar("Answer")


class Within(Shortened, RuntimeError):
    """A measurement within another one."""

    def __init__(self) -> None:
        super().__init__(
            "highwater.torch.allocated cannot measure a call that plans, or that calls allocated itself, because planning measures kernels in the same way. "
            "Run the call once before you measure it, so that it is planned by then."
        )


# For users it is an ordinary one.
Within.__name__ = Within.__qualname__ = "RuntimeError"
Within.__module__ = "builtins"

under_way = threading.Lock()


def allocated(run: Callable[[], Answer]) -> tuple[Answer, int, int]:
    """Runs a function and measures the CPU memory that its tensors use.

    Returns what the function returns, the peak in bytes, and the bytes still in use at the end. Both count from
    what was in use before.

    The first step of each input size is planned, which measures kernels in the same way. Run it once before you
    measure it: planning within `allocated` raises a `RuntimeError`. So does a call of `allocated` while a PyTorch
    profiler records in the same thread.
    """
    if not callable(run):
        raise TypeError(f"run must be a function without arguments, not {type(run).__name__}: allocated(lambda: step(x, y))")
    if not under_way.acquire(blocking=False):
        raise Within
    try:
        if _profiler_enabled():
            raise RuntimeError(
                "highwater.torch.allocated cannot measure while a PyTorch profiler is active in this thread. "
                "Call it outside of torch.profiler.profile."
            )
        return counted(run)
    finally:
        under_way.release()


def allocated_by_kernel(run: Callable[[], Answer]) -> tuple[Answer, int, int]:
    """The same for a kernel that is measured on made-up inputs, also while a user's profiler records."""
    if not under_way.acquire(blocking=False):
        raise Within
    try:
        return in_own_thread(lambda: counted(run)) if _profiler_enabled() else counted(run)
    finally:
        under_way.release()


def counted(run: Callable[[], Answer]) -> tuple[Answer, int, int]:
    with recorded() as threads:
        answer = run()
    events = [event for events in threads for event in events if event.kind() == "memory_alloc"]
    if len(threads) > 1:
        # Each thread has a list of its own. Events of one instant stay in their order.
        start = threads[0][0]
        events.sort(key=lambda event: float(start.cpu_elapsed_us(event)))
    now = most = 0
    for event in events:
        now += event.cpu_memory_usage()
        most = max(most, now)
    return answer, most, now


@contextmanager
def recorded() -> Iterator[list[list[Any]]]:
    """Records what is allocated and freed, in a list for each thread that is filled at the end.

    `torch.profiler` would report each start and stop on stderr. This is the profiler that came before it, which
    PyTorch keeps: it prints nothing, and is per thread.
    """
    threads: list[list[Any]] = []
    _enable_profiler_legacy(ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()))
    try:
        yield threads
    finally:
        threads += _disable_profiler_legacy()


def in_own_thread(run: Callable[[], Answer]) -> Answer:
    """Runs a kernel in a thread that no profiler records."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with torch.no_grad():
                answers.append(run())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="highwater-measures")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]
