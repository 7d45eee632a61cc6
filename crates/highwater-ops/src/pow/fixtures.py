"""`pow_scalar` of x, to the power `exponent`."""

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


OPERATIONS = {"pow_scalar": pow_scalar}
