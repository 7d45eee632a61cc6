"""`any` and `all` of x.

Attributes: `dim` (null: all; else a list), `keepdim`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def truth(forward: Callable[..., Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        def case(x: Tensor, dim: list[int] | None, keepdim: bool = False) -> None:
            result = forward(x) if dim is None else forward(x, dim, keepdim)
            # Truth values are bytes here.
            op.record((x,), [result.to(torch.uint8)], {"dim": dim, "keepdim": keepdim})

        whole = op.numbers.integers
        for dim in (None, [0], [1], [0, 1]):
            case(whole(0, 2, 5, 3), dim, dim == [1])
            case(whole(0, 5, 4, 3).float(), dim)
        case(whole(0, 2, 3, 40), [0])
        case(whole(0, 2, 0, 5), [0])
        case(whole(0, 2, 0, 5), None)
        case(torch.tensor([[-0.0, math.nan], [0.0, -0.0]]), [1])

    return cases


OPERATIONS = {"any": truth(torch.any), "all": truth(torch.all)}
