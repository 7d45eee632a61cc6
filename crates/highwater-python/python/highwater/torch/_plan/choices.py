"""The plans that there are for a joint graph, the choice among them, and the words for what does not fit."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from functools import cached_property

import highwater
from highwater import Family, Floor

from .._device.device import has_products
from .._graph.joint import JointGraph
from .._graph.nodes import is_tangent
from .._messages.amounts import MOST, show
from .._messages.errors import Shortened
from .._messages.locations import where
from .choice import Choice
from .costs import Prices
from .pins import pins
from .problem import pose
from .reserved import reserved_bytes


class OverBudget(highwater.OverBudget, Shortened):
    """No plan of a graph fits the stated memory. The message says how much would, and what needs it."""

    def __init__(self, message: str, budget: int, floor: Floor) -> None:
        Shortened.__init__(self, message)
        self.budget, self.floor = budget, floor


@dataclass(frozen=True, slots=True)
class Report:
    """What was planned for one graph. Bytes are live ones, on a GPU in whole multiples of 512, but for `reserved_bytes`."""

    budget_bytes: int
    """The memory that was stated."""
    given_bytes: int
    """Of that, what is there before the forward and not the plan's: parameters, buffers, inputs; for a whole
    step the optimizer's state too."""
    live_bytes: int
    """The most bytes alive at once, with those."""
    floor_bytes: int
    """The least memory that a plan was found for, with those."""
    seconds: float
    """Predicted seconds of all kernels, one after the other."""
    recomputed_kernels: int
    """How many runs are repetitions."""
    recompute_seconds: float
    """Predicted seconds of those."""
    kernels: int
    """Kernels of forward and backward."""
    planning_seconds: float
    """What it took to plan."""
    moved_bytes: int = 0
    """Bytes that are copied to the host's memory and back in a step."""
    host_bytes: int = 0
    """Bytes that wait there at most."""
    reserved_bytes: int | None = None
    """What PyTorch's allocator takes from a GPU for this, about: it cuts blocks out of segments, and keeps them."""
    adapted: bool = False
    """Whether decisions were taken over from another size of the same graph: a search of its own might find
    a somewhat faster plan, and a lower floor."""
    kept: bool = False
    """Whether the plan was made in another run, and kept."""
    is_bound: bool = True
    """Whether no more bytes are alive than was told. Inductor's kernels and their order are its own."""


# Of more plans the first reports are dropped.
REPORTS = 1024

# So many plans at most are chosen among.
RUNGS = 1024
# How many are tried for the floor.
STEPS = 64


