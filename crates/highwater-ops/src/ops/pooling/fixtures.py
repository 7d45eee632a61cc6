"""`max_pool2d` and `avg_pool2d` of x, with `kernel`, `stride`, `padding`, `dilation`, `ceil_mode`, of rows and columns, or `adaptive`: so many places.

`max_pool2d_backward` is the gradient of the first in x, of the gradient and x; `avg_pool2d_backward` that of the second,
of the gradient and sides of x, `sides`; `max_pool2d_select` what the gradient of `max_pool2d_backward` is.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation

# kernel, stride, padding, dilation, ceil_mode, x
CASES = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False, (2, 3, 6, 7)),
    ((3, 3), (2, 2), (1, 1), (1, 1), False, (1, 3, 9, 8)),
    ((3, 2), (2, 1), (1, 0), (1, 1), True, (2, 2, 8, 9)),
    ((2, 2), (3, 3), (0, 0), (1, 1), True, (1, 2, 7, 8)),
    ((1, 4), (1, 2), (0, 2), (1, 1), True, (2, 3, 1, 30)),
]
ADAPTIVE = [((1, 1), (2, 5, 7, 6)), ((3, 5), (2, 2, 7, 6)), ((4, 3), (1, 2, 2, 3))]


def fixed(case: tuple) -> dict:
    kernel, stride, padding, dilation, ceil_mode, _ = case
    return dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)


def max_pool(x: Tensor, kernel=None, adaptive=None, **settings) -> Tensor:
    return F.adaptive_max_pool2d(x, adaptive) if adaptive else F.max_pool2d(x, kernel, **settings)


def avg_pool(x: Tensor, kernel=None, adaptive=None, dilation=None, **settings) -> Tensor:
    return F.adaptive_avg_pool2d(x, adaptive) if adaptive else F.avg_pool2d(x, kernel, **settings)


def max_pool2d(op: Operation) -> None:
    dilated = ((3, 2), (1, 2), (1, 1), (2, 3), False, (2, 2, 9, 10))
    for case in [*CASES, dilated]:
        attrs = fixed(case)
        op.case(lambda x, attrs=attrs: max_pool(x, **attrs), op.normal(*case[-1]), **attrs)
    for places, shape in ADAPTIVE:
        op.case(lambda x, places=places: max_pool(x, adaptive=places), op.normal(*shape), adaptive=places)
    attrs = fixed(CASES[1])
    ties = op.numbers.integers(0, 3, 1, 2, 9, 8).float()
    op.case(lambda x: max_pool(x, **attrs), ties, **attrs)
    nans = op.normal(1, 2, 9, 8)
    nans[0, 0, 3, 3:5] = nans[0, 1, 0, 0] = float("nan")
    op.case(lambda x: max_pool(x, **attrs), nans, **attrs)
    op.halves(lambda x: max_pool(x, **attrs), op.normal(2, 3, 9, 8), **attrs)


def max_pool2d_backward(op: Operation) -> None:
    for case in CASES[:4]:
        attrs = fixed(case)
        x = op.normal(*case[-1]).double().requires_grad_()
        y = max_pool(x, **attrs)
        g = op.normal(*y.shape)
        wide = g.double().requires_grad_()
        dx = torch.autograd.grad(y, x, wide, create_graph=True)[0]
        seed = op.normal(*x.shape)
        grad = torch.autograd.grad(dx, wide, seed.double())[0]
        op.record((g, x.detach().float()), [dx], attrs, seed, {0: grad})


def max_pool2d_select(op: Operation) -> None:
    for case in CASES[:4]:
        attrs = fixed(case)
        x = op.normal(*case[-1])
        y, places = F.max_pool2d(x, attrs.pop("kernel"), **attrs, return_indices=True)

        def forward(v: Tensor, places=places) -> Tensor:
            return v.flatten(2).gather(2, places.flatten(2)).reshape(places.shape)

        v = op.normal(*x.shape)
        wide = v.double().requires_grad_()
        picked = forward(wide)
        seed = op.normal(*y.shape)
        grad = torch.autograd.grad(picked, wide, seed.double())[0]
        op.record((v, x), [picked], fixed(case), seed, {0: grad})


def avg_pool2d(op: Operation) -> None:
    for case in CASES:
        for included in (True, False):
            attrs = fixed(case) | dict(count_include_pad=included)
            op.case(lambda x, attrs=attrs: avg_pool(x, **attrs), op.normal(*case[-1]), **attrs)
    for places, shape in ADAPTIVE:
        attrs = dict(adaptive=places, count_include_pad=True)
        op.case(lambda x, places=places: avg_pool(x, adaptive=places), op.normal(*shape), **attrs)
    attrs = fixed(CASES[1]) | dict(count_include_pad=False)
    op.halves(lambda x: avg_pool(x, **attrs), op.normal(2, 3, 9, 8), **attrs)


def avg_pool2d_backward(op: Operation) -> None:
    for case in CASES[:4]:
        attrs = fixed(case) | dict(count_include_pad=False)
        shape = case[-1]

        def forward(g: Tensor, attrs=attrs, shape=shape) -> Tensor:
            x = torch.zeros(shape, dtype=g.dtype, requires_grad=True)
            return torch.autograd.grad(avg_pool(x, **attrs), x, g, create_graph=True)[0]

        pooled = avg_pool(torch.zeros(shape), **attrs).shape
        op.case(forward, op.normal(*pooled), sides=shape[2:], **attrs)


OPERATIONS = {
    "max_pool2d": max_pool2d,
    "max_pool2d_backward": max_pool2d_backward,
    "max_pool2d_select": max_pool2d_select,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_backward": avg_pool2d_backward,
}
