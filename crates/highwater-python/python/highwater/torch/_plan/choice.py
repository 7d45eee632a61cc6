"""A plan that was chosen, as PyTorch carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from highwater import Plan

from .._graph.joint import JointGraph
from .alive import alive, waits


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan, and what PyTorch needs to carry it out."""

    plan: Plan
    needed: int
    """Most bytes alive at once, inputs not counted."""

    waits: dict[int, list[int]]
    """Before which instructions kernels wait for which evictions."""

    @staticmethod
    def of(joint: JointGraph, plan: Plan, most: int = 0) -> Choice:
        """`most`: bytes that there are for it. What is copied to the host stays for as long as they are enough."""
        bytes = alive(joint, plan)
        if not plan.host.written_bytes:
            return Choice(plan, max(bytes, default=0), {})
        waited = waits(joint, plan, bytes, max(most, *bytes))
        return Choice(plan, max(waited.alive), waited.before)

    @property
    def moved_bytes(self) -> int:
        """Bytes that are copied to the host and back."""
        return self.plan.host.read_bytes + self.plan.host.written_bytes

    @property
    def size(self) -> int:
        """What budgets of the planner's bound."""
        return self.plan.memory_bytes if self.plan.host.written_bytes else self.plan.live_bytes