class Choices:
    """The plans of a graph, for all amounts of memory. `outside`: bytes that are held all the time by what
    the graph does not see. `host_memory`: bytes of the host where tensors may wait."""

    def __init__(self, joint: JointGraph, costs: Prices, outside: int = 0, host_memory: int = 0) -> None:
        start = time.perf_counter()
        self.joint, self._costs, self._outside, self._host_memory = joint, costs, outside, host_memory
        device = joint.device
        products = has_products(kernel.node for kernel in joint.kernels)
        external = sum(device.rounded(storage.bytes) for storage in joint.storages if storage.always)
        self.earlier_gradients = 0
        """Of what is outside: gradients of earlier micro-batches."""
        self.library_bytes = device.libraries(products, 2 if joint.backward else 1)
        self._unseen = outside + self.library_bytes
        self.given = self._unseen + external
        self.problem, told = pose(joint, costs, costs.link(device, host_memory) if host_memory else None)
        self.name, self.structure = told.name, told.structure
        """Of the problem, which no other one has; and which those have that differ in seconds alone."""
        # What is alive while bytes move depends on how they go: there plans have an arena.
        self.family = Family(self.problem, arena=host_memory > 0)
        self._said = pins(joint)
        self.fastest = self._of(MOST)
        self._seconds = time.perf_counter() - start

    @cached_property
    def _least(self) -> Choice:
        """Starts a search."""
        floor = self.family.floor.bytes
        least = min(self._of(floor), self.fastest, key=lambda choice: choice.needed)
        if least.needed == floor or self._host_memory:
            return least
        # What PyTorch needs beside a plan may make a faster one smaller.
        for room, _ in reversed(self.family.curve(STEPS)):
            if floor < room < least.needed:
                least = min(least, self._of(room), key=lambda choice: choice.needed)
        return least

    @cached_property
    def _without_host(self) -> Choices:
        """Where little may wait on the host, copies may be more in the way than of use."""
        states = sum(self.joint.device.rounded(kernel.cell_bytes) for kernel in self.joint.kernels)
        # Of its own: posing a problem says which of its values are cells, and here none are.
        return Choices(copy.copy(self.joint), self._costs, self._outside + states)

    @property
    def size(self) -> tuple[int, int]:
        """Of the graph, which graphs of the same structure have too."""
        return self.problem.node_count, self.problem.value_count

    def adapted(self, known: Family) -> Choices | None:
        """These by the decisions for another graph, if that is of the same structure: without a search."""
        twin = copy.copy(self)
        for name in ("_least", "_without_host"):
            twin.__dict__.pop(name, None)
        family = known.adapt(self.problem)
        if family is None:
            return None
        twin.family = family
        return twin

    @property
    def least(self) -> Choice | None:
        """The plan of the floor, if it is one with all the host's memory."""
        return self._least if self.given + self._least.needed == self.floor_bytes else None

    @property
    def floor_bytes(self) -> int:
        """The least memory that a plan was found for."""
        floor = self.given + self._least.needed
        return min(floor, self._without_host.floor_bytes) if "_without_host" in self.__dict__ else floor

    def like(self, joint: JointGraph) -> Choices:
        """The plans of a graph that differs in sizes."""
        return Choices(joint, self._costs, self._outside, self._host_memory)

    def _of(self, room: int, most: int = 0) -> Choice:
        """The fastest plan that fits into a room, carried out with `most` bytes at once, if it can be."""
        return Choice.of(self.joint, self.family.choose(room), most)

    def at(self, memory: int) -> Choice:
        """The fastest plan that was found to fit. Raises `OverBudget`."""
        budget = memory - self.given
        if self.fastest.needed <= budget:
            return self.fastest
        if budget < self._least.needed:
            if self._host_memory and self._without_host.floor_bytes <= memory:
                choice = self._without_host.at(memory)
                return replace(choice, needed=choice.needed + self._without_host.given - self.given)
            raise OverBudget(self._refusal(memory), memory, self.family.floor)
        return (self._beside_copies if self._host_memory else self._of_all)(budget)

    def _of_all(self, budget: int) -> Choice:
        """The fastest of all plans. Halved alike for every budget: whatever they need, one with more memory is
        never slower."""
        rooms = [room for room, _ in self.family.curve(RUNGS)]
        found, first, end = self._least, 0, len(rooms)
        while first < end:
            middle = (first + end) // 2
            choice = self._of(rooms[middle])
            if choice.needed <= budget:
                found, end = choice, middle
            else:
                first = middle + 1
        return found

    def ladder(self, rows: int) -> list[tuple[int, float]]:
        """Amounts of memory that are enough, and the seconds of a step in each: from the largest to the floor."""
        found: list[Choice] = []
        for choice in [*(self._of(room) for room, _ in self.family.curve(rows)), self._least]:
            # What PyTorch needs beside a plan may make a slower one no smaller.
            if self._least.needed <= choice.needed < (found[-1].needed if found else MOST):
                found.append(choice)
        return [(self.given + choice.needed, choice.plan.seconds) for choice in found]

    def _beside_copies(self, budget: int) -> Choice:
        """A fast plan where bytes move, which are packed for each room."""
        room = budget
        while room >= self.family.floor.bytes:
            choice = self._of(room, budget)
            if choice.needed <= budget:
                return choice
            # Less for the plan, by what PyTorch needs beside it, or the next smaller one.
            room = min(room - (choice.needed - budget), choice.size - 1)
        return self._least

    def report(self, memory: int, choice: Choice, floor_bytes: int, seconds: float, *, adapted: bool, kept: bool) -> Report:
        """What to say of a choice that took so many seconds."""
        plan = choice.plan
        return Report(
            budget_bytes=memory,
            given_bytes=self.given,
            live_bytes=self.given + choice.needed,
            floor_bytes=floor_bytes,
            seconds=plan.seconds,
            recomputed_kernels=plan.recomputed_nodes,
            recompute_seconds=plan.recompute_seconds,
            kernels=sum(kernel.node.op != "placeholder" for kernel in self.joint.kernels),
            planning_seconds=self._seconds + seconds,
            moved_bytes=choice.moved_bytes,
            host_bytes=plan.host.spill_bytes + plan.host.home_bytes,
            reserved_bytes=reserved_bytes(self.joint, choice, self._unseen),
            adapted=adapted,
            kept=kept,
        )

    def _refusal(self, memory: int) -> str:
        joint, floor, needed = self.joint, self.family.floor, self.floor_bytes
        unit = f' A number without a unit is bytes: for GiB, write "{memory}GiB".' if 0 < memory < 1 << 10 else ""
        enough = show(needed, memory)
        exact = "" if enough == f"{needed} B" else f" ({needed} bytes)"
        words = [f"this does not fit into {show(memory, needed)}: it needs at least {enough}{exact}"]
        if self.given:
            words.append(f"{show(self.given)} of that are {joint.given_is}")
        # Behind the storages there are states of an optimizer.
        largest = next(((value, size) for value, size in floor.holders if value < len(joint.storages)), None)
        if floor.node is not None:
            node = joint.kernels[floor.node].node
            words.append(f"memory peaks {f'when {where(node)} comes in' if is_tangent(node) else f'at {where(node)}'}")
        if largest:
            first = joint.storages[largest[0]].first
            words.append(f"the largest tensor there, {show(largest[1])}, is {'' if is_tangent(first) else 'the result of '}{where(first)}")
        if beside := sum(size for value, size in floor.holders if value in joint.late_beside_loss):
            words.append(
                f"{show(beside)} are gradients of outputs next to the loss: if nothing differentiates those, "
                'highwater.torch.backend(memory, gradients="loss") avoids them'
            )
        if by_policy := sum(size for storage, size in floor.holders if self._said.get(storage) == "keep"):
            words.append(f"{show(by_policy)} are held because a checkpoint policy in the model says MUST_SAVE")
        return ". ".join(word[0].upper() + word[1:] for word in words) + f". State more memory, or use a smaller batch.{unit}"
