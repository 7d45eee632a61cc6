"""PyTorch's allocator for CUDA, carried out on numbers."""

from __future__ import annotations

import random

import pytest
from highwater.torch._plan.reserved import MIDDLE_SEGMENT, SMALL_SEGMENT, Allocator, Block, Short

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        # What is left of 2 MiB is not cut off, where it is at most 1 MiB.
        (11 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (30 * MIB, 30 * MIB, 30 * MIB),
    ],
)
def test_one_block(asked: int, allocated: int, reserved: int) -> None:
    allocator = Allocator()
    block = allocator.take(asked)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)
    allocator.give(block)
    assert (allocator.allocated, allocator.reserved) == (0, reserved)
    assert (allocator.most_allocated, allocator.most_reserved) == (allocated, reserved)


def test_the_smallest_that_is_large_enough() -> None:
    allocator = Allocator()
    blocks = [allocator.take(size * MIB) for size in (40, 24, 32)]
    for block in blocks:
        allocator.give(block)
    assert allocator.take(22 * MIB) is blocks[1]
    # The small ones do not take of the large ones' segments.
    allocator.take(1)
    assert allocator.reserved == (40 + 24 + 32 + 2) * MIB


def test_neighbours_join() -> None:
    allocator = Allocator()
    one, two, three = (allocator.take(6 * MIB) for _ in range(3))
    assert allocator.reserved == 20 * MIB
    allocator.give(one)
    allocator.give(three)
    allocator.take(9 * MIB)
    assert allocator.reserved == 40 * MIB, "the free ones are not beside each other"
    allocator.give(two)
    allocator.take(19 * MIB)
    assert allocator.reserved == 40 * MIB


def test_a_limit_has_free_segments_given_back() -> None:
    allocator = Allocator(limit=64 * MIB)
    block = allocator.take(40 * MIB)
    allocator.give(block)
    allocator.take(50 * MIB)
    assert allocator.reserved == 50 * MIB
    with pytest.raises(Short, match="20971520 bytes more than 52428800 reserved"):
        allocator.take(8 * MIB)
    assert allocator.reserved == 50 * MIB


def test_expandable_segments_grow() -> None:
    allocator = Allocator(expandable=True)
    one = allocator.take(30 * MIB)
    assert (allocator.allocated, allocator.reserved) == (30 * MIB, 40 * MIB)
    two = allocator.take(30 * MIB)
    assert allocator.reserved == 60 * MIB
    allocator.give(one)
    # Beside each other: what was freed at the front is too small, the end grows.
    allocator.take(35 * MIB)
    assert allocator.reserved == 100 * MIB
    allocator.give(two)
    allocator.take(60 * MIB)
    assert allocator.reserved == 100 * MIB


def check(allocator: Allocator, taken: dict[int, Block]) -> None:
    """Blocks lie one after the other, free ones are never neighbours, and the sums are right."""
    blocks = sorted(allocator._blocks.values(), key=lambda block: block.address)
    free = sorted(block.key for block in blocks if not block.taken)
    assert sorted(allocator._free[True] + allocator._free[False]) == free
    for block in blocks:
        after = block.after
        assert after is None or (after.before is block and after.address == block.address + block.size)
        assert after is None or block.taken or after.taken
    for one, two in zip(blocks, blocks[1:]):
        assert one.address + one.size <= two.address
    assert sum(block.size for block in blocks) == allocator.reserved <= allocator.most_reserved
    assert sum(block.size for block in taken.values()) == allocator.allocated <= allocator.most_allocated
    assert {block.address for block in blocks if block.taken} == {block.address for block in taken.values()}


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int, expandable: bool) -> None:
    rng = random.Random(seed)
    limit = rng.choice([None, 400 * MIB])
    allocator = Allocator(limit=limit, expandable=expandable)
    taken: dict[int, Block] = {}
    asked: dict[int, int] = {}
    for i in range(400):
        if taken and rng.random() < 0.45:
            name = rng.choice(list(taken))
            allocator.give(taken.pop(name))
        else:
            size = int(2 ** rng.uniform(0, 26))
            try:
                block = allocator.take(size)
            except Short:
                assert limit is not None
                continue
            assert block is not None
            taken[i], asked[i] = block, size
        check(allocator, taken)
        for name, block in taken.items():
            slack = 511 if block.small or expandable else 511 + MIB
            assert asked[name] <= block.size <= asked[name] + slack
    assert limit is None or allocator.most_reserved <= limit
    if not expandable and limit is None:
        assert allocator.most_reserved % SMALL_SEGMENT == 0 and MIDDLE_SEGMENT % SMALL_SEGMENT == 0
