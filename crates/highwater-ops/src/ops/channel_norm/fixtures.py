"""`batch_norm` of x, weight and bias if `affine`; `batch_norm_inference` of x, mean, variance and those; `group_norm` of x and those.

`running_average` of x, running mean and running variance, as `batch_norm` leaves them with `momentum`.

`inplace_abn` is `batch_norm` with an `activation` behind it, whose `setting` is its slope or alpha.

Further attributes: `eps`, and `groups` of the last, which is `instance_norm` where there are as many as channels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation

SHAPES = [(3, 4, 5, 7), (37, 6), (2, 2, 1100), (1, 2, 33), (2, 70, 2, 2)]


def parameters(op: Operation, channels: int, affine: bool) -> list[Tensor]:
    return [op.normal(channels), op.normal(channels)] if affine else []


def two(values: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    return values or (None, None)


def batch_norm(op: Operation) -> None:
    for i, shape in enumerate(SHAPES):
        eps, affine = (1e-5, True) if i % 2 == 0 else (1e-3, False)

        def forward(x: Tensor, *affine: Tensor) -> Tensor:
            return F.batch_norm(x, None, None, *two(affine), training=True, eps=eps)

        op.case(forward, op.normal(*shape), *parameters(op, shape[1], affine), eps=eps, affine=affine)
    last = op.normal(2, 5, 3, 4).permute(0, 3, 1, 2)
    op.case(forward, last, *parameters(op, 4, True), eps=eps, affine=True)
    op.halves(forward, op.normal(4, 3, 16) + 3, *parameters(op, 3, True), eps=eps, affine=True)


def batch_norm_inference(op: Operation) -> None:
    for i, shape in enumerate(SHAPES):
        eps, affine = (1e-5, True) if i % 2 == 0 else (1e-3, False)
        mean, var = op.normal(shape[1]), op.normal(shape[1]).abs() + 0.5

        def forward(x: Tensor, *affine: Tensor) -> Tensor:
            return F.batch_norm(x, mean.double(), var.double(), *two(affine), training=False, eps=eps)

        x, affine = op.normal(*shape), parameters(op, shape[1], affine)
        wide = [value.double().requires_grad_() for value in (x, *affine)]
        y = forward(*wide)
        grad = op.normal(*shape)
        grads = torch.autograd.grad(y, wide, grad.double())
        positions = [0, 3, 4][: len(wide)]
        attrs = dict(eps=eps, affine=bool(affine))
        op.record((x, mean, var, *affine), [y], attrs, grad, dict(zip(positions, grads)))


def group_norm(op: Operation) -> None:
    for i, (shape, groups) in enumerate([
        ((3, 4, 5, 7), 2), ((37, 6), 3), ((2, 2, 1100), 2), ((1, 2, 33), 2), ((2, 70, 2, 2), 7),
        ((2, 5, 3, 3), 5), ((2, 5, 3, 3), 1),
    ]):
        eps, affine = (1e-5, True) if i % 2 == 0 else (1e-3, False)

        def forward(x: Tensor, *affine: Tensor) -> Tensor:
            return F.group_norm(x, groups, *two(affine), eps=eps)

        case = (op.normal(*shape), *parameters(op, shape[1], affine))
        op.case(forward, *case, eps=eps, affine=affine, groups=groups)
    op.halves(forward, op.normal(2, 6, 16) + 3, *parameters(op, 6, True), eps=eps, affine=True, groups=1)


def running_average(op: Operation) -> None:
    for shape, momentum in [((3, 4, 5, 7), 0.1), ((37, 6), 0.3), ((2, 2, 1100), 1.0), ((2, 3, 1), 0.0)]:
        x, mean, var = op.normal(*shape), op.normal(shape[1]), op.normal(shape[1]).abs() + 0.5
        after = [mean.double(), var.double()]
        y = F.batch_norm(x.double(), *after, training=True, momentum=momentum, eps=1e-5)
        op.record((x, mean, var), [y, *after], dict(eps=1e-5, affine=False, momentum=momentum))


def inplace_abn(op: Operation) -> None:
    activations = [("leaky_relu", 0.01), ("elu", 1.0), ("identity", 1.0), ("leaky_relu", 0.2), ("elu", 0.5)]
    for shape, (activation, setting) in zip(SHAPES, activations):

        def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            z = F.batch_norm(x, None, None, weight, bias, training=True, eps=1e-5)
            if activation == "identity":
                return z
            return F.leaky_relu(z, setting) if activation == "leaky_relu" else F.elu(z, setting)

        inputs = op.normal(*shape), op.normal(shape[1]).abs() + 0.5, op.normal(shape[1])
        op.case(forward, *inputs, eps=1e-5, affine=True, activation=activation, setting=setting)


OPERATIONS = {
    "batch_norm": batch_norm,
    "batch_norm_inference": batch_norm_inference,
    "group_norm": group_norm,
    "inplace_abn": inplace_abn,
    "running_average": running_average,
}
