"""`eq`, `ne`, `lt`, `le`, `gt`, `ge` of a and b."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation, to_half, HALVES


def comparison(forward: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        def case(a: Tensor, b: Tensor) -> None:
            op.record((a, b), [forward(a, b)], {})

        whole = lambda *shape: op.numbers.integers(-2, 3, *shape)
        for a, b in [((7, 37), (7, 37)), ((2, 5, 37), (37,)), ((5, 37), ()), ((2, 1, 8), (5, 1)), ((0, 5), (5,))]:
            case(whole(*a).float(), whole(*b).float())
            case(whole(*a), whole(*b))
        case(whole(9, 13).float().t(), whole(13, 9).float())
        for dtype in HALVES:
            case(*to_half(dtype, whole(5, 37).float(), whole(5, 37).float()))
        case(whole(5, 37).abs().to(torch.uint8), whole(5, 37).abs().to(torch.uint8))
        case(whole(5, 37) > 0, whole(5, 37) > 0)
        special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]
        case(torch.tensor(special).reshape(-1, 1), torch.tensor(special))

    return cases


OPERATIONS = {
    "eq": comparison(torch.eq),
    "ne": comparison(torch.ne),
    "lt": comparison(torch.lt),
    "le": comparison(torch.le),
    "gt": comparison(torch.gt),
    "ge": comparison(torch.ge),
}
