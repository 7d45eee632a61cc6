"""`conv2d` of x, weight, bias if `bias`; `conv_transpose2d` of the same; `conv2d_weight` of x and the gradient.

Further attributes: `stride`, `padding`, `dilation`, `groups`, of rows and columns; `output_padding` of the
second, `kernel` of the third.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation

# stride, padding, dilation, groups, x, weight
CASES = [
    ((1, 1), (0, 0), (1, 1), 1, (2, 3, 5, 6), (4, 3, 3, 2)),
    ((1, 1), (1, 1), (1, 1), 1, (2, 5, 7, 7), (3, 5, 3, 3)),
    ((2, 2), (1, 1), (1, 1), 1, (2, 3, 9, 8), (5, 3, 3, 3)),
    ((2, 2), (3, 3), (1, 1), 1, (1, 3, 16, 15), (4, 3, 7, 7)),
    ((2, 2), (0, 0), (1, 1), 1, (2, 3, 7, 6), (4, 3, 1, 1)),
    ((3, 2), (2, 3), (2, 3), 1, (2, 2, 11, 13), (3, 2, 3, 2)),
    ((1, 2), (1, 1), (2, 1), 3, (2, 6, 6, 7), (6, 2, 3, 3)),
    ((1, 1), (1, 1), (1, 1), 4, (2, 4, 5, 5), (4, 1, 3, 3)),
    ((1, 1), (0, 0), (1, 1), 1, (3, 40, 4, 5), (37, 40, 1, 1)),
]


def conv2d(op: Operation) -> None:
    op.tolerances = (2e-5, 4e-5)
    for i, (stride, padding, dilation, groups, x, w) in enumerate(CASES):
        def forward(*inputs: Tensor) -> Tensor:
            bias = inputs[2] if len(inputs) > 2 else None
            return F.conv2d(inputs[0], inputs[1], bias, stride, padding, dilation, groups)

        bias = [op.normal(w[0])] if i % 2 == 0 else []
        attrs = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bool(bias))
        op.case(forward, op.normal(*x), op.normal(*w), *bias, **attrs)
        if i == 1:
            last = op.normal(2, 7, 7, 5).permute(0, 3, 1, 2)
            op.case(forward, last, op.normal(*w), **attrs)
        if i == 2:
            op.halves(forward, op.normal(*x), op.normal(*w), *bias, **attrs)


def conv_transpose2d(op: Operation) -> None:
    op.tolerances = (2e-5, 4e-5)
    cases = [(*case, (0, 0)) for case in CASES[:3]] + [
        ((2, 2), (1, 1), (1, 1), 1, (2, 3, 4, 5), (5, 3, 3, 3), (1, 1)),
        ((2, 3), (1, 2), (1, 2), 2, (2, 6, 4, 3), (4, 3, 3, 2), (1, 2)),
        ((1, 1), (0, 0), (3, 3), 1, (2, 3, 4, 5), (3, 3, 2, 2), (2, 1)),
        ((2, 2), (0, 0), (1, 1), 1, (2, 4, 3, 3), (6, 4, 2, 2), (0, 0)),
    ]
    for i, (stride, padding, dilation, groups, x, w, more) in enumerate(cases):
        def forward(*inputs: Tensor) -> Tensor:
            bias = inputs[2] if len(inputs) > 2 else None
            return F.conv_transpose2d(inputs[0], inputs[1], bias, stride, padding, more, groups, dilation)

        x, w = (x[0], w[0], *x[2:]), w
        bias = [op.normal(w[1] * groups)] if i % 2 == 0 else []
        attrs = dict(stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bool(bias))
        attrs["output_padding"] = more
        op.case(forward, op.normal(*x), op.normal(*w), *bias, **attrs)
        if i == 3:
            op.halves(forward, op.normal(*x), op.normal(*w), *bias, **attrs)


def conv2d_weight(op: Operation) -> None:
    op.tolerances = (5e-5, 5e-5)
    for stride, padding, dilation, groups, x, w in CASES:
        sides = [
            (x[2 + i] + 2 * padding[i] - dilation[i] * (w[2 + i] - 1) - 1) // stride[i] + 1 for i in range(2)
        ]

        def forward(x: Tensor, grad: Tensor) -> Tensor:
            weight = torch.zeros(w, dtype=x.dtype, requires_grad=True)
            y = F.conv2d(x, weight, None, stride, padding, dilation, groups)
            return torch.autograd.grad(y, weight, grad, create_graph=True)[0]

        op.case(
            forward, op.normal(*x), op.normal(x[0], w[0], *sides), stride=stride, padding=padding,
            dilation=dilation, groups=groups, kernel=w[2:],
        )


OPERATIONS = {"conv2d": conv2d, "conv_transpose2d": conv_transpose2d, "conv2d_weight": conv2d_weight}
