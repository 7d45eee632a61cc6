"""What a training step would take, for people and for programs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from .._messages.amounts import show
from .._messages.locations import line_of, module_of, operation_of, shortened
from .._plan.choice import Choice
from .._plan.choices import Choices


# How many rows of a table are shown.
ROWS = 8


@dataclass(frozen=True, slots=True)
class Holder:
    """Tensors of one kind that are alive at the peak."""

    bytes: int
    count: int
    """How many tensors."""
    module: str
    """The module of the model that computed them; numbers of layers are `*`."""
    operation: str
    line: str
    """File and line of the model's code."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that a step needs at one size of batch."""

    kept_bytes: int
    """With all kept that the backward reads."""
    floor_bytes: int
    """With all recomputed that helps."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a training step would take. Bytes are live ones; seconds are by a roofline. `str` has it in words."""

    device: str
    batch: int
    updates: bool
    """Whether it ends in updates, as `step` does, or in gradients, as with `backend`."""
    memory_bytes: int | None
    """The memory that was asked about."""
    fits: bool | None
    """Whether a step fits there."""
    seconds: float | None
    """Predicted seconds of a step there."""
    host_memory_bytes: int
    """How much of the host's memory tensors may wait in."""
    moved_bytes: int | None
    """Bytes that are copied there and back in a step within the memory."""
    kept_bytes: int
    """What it takes with everything kept."""
    kept_seconds: float
    floor_bytes: int
    """The least memory that a plan was found for."""
    floor_at: str
    """What needs the most then: the operation, its module, and its line."""
    parameter_bytes: int
    state_bytes: int
    """The optimizer's."""
    buffer_bytes: int
    library_bytes: int
    """What cuBLAS holds for itself on a GPU."""
    gradient_bytes: int
    """Gradients of earlier micro-batches, where gradients are accumulated."""
    input_bytes: int
    holders: list[Holder]
    """Who holds the rest at the peak with everything kept, most first."""
    ladder: list[tuple[int, float]]
    """Amounts of memory, and the seconds of a step in them: fastest first."""
    batches: dict[int, Needs] = field(default_factory=dict)
    """What other sizes of batch would take."""
    largest_batch: int | None = None
    """The largest batch that was found to fit into the memory."""

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(words(self)) + "\n"


def by_layer(module: str) -> str:
    return re.sub(r"\b\d+\b", "*", re.sub(r"\[(\d+)\]|\.(\d+)(?=\.|$)", r".\1\2", module))


def holders(choices: Choices, choice: Choice) -> list[Holder]:
    """Who holds what at the peak, alike ones of all layers together."""
    sizes: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    held = choice.plan.holders()
    for value, size in held.values:
        if value < len(choices.joint.storages):
            node = choices.joint.storages[value].first
            key = by_layer(module_of(node)), operation_of(node), line_of(node)
            sizes[key] += size
            counts[key] += 1
    if held.scratch_bytes and held.node is not None:
        node = choices.joint.kernels[held.node].node
        key = by_layer(module_of(node)), f"{operation_of(node)} for a while", line_of(node)
        sizes[key] += held.scratch_bytes
        counts[key] += 1
    return [Holder(size, counts[key], key[0], key[1], key[2]) for key, size in sizes.most_common()]


def words(told: Forecast) -> list[str]:
    """A forecast for people."""
    given = [
        ("parameters", told.parameter_bytes),
        ("optimizer's state" + (", which may wait on the host" if told.host_memory_bytes else ""), told.state_bytes),
        ("buffers", told.buffer_bytes),
        ("gradients of earlier micro-batches", told.gradient_bytes),
        ("inputs", told.input_bytes),
        ("workspaces of libraries", told.library_bytes),
    ]
    what, how = ("training step", "as highwater.torch.step does it") if told.updates else ("forward and backward", "as with highwater.torch.backend")
    lines = [f"A {what} on {told.device}, batch {told.batch}, {how}, by a roofline of the device:"]
    lines += [f"  {show(told.kept_bytes):>10}  with everything kept, {told.kept_seconds:.3g} s"]
    lines += [f"  {show(told.floor_bytes):>10}  at least" + (f", for {told.floor_at}" if told.floor_at else "")]
    if told.memory_bytes is not None:
        amount = show(told.memory_bytes, told.floor_bytes)
        if told.seconds is None:
            lines += [f"  {amount:>10}  does not fit: state more memory, or take a smaller batch"]
        else:
            moved = f", with {show(told.moved_bytes)} copied to the host and back" if told.moved_bytes else ""
            lines += [f"  {amount:>10}  fits, {told.seconds:.3g} s ({slower(told, told.seconds)}){moved}"]
        if told.largest_batch is not None:
            lines += [f"              the largest batch that fits is {told.largest_batch}"]
    lines += ["", "There all the time:"]
    lines += [f"  {show(size):>10}  {name}" for name, size in given if size]
    lines += ["", "At the peak with everything kept:"]
    for holder in told.holders[:ROWS]:
        place = f" in {holder.module}" if holder.module else ""
        line = f" at {shortened(holder.line)}" if holder.line else ""
        lines.append(f"  {show(holder.bytes):>10}  {holder.count} x {holder.operation}{place}{line}")
    rest = sum(holder.bytes for holder in told.holders[ROWS:])
    if rest:
        lines.append(f"  {show(rest):>10}  {sum(holder.count for holder in told.holders[ROWS:])} others")
    lines += ["", "      memory  seconds of a step"]
    lines += [f"  {show(size):>10}  {seconds:.3g} ({slower(told, seconds)})" for size, seconds in told.ladder]
    if told.batches:
        lines += ["", "  batch  everything kept    at least"]
        lines += [f"  {size:>5}  {show(needs.kept_bytes):>15}  {show(needs.floor_bytes):>10}" for size, needs in told.batches.items()]
    return [*lines, "", "Not in it is what kernels take for a while: only runs tell."]


def slower(told: Forecast, seconds: float) -> str:
    """By how much, beside keeping everything."""
    return f"+{max(seconds / told.kept_seconds - 1, 0):.1%}"
