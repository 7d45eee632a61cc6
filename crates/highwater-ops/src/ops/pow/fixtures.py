"""`pow` of a and b; `pow_scalar` of x, to the power `exponent`."""

import math

import torch

from pytorch import Operation


def pow_scalar(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, math.inf, -math.inf, math.nan])
    for exponent in (0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, 1.5, -0.25, 0.75):
        forward = lambda x: torch.pow(x, exponent)
        op.case(forward, special.clone(), exponent=exponent)
        numbers = op.normal(5, 37)
        numbers = numbers if exponent.is_integer() else numbers.abs() + 0.5
        numbers = torch.where(numbers.abs() < 0.25, numbers + 1, numbers)
        op.case(forward, numbers, exponent=exponent)
        op.halves(forward, numbers, exponent=exponent)
    for x in (op.normal(13, 7).t(), op.normal(0, 5), op.normal()):
        op.case(lambda x: torch.pow(x, 3.0), x, exponent=3.0)


def pow(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    positive = lambda *shape: op.normal(*shape).abs() + 0.5
    for a, b in [((5, 37), (5, 37)), ((2, 5, 37), (37,)), ((5, 37), ()), ((), (7,)), ((0, 5), (5,))]:
        op.case(torch.pow, positive(*a), op.normal(*b))
    op.case(torch.pow, positive(9, 13).t(), op.normal(13, 9))
    op.halves(torch.pow, positive(5, 37), op.normal(5, 37))
    bases = [0.0, 1.0, 2.0, -2.0, -0.5]
    exponents = [0.0, 1.0, 2.0, 3.0]
    op.case(torch.pow, torch.tensor(bases).reshape(-1, 1).repeat(1, 4), torch.tensor(exponents).repeat(5, 1))


OPERATIONS = {"pow": pow, "pow_scalar": pow_scalar}
