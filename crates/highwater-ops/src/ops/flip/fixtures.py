"""`flip` of x.

Attribute: `dims`.
"""

import torch
from torch import Tensor

from pytorch import Operation


def flip(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)

    def case(x: Tensor, *dims: int) -> None:
        op.case(lambda x: torch.flip(x, dims), x, dims=dims)

    case(op.normal(7, 5), 0)
    case(op.normal(7, 5), 1)
    case(op.normal(3, 5, 7), 0, 2)
    case(op.normal(13, 7).t(), 1)
    case(op.normal(0, 5), 0)


OPERATIONS = {"flip": flip}
