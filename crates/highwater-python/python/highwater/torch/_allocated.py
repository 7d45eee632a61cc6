"""What PyTorch's allocator is asked for on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._autograd import DeviceType
from torch._dynamo.exc import ShortenTraceback
from torch.profiler import ProfilerActivity, profile

Answer = TypeVar("Answer")


class Within(ShortenTraceback, RuntimeError):
    """A measurement within another one, which PyTorch's profiler would end: that one would be told nothing."""

    def __init__(self) -> None:
        message = (
            "a step is planned within highwater.torch.allocated, and its kernels are measured by the same profiler: "
            "call what is measured once before, so that it is planned by then"
        )
        ShortenTraceback.__init__(self, message, first_useful_frame=None)


under_way = threading.Lock()


def allocated(run: Callable[[], Answer]) -> tuple[Answer, int, int]:
    """What a call answers, the most bytes of the CPU's memory that its tensors take at once, and those that are
    left at its end; both beside what was there before. By PyTorch's profiler: within one of your own nothing is
    told. The first step of a size is planned, for which kernels are measured by the same profiler: call it once
    before, or this raises a `RuntimeError`, before the step has run."""
    if not under_way.acquire(blocking=False):
        raise Within
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            answer = run()
    finally:
        under_way.release()
    events = profiled.profiler.kineto_results.events()
    now = most = 0
    # Those of one instant stay in their order.
    for event in sorted(filter(is_ours, events), key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return answer, most, now


def is_ours(event: Any) -> bool:
    """Whether an event is of the CPU's memory: GPUs tell of theirs in between."""
    return bool(event.name() == "[memory]" and event.device_type() == DeviceType.CPU)
