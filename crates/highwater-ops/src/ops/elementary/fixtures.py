"""`sin`, `cos`, `expm1`, `log1p`, `erf`, `reciprocal`, `rsqrt` of x."""

from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def between(forward: Callable[[Tensor], Tensor], low: float, high: float) -> Callable[[Operation], None]:
    """Cases of numbers between two others."""

    def cases(op: Operation) -> None:
        op.tolerances = (1e-6, 1e-5)
        op.case(forward, torch.linspace(low, high, 97, dtype=torch.float64).float())
        for shape in [(3, 5, 37), (0, 5), ()]:
            op.case(forward, op.normal(*shape).clamp(low, high))
        op.case(forward, op.normal(13, 7).clamp(low, high).t())
        op.halves(forward, op.normal(5, 37).clamp(max(low, -3.0), min(high, 3.0)))

    return cases


def waves(forward: Callable[[Tensor], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        between(forward, -30.0, 30.0)(op)
        large = [1e4, -1e6, 1e10, 3e38, -1e-30, 0.0, -0.0, 16367173.0 * 2.0**72]
        op.case(forward, torch.tensor(large))

    return cases


OPERATIONS = {
    "sin": waves(torch.sin),
    "cos": waves(torch.cos),
    "expm1": between(torch.expm1, -20.0, 5.0),
    "log1p": between(torch.log1p, -0.75, 1e4),
    "erf": between(torch.erf, -5.0, 5.0),
    "reciprocal": between(torch.reciprocal, 0.125, 1e3),
    "rsqrt": between(torch.rsqrt, 0.125, 1e3),
}
