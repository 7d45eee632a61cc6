"""`rms_norm` of x, and of a weight if there is a second input.

Attribute: `eps`.
"""

import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def rms_norm(op: Operation) -> None:
    def case(x: Tensor, weight: bool, eps: float = 1e-6) -> None:
        width = x.shape[-1]
        weights = [op.normal(width)] if weight else []
        op.case(lambda x, *weights: F.rms_norm(x, [width], *weights, eps=eps), x, *weights, eps=eps)

    for shape in [(5, 37), (2, 9, 48), (3, 513), (64,), (0, 5)]:
        case(op.normal(*shape), weight=True)
        case(op.normal(*shape), weight=False)
    case(op.normal(4, 64) + 100, weight=True)
    case(op.normal(4, 37) * 1e-3, weight=True, eps=1e-3)
    case(op.normal(37, 6).t(), weight=True)
    op.halves(
        lambda x, weight: F.rms_norm(x, [48], weight, eps=1e-5),
        op.normal(7, 48) + 3, op.normal(48), eps=1e-5,
    )


OPERATIONS = {"rms_norm": rms_norm}
