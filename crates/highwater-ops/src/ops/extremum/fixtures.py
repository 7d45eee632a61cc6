"""`amax`, `amin` of x; `max`, `min` of x: values, and in some cases which elements they are.

Attributes: `dim` (null: all; else a list), `keepdim`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation

CASES = [
    ((5, 37), [0], False),
    ((5, 37), [-1], True),
    ((3, 5, 7), [1], False),
    ((2049,), [0], False),
    ((), [0], False),
    ((0, 5), [1], False),
    ((40, 70), [0], True),
]


def tied(op: Operation, *shape: int) -> Tensor:
    """Few different numbers, so that several are the largest."""
    return op.numbers.integers(-2, 3, *shape).float()


def extremum(forward: Callable[..., Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        def case(x: Tensor, dim: list[int] | None, keepdim: bool) -> None:
            over = () if dim is None else dim
            op.case(lambda x: forward(x, dim=over, keepdim=keepdim), x, dim=dim, keepdim=keepdim)

        for shape, dim, keepdim in CASES:
            case(op.normal(*shape), dim, keepdim)
        case(op.normal(3, 5, 7), [0, 2], True)
        case(op.normal(3, 5, 7), None, False)
        case(tied(op, 5, 40), [1], False)
        case(tied(op, 40, 20), [0], True)
        case(op.normal(13, 7).t(), [0], False)
        x = op.numbers.integers(-9, 10, 6, 40)
        for dim in ([0], [1], [0, 1]):
            op.record((x.clone(),), [forward(x, dim=dim)], {"dim": dim, "keepdim": False})
        op.halves(lambda x: forward(x, dim=1), tied(op, 5, 37), dim=[1], keepdim=False)

    return cases


def at(forward: Callable) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        for shape, dim, keepdim in CASES:
            op.case(lambda x: forward(x, dim[0], keepdim).values, op.normal(*shape), dim=dim, keepdim=keepdim)
        op.case(lambda x: forward(x, 0).values, op.normal(13, 7).t(), dim=[0], keepdim=False)
        op.case(lambda x: forward(x, 1).values, tied(op, 5, 40), dim=[1], keepdim=False)
        # Values and places, NaN and ties among them.
        for shape, dim in [((5, 40), 1), ((40, 20), 0)]:
            x = tied(op, *shape)
            x[3, 3:7] = math.nan
            values, places = forward(x, dim)
            op.record((x,), [values, places], {"dim": [dim], "keepdim": False})
        # PyTorch does not say which of equal whole numbers it takes: these are all different.
        x = op.numbers.integers(-(1 << 40), 1 << 40, 6, 40)
        for dim in (0, 1):
            op.record((x.clone(),), list(forward(x, dim)), {"dim": [dim], "keepdim": False})

    return cases


OPERATIONS = {
    "amax": extremum(torch.amax),
    "amin": extremum(torch.amin),
    "max": at(torch.max),
    "min": at(torch.min),
}
