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

from ._graph import JointGraph, Kernel


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


def runs(joint: JointGraph, plan: Plan) -> Iterator[Run]:
    """The runs of a plan, in order."""
    places: dict[int, int] = {}
    for at, step in enumerate(plan.instructions):
        if isinstance(step, Instruction.Free):
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
    size = [device.rounded(storage.bytes) for storage in joint.storages]
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
    for run in runs(joint, plan):
        at = run.at
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
    return [here + there for here, there in zip(now, accumulate(change))]
