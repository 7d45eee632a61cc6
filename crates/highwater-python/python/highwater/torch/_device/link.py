"""Host memory as a place where tensors of a device wait."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .timing import least_seconds
from .transfers import lanes_of

# What is copied to time a way.
TIMED = 1 << 25
RUNS, SECONDS = 5, 1.0


def measure_link(device: torch.device) -> tuple[float, float, float, float]:
    """Bytes that are copied in a second: to a device, from it, and each of them while the other goes on."""
    lanes = lanes_of(device)
    inner = [torch.zeros(TIMED, dtype=torch.uint8, device=device) for _ in range(2)]
    pinned = device.type == "cuda"
    outer = [torch.zeros(TIMED, dtype=torch.uint8, pin_memory=pinned) for _ in range(2)]

    def once(to_host: bool) -> Callable[[], None]:
        target, source = (outer, inner) if to_host else (inner, outer)
        return lambda: lanes.finish(lanes.copy(to_host, [(target[to_host], source[to_host])]))

    def both() -> None:
        tokens = [lanes.copy(False, [(inner[0], outer[0])]), lanes.copy(True, [(outer[1], inner[1])])]
        for token in tokens:
            lanes.finish(token)

    read, write, together = (TIMED / least_seconds(run, RUNS, SECONDS, here=False) for run in (once(False), once(True), both))
    return read, write, min(read, together), min(write, together)
