"""`log_softmax` of x, and its gradient `log_softmax_backward` of g and y.

Attribute: `dim`.
"""

import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def log_softmax(op: Operation) -> None:
    def case(x: Tensor, dim: int) -> None:
        op.case(lambda x: F.log_softmax(x, dim), x, dim=dim)

    for shape, dim in [((5, 37), -1), ((5, 37), 0), ((2, 3, 5, 33), 1), ((2, 1025), 1), ((64,), 0)]:
        case(op.normal(*shape), dim)
    for shape, dim in [((0, 5), 1), ((0, 5), 0), ((3, 0), -1), ((), 0)]:
        case(op.normal(*shape), dim)
    case(op.normal(4, 48) * 1000, -1)
    case(op.normal(37, 6).t(), 0)
    op.halves(lambda x: F.log_softmax(x, -1), op.normal(5, 37) * 4, dim=-1)
    op.halves(lambda x: F.log_softmax(x, 0), op.normal(37, 5) * 4, dim=0)


def log_softmax_backward(op: Operation) -> None:
    for shape, dim in [((5, 37), 1), ((37, 5), 0), ((2, 3, 33), -1), ((3, 17, 4), 1)]:

        def backward(g: Tensor, y: Tensor) -> Tensor:
            return g - y.exp() * g.sum(dim, keepdim=True)

        op.case(backward, op.normal(*shape), F.log_softmax(op.normal(*shape), dim), dim=dim)


OPERATIONS = {"log_softmax": log_softmax, "log_softmax_backward": log_softmax_backward}
