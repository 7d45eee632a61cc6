"""What PyTorch's allocator is asked for on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Answer = TypeVar("Answer")


def allocated(run: Callable[[], Answer]) -> tuple[Answer, int, int]:
    """What a call answers, the most bytes of the CPU's memory that its tensors take at once, and those that are
    left at its end; both beside what was there before. By PyTorch's profiler: within one of your own, or in the
    first step of a size that is planned, which measures too, nothing is told."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        answer = run()
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
