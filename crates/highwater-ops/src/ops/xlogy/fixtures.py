"""`xlogy` of x and y."""

import torch

from pytorch import Operation


def xlogy(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    positive = lambda *shape: op.normal(*shape).abs() + 0.5
    for x, y in [((5, 37), (5, 37)), ((2, 5, 37), (37,)), ((), ()), ((0, 5), (5,))]:
        op.case(torch.xlogy, op.normal(*x), positive(*y))
    op.case(torch.xlogy, op.normal(13, 7).t(), positive(7, 13))
    op.case(torch.xlogy, torch.tensor([0.0, -0.0, 0.0, 2.0]), torch.tensor([0.5, 3.0, 2.0, 1.0]))
    op.halves(torch.xlogy, op.normal(5, 37), positive(5, 37))


OPERATIONS = {"xlogy": xlogy}
