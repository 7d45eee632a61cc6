"""What PyTorch's allocator for CUDA takes from a GPU for a plan: its rules, carried out on numbers alone.

Up to 1 MiB is cut out of segments of 2 MiB; up to 10 MiB out of segments of 20 MiB; more has a segment of its own, in
whole multiples of 2 MiB. What is freed joins what is free beside it in its segment, and is taken again where it is
the smallest that is large enough. What is left over of a large block is kept with it, if it is no more than 1 MiB.
Segments stay until memory is short; those that are free as a whole are given back then. With `expandable_segments`
there is one segment for each pool, which grows by pages of 2 and 20 MiB, and everything left over is cut off.
"""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass, field

from highwater import Instruction

from .._graph.joint import JointGraph
from .choice import Choice

UNIT = 512
SMALL = 1 << 20
"""The most of a small block, and of what is left with a large one."""
SMALL_SEGMENT, MIDDLE_SEGMENT = 2 << 20, 20 << 20
MIDDLE = 10 << 20
ROUND = 2 << 20

# Steps that are gone through: what the first leaves cut up, the next ones find so.
STEPS = 3


class Short(MemoryError):
    """There is no room for an allocation."""


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment, among its neighbours."""

    address: int
    size: int
    small: bool
    before: Block | None = None
    after: Block | None = None
    taken: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address


@dataclass(slots=True)
class Allocator:
    """The allocator. `limit`: bytes that the GPU has for it."""

    limit: int | None = None
    expandable: bool = False
    reserved: int = 0
    most_reserved: int = 0
    allocated: int = 0
    """Bytes of blocks that are taken: what `torch.cuda.memory_allocated` tells."""
    most_allocated: int = 0
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})
    """Of each pool, what is free: sizes and addresses, in order."""
    _blocks: dict[int, Block] = field(default_factory=dict)
    _end: int = 0

    def take(self, size: int) -> Block | None:
        """A block for so many bytes. Raises `Short`. Nothing is none."""
        if size == 0:
            return None
        size = -(-size // UNIT) * UNIT
        small = size <= SMALL
        block = self._found(size, small) or self._grown(size, small)
        rest = block.size - size
        if rest >= UNIT if small or self.expandable else rest > SMALL:
            self._cut(block, size)
        block.taken = True
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def give(self, block: Block | None) -> None:
        """Takes a block back, and joins it with what is free beside it."""
        if block is None:
            return
        self.allocated -= block.size
        block.taken = False
        for other in (block.before, block.after):
            if other is not None and not other.taken:
                self._remove(other)
                block = self._joined(min(block, other, key=lambda one: one.address))
        self._add(block)

    def _found(self, size: int, small: bool) -> Block | None:
        """The smallest that is large enough, and of those the first."""
        free = self._free[small]
        at = bisect.bisect_left(free, (size, -1))
        if at == len(free):
            return None
        block = self._blocks[free[at][1]]
        self._remove(block)
        return block

    def _grown(self, size: int, small: bool) -> Block:
        """A block of what the GPU had free."""
        if self.expandable:
            return self._extended(size, small)
        more = SMALL_SEGMENT if small else MIDDLE_SEGMENT if size < MIDDLE else -(-size // ROUND) * ROUND
        self._reserve(more)
        # Segments have gaps between them, so that they do not join.
        block = Block(self._end, more, small)
        self._end += more + UNIT
        self._blocks[block.address] = block
        return block

    def _extended(self, size: int, small: bool) -> Block:
        """The last piece of a pool's segment, with as many pages more as it takes."""
        page = SMALL_SEGMENT if small else MIDDLE_SEGMENT
        last = max((block for block in self._blocks.values() if block.small == small), key=lambda block: block.address, default=None)
        free = last.size if last is not None and not last.taken else 0
        more = -(-(size - free) // page) * page
        self._reserve(more)
        if last is not None and not last.taken:
            self._remove(last)
            last.size += more
            return last
        # The two pools are far from each other.
        address = (last.address + last.size) if last is not None else (0 if small else 1 << 60)
        block = Block(address, more, small, before=last)
        if last is not None:
            last.after = block
        self._blocks[address] = block
        return block

    def _reserve(self, more: int) -> None:
        if self.limit is not None and self.reserved + more > self.limit:
            self._give_back()
            if self.reserved + more > self.limit:
                raise Short(f"{more} bytes more than {self.reserved} reserved, of which {self.allocated} are taken")
        self.reserved += more
        self.most_reserved = max(self.most_reserved, self.reserved)

    def _give_back(self) -> None:
        """Segments, or pages at a segment's end, that are free."""
        for block in list(self._blocks.values()):
            if block.taken or block.after is not None:
                continue
            if not self.expandable and block.before is None:
                self._remove(block)
                del self._blocks[block.address]
                self.reserved -= block.size
            elif self.expandable:
                page = SMALL_SEGMENT if block.small else MIDDLE_SEGMENT
                pages = block.size // page * page
                self._remove(block)
                block.size -= pages
                self.reserved -= pages
                if block.size:
                    self._add(block)
                else:
                    del self._blocks[block.address]
                    if block.before is not None:
                        block.before.after = None

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.small, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        self._blocks[rest.address] = rest
        self._add(rest)

    def _joined(self, block: Block) -> Block:
        """A block with the one after it."""
        other = block.after
        assert other is not None
        block.size += other.size
        block.after = other.after
        if other.after is not None:
            other.after.before = block
        del self._blocks[other.address]
        return block

    def _add(self, block: Block) -> None:
        bisect.insort(self._free[block.small], block.key)

    def _remove(self, block: Block) -> None:
        free = self._free[block.small]
        free.pop(bisect.bisect_left(free, block.key))


def is_expandable() -> bool:
    """Whether the user's settings have segments grow."""
    said = os.environ.get("PYTORCH_ALLOC_CONF", "") + "," + os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return "expandable_segments:true" in said.lower().replace(" ", "")


def reserved_bytes(joint: JointGraph, choice: Choice, outside: int) -> int | None:
    """The most that the allocator takes from the GPU for some steps of a plan, if nobody else allocates in between:
    an estimate. None where the device has another allocator. `outside`: see `carried_out`."""
    if not joint.device.caches:
        return None
    allocator = Allocator(expandable=is_expandable())
    carried_out(joint, choice, outside, allocator)
    return allocator.most_reserved


def carried_out(joint: JointGraph, choice: Choice, outside: int, allocator: Allocator) -> None:
    """Some steps of a plan, beside what is given. Raises `Short`.

    `outside`: bytes that are there all the time and no storage of the graph's, each of which is taken as large as the
    largest that is: an optimizer's state is of its parameters' sizes.
    """
    given = [joint.device.rounded(storage.bytes) for storage in joint.storages if storage.always]
    for size in given:
        allocator.take(size)
    largest = max(given, default=0) or outside
    while outside > 0:
        allocator.take(min(outside, largest))
        outside -= largest
    for _ in range(STEPS):
        held: dict[int, Block | None] = {}
        places: dict[int, int] = {}
        leaving: dict[int, Block | None] = {}
        for at, step in enumerate(choice.plan.instructions):
            for evicted in choice.waits.get(at, ()):
                allocator.give(leaving.pop(evicted))
            if isinstance(step, Instruction.Evict):
                leaving[at] = held.pop(step.value, None)
                places.pop(step.value, None)
            elif isinstance(step, Instruction.Fetch):
                held[step.value] = allocator.take(joint.size_of(step.value))
                places[step.value] = step.offset
            elif isinstance(step, Instruction.Free):
                allocator.give(held.pop(step.value, None))
                places.pop(step.value, None)
            elif isinstance(step, Instruction.Run):
                _run(joint, step, allocator, held, places)
        # Who called lets go of results and gradients before the next step.
        for block in [*held.values(), *leaving.values()]:
            allocator.give(block)


def _run(joint: JointGraph, step: Instruction.Run, allocator: Allocator, held: dict[int, Block | None], places: dict[int, int]) -> None:
    """One kernel: its scratch memory lies beside its results for a while."""
    kernel, storages = joint.kernels[step.node], joint.storages
    taken = kernel.inputs[kernel.in_place.input] if kernel.in_place else None
    made_again = []
    for storage, offset in zip(kernel.outputs, step.offsets):
        if taken is not None and offset is not None and places.get(taken) == offset:
            held[storage] = held.pop(taken)
            del places[taken]
        elif storage in held:
            made_again.append(allocator.take(storages[storage].bytes))
        else:
            held[storage] = allocator.take(storages[storage].bytes)
        if offset is not None:
            places[storage] = offset
    scratch = allocator.take(kernel.scratch)
    for block in [scratch, *made_again]:
        allocator.give(block)
