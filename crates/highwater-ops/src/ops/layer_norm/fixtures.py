"""`layer_norm` of x, weight if `weight`, bias if `bias`.

Further attributes: `normalized_shape`, `eps`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def layer_norm(op: Operation) -> None:
    def case(x: Tensor, weight: bool, bias: bool, eps: float = 1e-5) -> None:
        width = x.shape[-1]
        affine = [op.normal(width) for wanted in (weight, bias) if wanted]
        op.case(
            lambda x, *affine: F.layer_norm(
                x, [width], affine[0] if weight else None, affine[-1] if bias else None, eps
            ),
            x, *affine, normalized_shape=[width], eps=eps, weight=weight, bias=bias,
        )

    for shape in [(5, 37), (2, 9, 48), (3, 513), (64,), (0, 5)]:
        case(op.normal(*shape), weight=True, bias=True)
        case(op.normal(*shape), weight=False, bias=False)
    case(op.normal(5, 37), weight=True, bias=False)
    case(op.normal(4, 64) + 100, weight=True, bias=True)
    case(torch.full((3, 48), 0.5), weight=True, bias=True)
    case(op.normal(4, 37), weight=True, bias=True, eps=1e-3)
    case(op.normal(37, 6).t(), weight=True, bias=True)
    op.halves(
        lambda x, weight, bias: F.layer_norm(x, [48], weight, bias),
        op.normal(7, 48) + 3, op.normal(48), op.normal(48),
        normalized_shape=[48], eps=1e-5, weight=True, bias=True,
    )


OPERATIONS = {"layer_norm": layer_norm}
