"""`maximum`, `minimum` of a and b; the gradient `maximum_backward` of g, a and b, differentiated in g."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pytorch import Operation


def extreme(forward: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        op.tolerances = (0.0, 1e-5)
        n = op.normal
        for a, b in [((7, 37), (7, 37)), ((2, 5, 37), (37,)), ((37,), (2, 5, 37)), ((5, 37), ()), ((0, 5), (5,))]:
            op.case(forward, n(*a), n(*b))
        op.case(forward, n(9, 13).t(), n(13, 9))
        op.halves(forward, n(7, 37), n(7, 37))
        # Ties, and numbers that are none.
        whole = lambda *shape: op.numbers.integers(-1, 2, *shape)
        op.case(forward, whole(9, 13).float(), whole(9, 13).float())
        op.case(forward, torch.tensor([math.nan, 1.0, math.nan, math.inf, 0.0]), torch.tensor([1.0, math.nan, math.nan, math.inf, -0.0]))
        a, b = whole(5, 37), whole(37)
        op.record((a, b), [forward(a, b)], {})

    return cases


def maximum_backward(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for shape in [(5, 37), (7,), (), (0, 5)]:
        a, b = op.numbers.integers(-1, 2, *shape).float(), op.numbers.integers(-1, 2, *shape).float()

        def gradient(g: Tensor) -> Tensor:
            leaf = a.double().requires_grad_()
            return torch.autograd.grad(torch.maximum(leaf, b.double()), leaf, g.double())[0]

        g, grad_output = op.normal(*shape), op.normal(*shape)
        op.record((g, a, b), [gradient(g)], {}, grad_output, {0: gradient(grad_output)})


OPERATIONS = {
    "maximum": extreme(torch.maximum),
    "minimum": extreme(torch.minimum),
    "maximum_backward": maximum_backward,
}
