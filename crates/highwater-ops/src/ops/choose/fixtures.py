"""`where` of a condition, a and b."""

import math

import torch
from torch import Tensor

from pytorch import HALVES, Operation, to_half


def where(op: Operation) -> None:
    op.tolerances = (0.0, 1e-5)
    n = op.normal

    def truths(*shape: int) -> Tensor:
        return op.numbers.integers(0, 2, *shape) > 0

    for condition, a, b in [
        ((7, 37), (7, 37), (7, 37)),
        ((5, 1), (2, 5, 37), (37,)),
        ((2, 5, 37), (37,), ()),
        ((), (5, 37), (5, 37)),
        ((3, 1), (1, 4), (3, 4)),
        ((0, 5), (5,), ()),
    ]:
        op.case(torch.where, truths(*condition), n(*a), n(*b))
    op.case(torch.where, truths(13, 9), n(9, 13).t(), n(13, 9))
    op.case(torch.where, truths(9, 13).t(), n(9, 13).t(), n(9, 13).t())
    op.case(torch.where, truths(5), n(5), torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0]))
    for dtype in HALVES:
        op.case(torch.where, *to_half(dtype, truths(5, 37), n(5, 37), n(37)))
    whole = truths(5, 37), op.numbers.integers(-9, 9, 5, 37), op.numbers.integers(-9, 9, 37)
    op.record(whole, [torch.where(*whole)], {})


OPERATIONS = {"where": where}
