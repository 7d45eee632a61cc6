"""`prod` of x.

Attributes: `dim` (null: all; else a list of one), `keepdim`.
"""

import torch
from torch import Tensor

from pytorch import Operation


def prod(op: Operation) -> None:
    def case(x: Tensor, dim: int | None = None, keepdim: bool = False) -> None:
        attrs = {"dim": None if dim is None else [dim], "keepdim": keepdim}
        forward = (lambda x: x.prod()) if dim is None else (lambda x: x.prod(dim, keepdim))
        op.case(forward, x, **attrs)

    case(op.normal(5, 7))
    case(op.normal(5, 7), 0)
    case(op.normal(5, 7), -1, True)
    case(op.normal(3, 5, 7), 1)
    case(op.normal(20, 70), 0)
    case(op.normal())
    case(op.normal(0, 5), 0)
    case(op.normal(13, 7).t(), 0)
    # No zero in a line, one, and several.
    zeros = op.numbers.away_from_zero(4, 6)
    zeros[1, 2] = zeros[2, 3] = zeros[2, 5] = 0
    case(zeros, 1)
    case(zeros.clone(), 0)
    case(zeros.clone())
    for dtype in (torch.int64, torch.uint8):
        x = op.numbers.integers(1, 9, 7, 10).to(dtype)
        op.record((x.clone(),), [x.prod()], {"dim": None, "keepdim": False})
        op.record((x.clone(),), [x.prod(1, True)], {"dim": [1], "keepdim": True})
    op.halves(lambda x: x.prod(1), op.numbers.away_from_zero(5, 6), dim=[1], keepdim=False)


OPERATIONS = {"prod": prod}
