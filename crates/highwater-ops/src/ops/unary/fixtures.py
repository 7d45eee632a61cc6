"""`relu`, `tanh`, `neg`, `sigmoid`, `exp`, `log`, `sqrt` of x; the gradients `relu_backward`, `tanh_backward`,
`sigmoid_backward`, `sqrt_backward` of g and of the output y, differentiated again.
"""

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


def again(gradient: Callable[[Tensor, Tensor], Tensor], op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for shape in [(5, 37), (0, 5), ()]:
        op.case(gradient, op.normal(*shape), op.normal(*shape).abs() + 0.25)
    op.case(gradient, op.normal(13, 7).t(), op.normal(7, 13).abs() + 0.25)


def relu_backward(op: Operation) -> None:
    again(lambda g, y: torch.where(y > 0, g, 0.0) + 0 * y, op)


OPERATIONS = {
    "relu": relu,
    "tanh": lambda op: unary(torch.tanh, op),
    "relu_backward": relu_backward,
    "tanh_backward": lambda op: again(lambda g, y: g * (1 - y * y), op),
    "sigmoid_backward": lambda op: again(lambda g, y: g * (1 - y) * y, op),
    "sqrt_backward": lambda op: again(lambda g, y: g / (2 * y), op),
    "neg": lambda op: unary(torch.neg, op),
    "sigmoid": lambda op: unary(torch.sigmoid, op),
    "exp": lambda op: bounded(torch.exp, op, -30.0, 30.0),
    "log": lambda op: bounded(torch.log, op, 2**-20, 1e6),
    "sqrt": lambda op: bounded(torch.sqrt, op, 2**-20, 1e6),
}
