"""What the examples check: the same bits as plain PyTorch's, within the memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

# PyTorch's profiler tells of its starts and stops otherwise.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import torch
from torch import Tensor, nn

# The same made-up data each time.
torch.manual_seed(0)


def peak_bytes(model: nn.Module, step: Callable[[], object]) -> int:
    """The most bytes that a forward and its backward have at once, parameters and buffers included: what
    PyTorch's allocator was asked for."""
    step()  # what is compiled now is not measured
    model.zero_grad()
    _, most, _ = highwater.torch.allocated(step)
    return most + sum(t.nbytes for t in [*model.parameters(), *model.buffers()])


Run = tuple[Sequence[float], Sequence[Tensor], int]
"""Losses, what was trained, the most bytes at once."""


def check(plain: Run, ours: Run, memory: int, share: float | None = None) -> None:
    """Ends the program with an error where something does not hold. `share` is the most of what plain PyTorch takes
    above the weights, for runs that answer all of them."""
    mib = 1 << 20
    weights = sum(t.nbytes for t in ours[1])
    print(f"losses {plain[0][0]:.4f} to {plain[0][-1]:.4f}")
    print(f"plain {plain[2] / mib:.1f} MiB, ours {ours[2] / mib:.1f} MiB of {memory / mib:.1f} MiB")
    assert list(plain[0]) == list(ours[0]), "other losses"
    assert all(a.equal(b) for a, b in zip(plain[1], ours[1], strict=True)), "other weights"
    assert weights < ours[2] <= memory < plain[2], "not within the memory, or it would have fitted anyway"
    if share is not None:
        took = (ours[2] - weights) / (plain[2] - weights)
        print(f"above the weights, {weights / mib:.1f} MiB, that is {took:.0%}")
        assert took <= share, f"more than {share:.0%} of what plain PyTorch takes"
