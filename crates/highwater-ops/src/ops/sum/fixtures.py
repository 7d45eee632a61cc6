"""`sum`, `mean`, `sum_to` (`Tensor.sum_to_size`) of x.

Attributes: `dim` (null: all; else a list), `keepdim`; of `sum_to` the `shape` of the result.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def reduction(forward: Callable[..., Tensor], of_nothing: bool) -> Callable[[Operation], None]:
    """Cases of `sum` and `mean`; `of_nothing`: whether a reduction of no elements has a value."""

    def cases(op: Operation) -> None:
        def case(x: Tensor, dim: list[int] | None, keepdim: bool) -> None:
            op.case(lambda x: forward(x, dim=dim, keepdim=keepdim), x, dim=dim, keepdim=keepdim)

        for keepdim in (False, True):
            case(op.normal(5, 37), None, keepdim)
            case(op.normal(5, 37), [0], keepdim)
            case(op.normal(5, 37), [-1], keepdim)
            case(op.normal(3, 5, 7), [1], keepdim)
            case(op.normal(3, 5, 7), [0, 2], keepdim)
        case(op.normal(2049), None, False)
        case(op.normal(), None, False)
        case(op.normal(13, 7).t(), [0], False)
        case(op.normal(0, 5), [1], False)
        for dim in (None, [0], [1]):
            op.halves(
                lambda x: forward(x, dim=dim, keepdim=False), op.normal(67, 37), dim=dim, keepdim=False
            )
        if of_nothing:
            case(op.normal(0, 5), None, False)
            case(op.normal(0, 5), [0], False)
            for dtype in (torch.int64, torch.uint8):
                x = op.numbers.integers(0, 200, 7, 40).to(dtype)
                for dim in (None, [0], [1]):
                    op.record((x.clone(),), [x.sum(dim=dim)], {"dim": dim, "keepdim": False})

    return cases


def sum_to(op: Operation) -> None:
    for shape, to in [
        ((5, 37), (37,)),
        ((5, 37), (5, 1)),
        ((5, 37), ()),
        ((2, 3, 5, 7), (3, 1, 7)),
        ((2, 3, 5, 7), (1, 3, 5, 1)),
        ((5, 37), (5, 37)),
        ((0, 5), (5,)),
        ((3, 0), (3, 1)),
    ]:
        op.case(lambda x: x.sum_to_size(to), op.normal(*shape), shape=to)
    op.case(lambda x: x.sum_to_size(7), op.normal(7, 13).t(), shape=(7,))
    op.halves(lambda x: x.sum_to_size(37), op.normal(67, 37), shape=(37,))


OPERATIONS = {
    "sum": reduction(torch.sum, of_nothing=True),
    "mean": reduction(torch.mean, of_nothing=False),
    "sum_to": sum_to,
}
