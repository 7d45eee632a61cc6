"""`leaky_relu`, `elu`, `softplus` of x; their gradients `leaky_relu_backward`, `elu_backward`,
`softplus_backward` of g and x, which are differentiated in both.

Attributes: `slope`; `alpha`; `beta` and `threshold`. Gradients are of slope 0.01, of alpha 0.75, and of beta 2
and threshold 5.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation, unary


def backward_of(forward: Callable[..., Tensor], op: Operation) -> None:
    """PyTorch's gradient of a function, made differentiable again."""

    def gradient(g: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(forward(x), x, g, create_graph=True)[0]

    for shape in [(5, 37), (0, 5), ()]:
        op.case(gradient, op.normal(*shape), op.normal(*shape) * 2)
    op.case(gradient, op.normal(13, 7).t(), op.normal(7, 13))


def linear_backward(op: Operation) -> None:
    """As `backward_of`, where the gradient does not change with x."""
    for shape in [(5, 37), (0, 5), (), (7,)]:
        x = op.normal(*shape)

        def gradient(g: Tensor) -> Tensor:
            leaf = x.double().requires_grad_()
            return torch.autograd.grad(F.leaky_relu(leaf, 0.01), leaf, g.double())[0]

        g, grad_output = op.normal(*shape), op.normal(*shape)
        op.record((g, x), [gradient(g)], {}, grad_output, {0: gradient(grad_output)})


def leaky_relu(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-6)
    for slope in (0.01, 0.3, -0.5):
        unary(lambda x: F.leaky_relu(x, slope), op, slope=slope)


def elu(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-6)
    for alpha in (1.0, 0.5):
        unary(lambda x: F.elu(x, alpha), op, alpha=alpha)


def softplus(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-6)
    for beta, threshold in [(1.0, 20.0), (2.0, 5.0)]:
        unary(lambda x: F.softplus(x, beta, threshold), op, beta=beta, threshold=threshold)


OPERATIONS = {
    "leaky_relu": leaky_relu,
    "leaky_relu_backward": linear_backward,
    "elu": elu,
    "elu_backward": lambda op: backward_of(lambda x: F.elu(x, 0.75), op),
    "softplus": softplus,
    "softplus_backward": lambda op: backward_of(lambda x: F.softplus(x, 2.0, 5.0), op),
}
