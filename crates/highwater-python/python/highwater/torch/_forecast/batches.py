"""What a step would take with other sizes of batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._graph.joint import Kernel
from .._plan.choices import Choices
from .forecast import Needs


class Grown:
    """What other sizes of batch take: each tensor's bytes grow in a straight line, which two sizes tell."""

    def __init__(self, found: Choices, trace: Callable[[int], Choices], batch: int) -> None:
        self.trace = trace
        self._known: dict[int, Choices] = {batch: found}
        # A batch of one is often computed in another way.
        self._first = max(batch, 2)

    def choices(self, size: int) -> Choices:
        if size not in self._known:
            self._known[size] = self._between(size) or self.trace(size)
        return self._known[size]

    def _traced(self, size: int) -> Choices:
        if size not in self._known:
            self._known[size] = self.trace(size)
        return self._known[size]

    def _between(self, size: int) -> Choices | None:
        """The plans of a size by those of two others, where all is computed in the same way."""
        if size < 2:
            return None
        first = self._first
        base, other = self._traced(first), self._traced(2 * first)
        ours, theirs = base.joint, other.joint
        same = [kernel.node.target for kernel in ours.kernels if is_aten(kernel)] == [kernel.node.target for kernel in theirs.kernels if is_aten(kernel)]
        if not same or len(ours.storages) != len(theirs.storages):
            return None
        lines = [(a.bytes, b.bytes - a.bytes) for a, b in zip(ours.storages, theirs.storages, strict=True)]
        if any(more % first for _, more in lines):
            return None
        scaled = copy.copy(ours)
        scaled.storages = [
            replace(storage, bytes=bytes + (size - first) * more // first)
            for storage, (bytes, more) in zip(ours.storages, lines, strict=True)
        ]
        return base.like(scaled)

    def needs(self, size: int) -> Needs:
        choices = self.choices(size)
        return Needs(choices.given + choices.fastest.needed, choices.floor_bytes)

    def largest(self, budget: int) -> int | None:
        """The largest batch that fits, by halving; None where not even one example does."""

        def fits(size: int) -> bool:
            return self.choices(size).floor_bytes <= budget

        low, high = 0, 1
        while fits(high):
            low, high = high, 2 * high
            if high > 1 << 20:
                return low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low or None


def is_aten(kernel: Kernel) -> bool:
    return isinstance(kernel.node.target, torch._ops.OpOverload)


def resized(inputs: Any, batch: int, size: int, device: torch.device) -> Any:
    """Inputs of another batch, laid out as they were. One that comes twice is one."""
    known: dict[int, Tensor] = {}

    def one(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in known:
            sizes = [size if i == 0 and length == batch else length for i, length in enumerate(value.shape)]
            strides = value.stride()
            order = sorted(range(value.dim()), key=lambda i: -strides[i])
            made = torch.empty_permuted(sizes, order, dtype=value.dtype, device=device, requires_grad=value.requires_grad)
            known[id(value)] = made
        return known[id(value)]

    return pytree.tree_map(one, inputs)
