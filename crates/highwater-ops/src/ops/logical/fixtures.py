"""`logical_and`, `logical_or`, `logical_xor` of a and b, `logical_not` of a, all of bool."""

from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def truths(op: Operation, *shape: int) -> Tensor:
    return op.numbers.integers(0, 2, *shape) > 0


def of_two(forward: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        for a, b in [((7, 37), (7, 37)), ((2, 5, 37), (37,)), ((5, 37), ()), ((2, 1, 8), (5, 1)), ((0, 5), (5,))]:
            a, b = truths(op, *a), truths(op, *b)
            op.record((a, b), [forward(a, b)], {})
        a, b = truths(op, 9, 13).t(), truths(op, 13, 9)
        op.record((a, b), [forward(a, b)], {})

    return cases


def logical_not(op: Operation) -> None:
    for x in (truths(op, 5, 37), truths(op), truths(op, 0, 5), truths(op, 9, 13).t()):
        op.record((x,), [torch.logical_not(x)], {})


OPERATIONS = {
    "logical_and": of_two(torch.logical_and),
    "logical_or": of_two(torch.logical_or),
    "logical_xor": of_two(torch.logical_xor),
    "logical_not": logical_not,
}
