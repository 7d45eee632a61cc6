"""`softmax` of x.

Attribute: `dim`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def softmax(op: Operation) -> None:
    def case(x: Tensor) -> None:
        op.case(lambda x: F.softmax(x, -1), x, dim=-1)

    for shape in [(5, 37), (2, 3, 5, 33), (7, 1), (2, 1025), (64,), (0, 5), (3, 0)]:
        case(op.normal(*shape))
    case(op.normal(4, 48) * 1000)
    masked = op.normal(9, 9)
    case(masked.masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf))
    case(op.normal(37, 6).t())
    op.halves(lambda x: F.softmax(x, -1), op.normal(5, 37) * 4, dim=-1)


OPERATIONS = {"softmax": softmax}
