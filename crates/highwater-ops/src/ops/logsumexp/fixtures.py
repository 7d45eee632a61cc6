"""`logsumexp` of x.

Attributes: `dim` (a list), `keepdim`.
"""

import math

import torch
from torch import Tensor

from pytorch import Operation


def logsumexp(op: Operation) -> None:
    # Gradients are of results that were rounded.
    op.tolerances = (1e-5, 1e-4)

    def case(x: Tensor, dim: list[int], keepdim: bool = False) -> None:
        op.case(lambda x: torch.logsumexp(x, dim, keepdim), x, dim=dim, keepdim=keepdim)

    case(op.normal(5, 37), [0])
    case(op.normal(5, 37), [-1], True)
    case(op.normal(3, 5, 7), [0, 2])
    case(op.normal(2049), [0])
    case(op.normal(40, 70) * 1000, [0])
    case(op.normal(4, 48) * 1000, [1])
    case(op.normal(13, 7).t(), [0])
    case(op.normal(), [0])
    op.record((op.normal(0, 5),), [torch.full((5,), -math.inf)], {"dim": [0], "keepdim": False})
    # Infinities among the elements, and nothing else.
    x = op.normal(6, 40)
    x[1, 3] = x[2, 4:9] = math.inf
    x[3, 5:20] = -math.inf
    x[4, :] = -math.inf
    x[5, 7] = math.nan
    for value in (x, x.t()):
        dim = [1] if value is x else [0]
        value = value.contiguous()
        op.record((value,), [torch.logsumexp(value.double(), dim)], {"dim": dim, "keepdim": False})
    op.halves(lambda x: torch.logsumexp(x, [1]), op.normal(5, 37), dim=[1], keepdim=False)


OPERATIONS = {"logsumexp": logsumexp}
