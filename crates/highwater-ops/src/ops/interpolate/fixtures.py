"""`interpolate` of x to `size`, by `scale` if that is given, in `mode`, with `align_corners` if that is bilinear; `interpolate_backward`, its gradient in x of `sides`, of the gradient."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation

MODES = [("nearest", None), ("bilinear", True), ("bilinear", False)]
# size, scale, x
CASES = [
    ((8, 10), None, (2, 3, 4, 5)),
    ((7, 3), None, (1, 2, 4, 5)),
    ((3, 1), None, (2, 2, 1, 6)),
    ((6, 12), (1.6, 2.5), (1, 2, 4, 5)),
]


def resized(x: Tensor, size, scale, mode: str, align_corners: bool | None) -> Tensor:
    return F.interpolate(x, None if scale else size, scale, mode, align_corners)


def interpolate(op: Operation) -> None:
    for mode, align_corners in MODES:
        for size, scale, shape in CASES:
            attrs = dict(size=size, scale=scale, mode=mode, align_corners=align_corners)
            op.case(lambda x, attrs=attrs: resized(x, **attrs), op.normal(*shape), **attrs)
    attrs = dict(size=(7, 3), scale=None, mode="bilinear", align_corners=False)
    op.halves(lambda x: resized(x, **attrs), op.normal(1, 2, 4, 5), **attrs)


def interpolate_backward(op: Operation) -> None:
    for mode, align_corners in MODES:
        for size, scale, shape in CASES[1::2]:
            attrs = dict(size=size, scale=scale, mode=mode, align_corners=align_corners)

            def forward(g: Tensor, attrs=attrs, shape=shape) -> Tensor:
                x = torch.zeros(shape, dtype=g.dtype, requires_grad=True)
                return torch.autograd.grad(resized(x, **attrs), x, g, create_graph=True)[0]

            op.case(forward, op.normal(*shape[:2], *size), sides=shape[2:], **attrs)


OPERATIONS = {"interpolate": interpolate, "interpolate_backward": interpolate_backward}
