"""`adamw`: param, grad, exp_avg, exp_avg_sq → param, exp_avg, exp_avg_sq.

Attributes: `step` (of this update, from 1), `lr`, `betas`, `eps`, `weight_decay`.
"""

import torch
from torch import Tensor

from pytorch import HALVES, Operation, to_half, widen


def adamw(op: Operation) -> None:
    for shape, step, lr, betas, eps, weight_decay in [
        ((5, 37), 1, 1e-3, (0.9, 0.999), 1e-8, 0.01),
        ((5, 37), 7, 1e-3, (0.9, 0.999), 1e-8, 0.01),
        ((48,), 1, 3e-4, (0.9, 0.95), 1e-8, 0.1),
        ((48,), 7, 3e-4, (0.9, 0.95), 1e-8, 0.1),
        ((3, 5, 7), 7, 1e-2, (0.8, 0.9), 1e-5, 0.0),
        ((1031,), 1000, 1e-3, (0.9, 0.95), 1e-8, 0.1),
        ((0, 5), 1, 1e-3, (0.9, 0.999), 1e-8, 0.01),
    ]:
        param, grad = op.normal(*shape), op.normal(*shape) / 16
        first = op.normal(*shape) / 16 if step > 1 else torch.zeros(shape)
        second = op.normal(*shape).square() / 256 if step > 1 else torch.zeros(shape)
        attrs = {"step": step, "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        update(op, (param, grad, first, second), attrs)
    for dtype in HALVES:
        param, grad, first = op.normal(5, 37), op.normal(5, 37) / 16, op.normal(5, 37) / 16
        inputs = to_half(dtype, param, grad, first, op.normal(5, 37).square() / 256)
        attrs = {"step": 7, "lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
        update(op, tuple(inputs), attrs)


def update(op: Operation, inputs: tuple[Tensor, ...], attrs: dict) -> None:
    param, grad, first, second = inputs
    settings = {key: value for key, value in attrs.items() if key != "step"}
    leaf = torch.nn.Parameter(widen(param))
    leaf.grad = widen(grad)
    optimizer = torch.optim.AdamW([leaf], **settings, foreach=False)
    state = optimizer.state[leaf]
    state["step"] = torch.tensor(float(attrs["step"] - 1))
    # cloned, for the optimizer writes to them
    state["exp_avg"], state["exp_avg_sq"] = widen(first).clone(), widen(second).clone()
    optimizer.step()
    op.record(inputs, [leaf, state["exp_avg"], state["exp_avg_sq"]], attrs)


OPERATIONS = {"adamw": adamw}
