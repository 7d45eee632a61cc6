"""`sort` and `topk` of x: values, and in some cases indices.

Attributes: `dim`, `descending`; of `topk` also `k`, where `descending` stands for `largest`.
"""

import math

import torch

from pytorch import Operation

SHAPES = [((5, 37), -1), ((37, 5), 0), ((3, 17, 4), 1), ((300,), 0), ((), 0), ((0, 5), 1)]


def sort(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for descending in (False, True):
        attrs = {"descending": descending}
        for shape, dim in SHAPES:
            op.case(lambda x: x.sort(dim, descending).values, op.normal(*shape), dim=dim, **attrs)
        # Equal elements, zeros of both signs, infinities and NaN.
        x = op.numbers.integers(-2, 3, 4, 60).float()
        x[1, ::2] *= -1
        x[2, 3] = x[2, 40] = math.nan
        x[3, 7], x[3, 9] = math.inf, -math.inf
        result = x.sort(dim=1, descending=descending, stable=True)
        op.record((x,), list(result), {"dim": 1, **attrs})
    op.case(lambda x: x.sort(0).values, op.normal(13, 7).t(), dim=0, descending=False)
    for dtype in (torch.int64, torch.uint8):
        x = op.numbers.integers(0, 20, 5, 40).to(dtype)
        for dim, descending in [(0, True), (1, False)]:
            result = x.sort(dim=dim, descending=descending, stable=True)
            op.record((x.clone(),), list(result), {"dim": dim, "descending": descending})


def topk(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for largest in (True, False):
        attrs = {"descending": largest}
        for (shape, dim), k in zip(SHAPES, [3, 37, 1, 20, 1, 2]):
            op.case(lambda x: x.topk(k, dim, largest).values, op.normal(*shape), dim=dim, k=k, **attrs)
        x = op.normal(5, 40)
        x[2, 3] = math.nan
        op.record((x,), list(x.topk(4, 1, largest)), {"dim": 1, "k": 4, **attrs})
        x = op.numbers.integers(-(1 << 40), 1 << 40, 5, 40)
        op.record((x,), list(x.topk(4, 1, largest)), {"dim": 1, "k": 4, **attrs})


OPERATIONS = {"sort": sort, "topk": topk}
