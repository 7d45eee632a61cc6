"""`gelu` of x; its gradient `gelu_backward` of g and x, without an approximation, differentiated again.

Attribute: `approximate`, `none` or `tanh`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation, unary


def gelu(op: Operation) -> None:
    for approximate in ("none", "tanh"):
        unary(lambda x: F.gelu(x, approximate=approximate), op, approximate=approximate)


def gelu_backward(op: Operation) -> None:
    def gradient(g: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(F.gelu(x), x, g, create_graph=True)[0]

    for shape in [(5, 37), (0, 5), (), (13, 7)]:
        op.case(gradient, op.normal(*shape), op.normal(*shape) * 2)


OPERATIONS = {"gelu": gelu, "gelu_backward": gelu_backward}
