"""How many bytes are alive while each instruction of a plan is carried out, as PyTorch does it.

A tensor is let go of when nobody reads it any more, which may be before the plan says so. Two things are no
part of a plan: states of generators, and what a kernel makes once more of that which the caller holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from highwater import Instruction, Plan

from .._graph.joint import JointGraph, Kernel


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a plan, as PyTorch carries it out."""

    at: int
    """The instruction."""
    number: int
    """The kernel's."""
    kernel: Kernel
    taken: int | None
    """The storage that it writes its result over, if it does."""


@dataclass(frozen=True, slots=True)
class Move:
    """A copy to the host or back."""

    at: int
    step: Instruction.Evict | Instruction.Fetch


def actions(joint: JointGraph, plan: Plan) -> Iterator[Run | Move]:
    """The runs and the copies of a plan, in order."""
    places: dict[int, int] = {}
    for at, step in enumerate(plan.instructions):
        if isinstance(step, Instruction.Free):
            places.pop(step.value, None)
            continue
        if isinstance(step, (Instruction.Evict, Instruction.Fetch)):
            yield Move(at, step)
            if isinstance(step, Instruction.Fetch):
                places[step.value] = step.offset
            else:
                places.pop(step.value, None)
            continue
        assert isinstance(step, Instruction.Run), step
        kernel = joint.kernels[step.node]
        taken = kernel.inputs[kernel.in_place.input] if kernel.in_place else None
        if taken is not None and (step.offsets[0] is None or places.get(taken) != step.offsets[0]):
            taken = None
        yield Run(at, step.node, kernel, taken)
        places |= {storage: place for storage, place in zip(kernel.outputs, step.offsets) if place is not None}
        if taken is not None:
            places.pop(taken)


def replays(joint: JointGraph, plan: Plan) -> set[int]:
    """The random kernels that run more than once."""
    count = Counter(step.node for step in plan.instructions if isinstance(step, Instruction.Run))
    return {i for i, times in count.items() if times > 1 and joint.kernels[i].random}


def alive(joint: JointGraph, plan: Plan) -> list[int]:
    """Bytes alive at most during each instruction, beside what is given."""
    device, replayed, again = joint.device, replays(joint, plan), joint.given_by_forward
    state = device.rounded(device.state_bytes)
    awhile = joint.given_for_a_while
    held = joint.given - awhile
    size = {i: device.rounded(storage.bytes) for i, storage in enumerate(joint.storages)}
    size |= {cell: device.rounded(kernel.cell_bytes) for cell, kernel in joint.cells.items()}
    count = len(plan.instructions)
    now, change = [0] * count, [0] * (count + 1)
    since: dict[int, tuple[int, int]] = {}
    """Of each storage that is there: since when, and when it was last read."""
    states: dict[int, tuple[int, int]] = {}

    def end(storage: int) -> None:
        lasts(size[storage], *since.pop(storage))

    def lasts(bytes: int, first: int, last: int) -> None:
        change[first] += bytes
        change[last + 1] -= bytes

    forward = count - 1
    for run in actions(joint, plan):
        at = run.at
        if isinstance(run, Move):
            value = run.step.value
            if isinstance(run.step, Instruction.Evict):
                since[value] = since[value][0], at
                end(value)
            else:
                if value in since:
                    end(value)
                since[value] = at, at
            continue
        if run.kernel.node in joint.backward:
            forward = min(forward, at - 1)
        now[at] = device.rounded(run.kernel.scratch)
        for storage in run.kernel.inputs:
            if storage in since:
                since[storage] = since[storage][0], at
        if run.number in replayed:
            # The state that it starts from; a run again also keeps the one that it finds.
            now[at] += state if run.number in states else 0
            states[run.number] = states.get(run.number, (at, at))[0], at
        if run.taken is not None:
            # One buffer, which is counted as the result's from here on.
            since[run.taken] = since[run.taken][0], at - 1
            end(run.taken)
        for storage in run.kernel.outputs:
            if storage not in since:
                since[storage] = at, at
            elif storage in again:
                now[at] += size[storage]
            else:
                end(storage)
                since[storage] = at, at
    for storage in list(since):
        first, last = since[storage]
        since[storage] = first, count - 1 if storage in held else max(last, forward) if storage in awhile else last
        end(storage)
    for first, last in states.values():
        lasts(state, first, last)
    stay = sum(size[cell] for cell in joint.cells.keys() - set(plan.cells_on_host))
    return [stay + here + there for here, there in zip(now, accumulate(change))]


@dataclass(frozen=True, slots=True)
class Waits:
    """Which copies to the host kernels wait for, so that what was copied can be let go of."""

    before: dict[int, list[int]]
    """Of instructions, the evictions that are over before them."""
    alive: list[int]
    """Bytes alive during each, with what is being copied."""


def waits(joint: JointGraph, plan: Plan, alive: list[int], most: int) -> Waits:
    """What is being copied to the host stays until kernels wait for that: where the plan has them wait, where
    the forward ends, and where there would be more than `most` bytes otherwise, oldest first."""
    under_way: dict[int, int] = {}
    before: dict[int, list[int]] = {}
    total = []
    forward = True
    for at, step in enumerate(plan.instructions):
        # Each lane goes in order.
        last = max((i for i in step.waits if i in under_way), default=-1) if step.lane == "compute" else -1
        if forward and isinstance(step, Instruction.Run) and joint.kernels[step.node].node in joint.backward:
            forward, last = False, at
        over = [i for i in under_way if i <= last]
        left = sum(under_way.values()) - sum(under_way[i] for i in over)
        for i in list(under_way)[len(over) :]:
            if alive[at] + left <= most:
                break
            over.append(i)
            left -= under_way[i]
        if over:
            before[at] = over
        for i in over:
            del under_way[i]
        total.append(alive[at] + left)
        if isinstance(step, Instruction.Evict):
            under_way[at] = joint.device.rounded(joint.size_of(step.value))
    return Waits(before, total)
