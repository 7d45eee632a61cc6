"""`nll_loss` of rows and labels, without a reduction; its gradient `nll_loss_backward` of g and labels, of 37
classes, differentiated in g.
"""

import torch.nn.functional as F
import torch
from torch import Tensor

from pytorch import Operation, labels


def nll_loss(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)

    def loss(x: Tensor, target: Tensor) -> Tensor:
        rows = F.nll_loss(x.flatten(0, -2), target.flatten(), reduction="none")
        return rows.reshape(target.shape)

    for rows, classes, ignored in [(5, 37, 0), (65, 13, 9), (4, 1, 2)]:
        op.case(loss, op.normal(rows, classes), labels(op, rows, classes, ignored))
    op.case(loss, op.normal(2, 9, 7), labels(op, 18, 7, 3).reshape(2, 9))
    op.case(loss, op.normal(7, 13).t(), labels(op, 13, 7, 3))
    op.halves(loss, op.normal(5, 37), labels(op, 5, 37, 2))


def nll_loss_backward(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for rows, ignored in [(5, 0), (65, 9), (1, 0), (40, 4)]:
        target = labels(op, rows, 37, ignored)

        def gradient(g: Tensor) -> Tensor:
            leaf = torch.zeros(rows, 37, dtype=torch.float64, requires_grad=True)
            loss = F.nll_loss(leaf, target, reduction="none")
            return torch.autograd.grad(loss, leaf, g, create_graph=True)[0]

        op.case(lambda g, _: gradient(g), op.normal(rows), target)


OPERATIONS = {"nll_loss": nll_loss, "nll_loss_backward": nll_loss_backward}
