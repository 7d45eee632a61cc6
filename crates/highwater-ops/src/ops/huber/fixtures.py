"""`huber` of x, with `delta`: PyTorch's loss against zero."""

import torch
import torch.nn.functional as F

from pytorch import Operation, unary


def huber(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-6)
    for delta in (1.0, 0.25):
        unary(lambda x: F.huber_loss(x, torch.zeros_like(x), "none", delta), op, delta=delta)


OPERATIONS = {"huber": huber}
