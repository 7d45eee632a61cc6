"""`cross_entropy` of logits [N, C] and labels [N].

Attributes: `reduction` (`mean` or `sum`), `ignore_index`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation, labels


def cross_entropy(op: Operation) -> None:
    def case(logits: Tensor, target: Tensor, reduction: str) -> None:
        op.case(
            lambda x, t: F.cross_entropy(x, t, ignore_index=-100, reduction=reduction),
            logits, target, reduction=reduction, ignore_index=-100,
        )

    for reduction in ("mean", "sum"):
        for rows, classes, ignored in [(5, 37, 0), (33, 48, 6), (1, 7, 0), (7, 1, 0), (3, 1025, 1)]:
            case(op.normal(rows, classes) * 2, labels(op, rows, classes, ignored), reduction)
        case(op.normal(4, 64) * 1000, labels(op, 4, 64, 0), reduction)
        case(op.normal(37, 6).t(), labels(op, 6, 37, 2), reduction)
    case(op.normal(4, 9), torch.full((4,), -100), "sum")
    case(op.normal(0, 9), labels(op, 0, 9, 0), "sum")
    op.halves(
        lambda x, t: F.cross_entropy(x, t, ignore_index=-100),
        op.normal(33, 48) * 2, labels(op, 33, 48, 6), reduction="mean", ignore_index=-100,
    )


OPERATIONS = {"cross_entropy": cross_entropy}
