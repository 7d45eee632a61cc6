"""`pad` of x by `pad`, of the last dimension first, in `mode`, with `value` if that is constant; `pad_backward`, its gradient in x of `shape`, of the gradient."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation

CASES = [
    ((1, 3, 2, 1), "reflect", (2, 3, 4, 5)),
    ((1, 3, 2, 1), "replicate", (2, 3, 4, 5)),
    ((1, 3, 2, 1), "circular", (2, 3, 4, 5)),
    ((4, 4), "reflect", (2, 3, 5)),
    ((0, 3), "replicate", (2, 3, 40)),
]


def pad(op: Operation) -> None:
    for pads, mode, shape in CASES:
        op.case(lambda x, pads=pads, mode=mode: F.pad(x, pads, mode), op.normal(*shape), pad=pads, mode=mode)
    for pads, value, shape in [((2, 3), 1.5, (3, 7)), ((-2, 3, 1, -1), 0.0, (2, 4, 5)), ((1, 1, 0, 0, 2, 0), 0.0, (2, 3, 4))]:
        op.case(
            lambda x, pads=pads, value=value: F.pad(x, pads, "constant", value),
            op.normal(*shape), pad=pads, mode="constant", value=value,
        )
    op.halves(lambda x: F.pad(x, (1, 3, 2, 1), "reflect"), op.normal(2, 3, 4, 5), pad=(1, 3, 2, 1), mode="reflect")


def pad_backward(op: Operation) -> None:
    for pads, mode, shape in CASES:
        def forward(g: Tensor, pads=pads, mode=mode, shape=shape) -> Tensor:
            x = torch.zeros(shape, dtype=g.dtype, requires_grad=True)
            return torch.autograd.grad(F.pad(x, pads, mode), x, g, create_graph=True)[0]

        padded = F.pad(torch.zeros(shape), pads, mode).shape
        op.case(forward, op.normal(*padded), pad=pads, mode=mode, shape=shape)


OPERATIONS = {"pad": pad, "pad_backward": pad_backward}
