"""`tril` and `triu` of x.

Attribute: `diagonal`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def triangle(forward: Callable[..., Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        op.tolerances = (0.0, 0.0)
        for shape, diagonal in [((5, 5), 0), ((5, 7), -2), ((7, 5), 3), ((2, 3, 4, 4), 1), ((0, 5), 0)]:
            op.case(lambda x: forward(x, diagonal), op.normal(*shape), diagonal=diagonal)
        op.case(lambda x: forward(x, -9), op.normal(7, 4).t(), diagonal=-9)

    return cases


OPERATIONS = {"tril": triangle(torch.tril), "triu": triangle(torch.triu)}
