"""`binary_cross_entropy_with_logits` of logits and targets, without a reduction."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def loss(x: Tensor, y: Tensor) -> Tensor:
    # PyTorch's own takes no shapes that differ.
    x, y = torch.broadcast_tensors(x, y)
    return F.binary_cross_entropy_with_logits(x, y, reduction="none")


def bce_with_logits(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-6)
    targets = lambda *shape: op.numbers.integers(0, 5, *shape).float() / 4
    for x, y in [((5, 37), (5, 37)), ((2, 5, 37), (37,)), ((), ()), ((0, 5), (5,))]:
        op.case(loss, op.normal(*x) * 3, targets(*y))
    op.case(loss, op.normal(13, 7).t(), targets(7, 13))
    op.case(loss, torch.tensor([30.0, -30.0, 100.0, -100.0, 0.0]).repeat(2, 1), torch.tensor([[1.0], [0.0]]).repeat(1, 5))
    op.halves(loss, op.normal(5, 37) * 3, targets(5, 37))


OPERATIONS = {"binary_cross_entropy_with_logits": bce_with_logits}
