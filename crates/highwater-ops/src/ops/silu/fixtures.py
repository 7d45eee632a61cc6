"""`silu` of x; its gradient `silu_backward` of g and x, differentiated again."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation, unary


def silu(op: Operation) -> None:
    unary(F.silu, op)


def silu_backward(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)

    def gradient(g: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(F.silu(x), x, g, create_graph=True)[0]

    for shape in [(5, 37), (0, 5), (), (13, 7)]:
        op.case(gradient, op.normal(*shape), op.normal(*shape) * 3)


OPERATIONS = {"silu": silu, "silu_backward": silu_backward}
