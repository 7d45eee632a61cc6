"""`clamp` of x between `min` and `max`, either of which may be left out; its gradient `clamp_backward` of g and
x, for the first bounds, differentiated in g.
"""

import math

import torch
from torch import Tensor

from pytorch import Operation, unary

BOUNDS = [{"min": -0.5, "max": 0.75}, {"min": 0.0}, {"max": 1.0}, {"min": 2.0, "max": -1.0}]


def clamp(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for bounds in BOUNDS:
        unary(lambda x: torch.clamp(x, **bounds), op, **bounds)
        edges = [-0.5, 0.75, 1.0, 2.0, -1.0, math.inf, -math.inf, math.nan]
        op.case(lambda x: torch.clamp(x, **bounds), torch.tensor(edges), **bounds)


def clamp_backward(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for x in (op.normal(5, 37), op.normal(), op.normal(0, 5), torch.tensor([-0.5, 0.75, 0.0, 1.0, math.nan])):

        def gradient(g: Tensor) -> Tensor:
            leaf = x.double().requires_grad_()
            return torch.autograd.grad(torch.clamp(leaf, **BOUNDS[0]), leaf, g.double())[0]

        g, grad_output = op.normal(*x.shape), op.normal(*x.shape)
        op.record((g, x), [gradient(g)], {}, grad_output, {0: gradient(grad_output)})


OPERATIONS = {"clamp": clamp, "clamp_backward": clamp_backward}
