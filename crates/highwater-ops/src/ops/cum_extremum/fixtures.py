"""`cummax` and `cummin` of x: values, and in some cases indices.

Attribute: `dim`.
"""

import math

import torch

from pytorch import Operation

SHAPES = [((5, 37), -1), ((37, 5), 0), ((3, 17, 4), 1), ((300,), 0), ((), 0), ((0, 5), 1)]


def cases(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    run = getattr(torch, op.name)
    for shape, dim in SHAPES:
        op.case(lambda x: run(x, dim).values, op.normal(*shape), dim=dim)
    op.case(lambda x: run(x, 0).values, op.normal(13, 7).t(), dim=0)
    op.halves(lambda x: run(x, 1).values, op.normal(5, 37), dim=1)
    # Equal elements, zeros of both signs, infinities and NaN.
    x = op.numbers.integers(-2, 3, 4, 60).float()
    x[1, ::2] *= -1
    x[2, 3] = x[2, 40] = math.nan
    x[3, 7], x[3, 9] = math.inf, -math.inf
    op.record((x,), list(run(x, 1)), {"dim": 1})
    x = x.t().contiguous()
    op.record((x,), list(run(x, 0)), {"dim": 0})
    for dtype in (torch.int64, torch.uint8, torch.bool):
        x = op.numbers.integers(0, 2 if dtype == torch.bool else 200, 7, 40).to(dtype)
        for dim in (0, 1):
            op.record((x.clone(),), list(run(x, dim)), {"dim": dim})


OPERATIONS = {"cummax": cases, "cummin": cases}
