"""`softmax` of x, and its gradient `softmax_backward` of g and y.

Attribute: `dim`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def softmax(op: Operation) -> None:
    def case(x: Tensor, dim: int = -1) -> None:
        op.case(lambda x: F.softmax(x, dim), x, dim=dim)

    for shape in [(5, 37), (2, 3, 5, 33), (7, 1), (2, 1025), (64,), (0, 5), (3, 0)]:
        case(op.normal(*shape))
    case(op.normal(4, 48) * 1000)
    masked = op.normal(9, 9)
    case(masked.masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf))
    case(op.normal(37, 6).t())
    op.halves(lambda x: F.softmax(x, -1), op.normal(5, 37) * 4, dim=-1)
    for shape, dim in [((5, 37), 0), ((2, 3, 5, 33), 1), ((3, 70, 2), -2), ((0, 5), 0), ((), 0)]:
        case(op.normal(*shape), dim)
    case(op.normal(37, 6).t(), 0)
    op.halves(lambda x: F.softmax(x, 0), op.normal(37, 5) * 4, dim=0)


def softmax_backward(op: Operation) -> None:
    for shape, dim in [((5, 37), 1), ((37, 5), 0), ((2, 3, 33), -1), ((3, 17, 4), 1)]:

        def backward(g: Tensor, y: Tensor) -> Tensor:
            return y * (g - (g * y).sum(dim, keepdim=True))

        op.case(backward, op.normal(*shape), F.softmax(op.normal(*shape), dim), dim=dim)


OPERATIONS = {"softmax": softmax, "softmax_backward": softmax_backward}
