"""`cast` of x: the value, and its gradient, go to a dtype and back to f32.

Attribute: `via`, `F64`, `BF16` or `F16`.
"""

import math

import torch

from pytorch import DTYPES, Operation


def cast(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    ties = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0]
    extremes = [0.0, -0.0, 3.4e38, -3.4e38, 1e-8, 6e-8, 1e-40, -1e-40, math.inf, -math.inf]
    for via in (torch.float64, torch.bfloat16, torch.float16):
        for x in (op.normal(5, 37), torch.tensor(ties + extremes), op.normal(0, 5)):
            leaf = x.clone().requires_grad_()
            output = leaf.to(via).to(torch.float32)
            grad_output = op.normal(*x.shape)
            (grad,) = torch.autograd.grad(output, leaf, grad_output)
            attrs = {"via": DTYPES.get(via, "F16")}
            op.record((x,), [output], attrs, grad_output, {0: grad})


OPERATIONS = {"cast": cast}
