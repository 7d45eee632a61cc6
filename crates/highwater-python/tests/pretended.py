"""A GPU that is the CPU: what `torch.cuda` would be asked, answered in its words."""

from __future__ import annotations

import time
from typing import Any

import torch
from highwater.torch._device import device as _device
from highwater.torch._device.allocated import allocated
from highwater.torch._device.device import Cuda


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self, stream: str) -> None:
        assert stream == "a stream"
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        assert self.at

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at - self.at)


class Driver:
    """Counters, a generator and a name, as `torch.cuda` has them."""

    Event = Event

    def __init__(self, name: str = "NVIDIA H100 80GB HBM3", capability: tuple[int, int] = (9, 0), free: int = 1 << 36) -> None:
        self.name, self.capability, self.free = name, capability, free
        self.stats: dict[str, int] = {}
        self.capturing = False
        self.emptied = 0
        self.slept: list[int] = []

    def count(self, **counters: int) -> None:
        for name, more in counters.items():
            key = name.replace("__", ".all.")
            self.stats[key] = self.stats.get(key, 0) + more

    def get_device_name(self, device: torch.device) -> str:
        return self.name

    def get_device_capability(self, device: torch.device) -> tuple[int, int]:
        return self.capability

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return self.free, 1 << 37

    def memory_reserved(self, device: torch.device) -> int:
        return 0

    def memory_allocated(self, device: torch.device) -> int:
        return 0

    def memory_stats(self, device: torch.device) -> dict[str, int]:
        return dict(self.stats)

    def current_stream(self, device: torch.device) -> str:
        return "a stream"

    def _sleep(self, cycles: int) -> None:
        self.slept.append(cycles)

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def get_rng_state(self, device: torch.device) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: torch.device) -> None:
        torch.set_rng_state(state)

    def empty_cache(self) -> None:
        self.emptied += 1


class Pretended(Cuda):
    """Plans as for a GPU, and runs on the CPU, whose allocations are counted as that counts them."""

    def allocated(self, run: Any) -> Any:
        def counted() -> Any:
            answer, most, now = allocated(run)
            temporary = most - now
            self.driver.count(requested_bytes__allocated=most, requested_bytes__freed=temporary, allocation__freed=int(temporary > 0))
            return answer

        return super().allocated(counted)


def pretend(monkeypatch: Any, driver: Driver) -> None:
    """Has the CPU be a GPU."""
    monkeypatch.setitem(_device.KINDS, "cpu", lambda device: Pretended(device, driver))
