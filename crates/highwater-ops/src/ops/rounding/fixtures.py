"""`sign`, `floor`, `ceil`, `round` of x."""

from collections.abc import Callable

import math

import torch
from torch import Tensor

from pytorch import Operation, unary


def rounding(forward: Callable[[Tensor], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        op.tolerances = (0.0, 0.0)
        unary(forward, op)
        halves = [0.5, 1.5, -2.5, 3.5, 8388609.0, 1e30, math.inf, -math.inf, math.nan]
        op.case(forward, torch.tensor(halves))

    return cases


OPERATIONS = {
    "sign": rounding(torch.sign),
    "floor": rounding(torch.floor),
    "ceil": rounding(torch.ceil),
    "round": rounding(torch.round),
}
