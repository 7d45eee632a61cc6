"""`swiglu` of gate and up."""

import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def swiglu(op: Operation) -> None:
    def forward(gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up

    op.case(forward, op.normal(3, 5, 37) * 3, op.normal(3, 5, 37))
    op.case(forward, (op.normal(13, 7) * 20).t(), op.normal(7, 13))
    op.case(forward, op.normal(2, 5, 37), op.normal(37))
    op.case(forward, op.normal(0, 5), op.normal(0, 5))
    op.halves(forward, op.normal(5, 37) * 2, op.normal(5, 37))


OPERATIONS = {"swiglu": swiglu}
