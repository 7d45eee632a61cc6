"""`cumprod` of x.

Attribute: `dim`.
"""

import torch
from torch import Tensor

from pytorch import Operation


def cumprod(op: Operation) -> None:
    def case(x: Tensor, dim: int) -> None:
        op.case(lambda x: torch.cumprod(x, dim), x, dim=dim)

    for shape, dim in [((5, 17), -1), ((17, 5), 0), ((2, 17, 5), 1), ((24,), 0), ((0, 5), 0), ((), -1)]:
        case(op.normal(*shape), dim)
    case(op.normal(13, 7).t(), 0)
    # One zero, or several.
    x = op.normal(4, 9)
    x[0, 3] = x[1, 0] = x[1, 5] = x[2, 8] = 0
    case(x, 1)
    case(x.t().contiguous(), 0)
    for dtype in (torch.int64, torch.uint8, torch.bool):
        x = op.numbers.integers(0, 2 if dtype == torch.bool else 30, 7, 40).to(dtype)
        for dim in (0, 1):
            op.record((x.clone(),), [x.cumprod(dim)], {"dim": dim})
    op.halves(lambda x: torch.cumprod(x, 1), op.normal(5, 7), dim=1)


OPERATIONS = {"cumprod": cumprod}
