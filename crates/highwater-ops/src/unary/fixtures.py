"""`relu`, `tanh`, `neg`, `sigmoid`, `exp`, `log`, `sqrt` of x."""

from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation, unary


def relu(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    unary(torch.relu, op)


def bounded(forward: Callable[[Tensor], Tensor], op: Operation, low: float, high: float) -> None:
    """As `unary`, of numbers between two others."""
    op.case(forward, torch.linspace(low, high, 97, dtype=torch.float64).float())
    for shape in [(3, 5, 37), (0, 5), ()]:
        op.case(forward, op.normal(*shape).clamp(low, high))
    op.case(forward, op.normal(13, 7).clamp(low, high).t())
    op.halves(forward, op.normal(5, 37).clamp(max(low, 2**-10), high))


OPERATIONS = {
    "relu": relu,
    "tanh": lambda op: unary(torch.tanh, op),
    "neg": lambda op: unary(torch.neg, op),
    "sigmoid": lambda op: unary(torch.sigmoid, op),
    "exp": lambda op: bounded(torch.exp, op, -30.0, 30.0),
    "log": lambda op: bounded(torch.log, op, 2**-20, 1e6),
    "sqrt": lambda op: bounded(torch.sqrt, op, 2**-20, 1e6),
}
