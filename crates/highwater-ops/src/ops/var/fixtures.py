"""`var` and `std` of x.

Attributes: `dim` (null: all; else a list), `correction`, `keepdim`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def moments(forward: Callable[..., Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        def case(x: Tensor, dim: list[int] | None, correction: int, keepdim: bool) -> None:
            attrs = {"dim": dim, "correction": correction, "keepdim": keepdim}
            op.case(lambda x: forward(x, **attrs), x, **attrs)

        for correction, keepdim in [(1, False), (0, True)]:
            case(op.normal(5, 37), None, correction, keepdim)
            case(op.normal(5, 37), [0], correction, keepdim)
            case(op.normal(5, 37) + 50, [-1], correction, keepdim)
            case(op.normal(3, 5, 7), [0, 2], correction, keepdim)
            case(op.normal(2049), None, correction, keepdim)
            case(op.normal(40, 70) + 50, [0], correction, keepdim)
        case(op.normal(13, 7).t(), [0], 1, False)
        case(op.normal(0, 5), [1], 1, False)
        case(op.normal(5, 4), [1], 2, False)
        op.halves(lambda x: forward(x, dim=1), op.normal(5, 37), dim=[1], correction=1, keepdim=False)
        # All alike: nothing to differentiate a root at.
        op.case(lambda x: forward(x, dim=1), torch.ones(3, 4), dim=[1], correction=1, keepdim=False)

    return cases


OPERATIONS = {"var": moments(torch.var), "std": moments(torch.std)}
