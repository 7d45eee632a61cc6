"""`cumsum` of x.

Attribute: `dim`.
"""

import torch
from torch import Tensor

from pytorch import Operation


def cumsum(op: Operation) -> None:
    def case(x: Tensor, dim: int) -> None:
        op.case(lambda x: torch.cumsum(x, dim), x, dim=dim)

    for shape, dim in [((5, 37), -1), ((37, 5), 0), ((2, 17, 5), 1), ((64,), 0), ((0, 5), 0), ((), -1)]:
        case(op.normal(*shape), dim)
    case(op.normal(13, 7).t(), 0)
    for dtype in (torch.int64, torch.uint8):
        x = op.numbers.integers(0, 200, 7, 40).to(dtype)
        for dim in (0, 1):
            op.record((x.clone(),), [x.cumsum(dim)], {"dim": dim})
    op.halves(lambda x: torch.cumsum(x, 1), op.normal(5, 37), dim=1)


OPERATIONS = {"cumsum": cumsum}
