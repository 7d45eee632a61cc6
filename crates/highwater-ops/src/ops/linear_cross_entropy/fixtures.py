"""`linear_cross_entropy` of x [..., C], weight [V, C], labels [...].

Attributes: `reduction`, `ignore_index`.
"""

import math

import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation, labels


def linear_cross_entropy(op: Operation) -> None:
    def forward(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        logits = F.linear(x, weight).flatten(0, -2)
        return F.cross_entropy(logits, target.flatten(), ignore_index=-100, reduction="mean")

    for shape, classes, ignored in [
        ((5, 7), 11, 0),
        ((33, 37), 101, 0),
        ((33, 16), 257, 5),
        ((2, 9, 48), 37, 4),
        ((1, 64), 3, 0),
    ]:
        target = labels(op, math.prod(shape[:-1]), classes, ignored).reshape(shape[:-1])
        weight = op.normal(classes, shape[-1]) / 4
        op.case(forward, op.normal(*shape), weight, target, reduction="mean", ignore_index=-100)
    weight, target = op.normal(101, 37) / 4, labels(op, 65, 101, 5)
    op.halves(forward, op.normal(65, 37), weight, target, reduction="mean", ignore_index=-100)


OPERATIONS = {"linear_cross_entropy": linear_cross_entropy}
