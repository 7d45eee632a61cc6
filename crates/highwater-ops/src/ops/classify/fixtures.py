"""`isnan`, `isinf`, `isfinite` of x."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import HALVES, Operation


def kind(forward: Callable[[Tensor], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 3.4e38, 1e-45])
        for x in (special, op.normal(5, 37), op.normal(), op.normal(0, 5), special.repeat(9, 1).t()):
            op.record((x,), [forward(x)], {})
        for dtype in HALVES:
            x = special.to(dtype)
            op.record((x,), [forward(x)], {})

    return cases


OPERATIONS = {"isnan": kind(torch.isnan), "isinf": kind(torch.isinf), "isfinite": kind(torch.isfinite)}
