"""`silu` of x."""

import torch.nn.functional as F

from pytorch import Operation, unary


def silu(op: Operation) -> None:
    unary(F.silu, op)


OPERATIONS = {"silu": silu}
