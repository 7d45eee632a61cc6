"""`linear` of x, weight [out, in], bias if `bias`."""

import torch.nn.functional as F

from pytorch import Operation


def linear(op: Operation) -> None:
    n = op.normal
    for x, out in [((5, 7), 3), ((33, 37), 48), ((2, 9, 48), 37), ((1, 64), 1), ((0, 5), 3)]:
        op.case(F.linear, n(*x), n(out, x[-1]), bias=False)
        op.case(F.linear, n(*x), n(out, x[-1]), n(out), bias=True)
    op.case(F.linear, n(2, 7, 9).transpose(1, 2), n(5, 7), n(5), bias=True)
    op.halves(F.linear, n(2, 9, 513), n(37, 513), n(37), bias=True)


OPERATIONS = {"linear": linear}
