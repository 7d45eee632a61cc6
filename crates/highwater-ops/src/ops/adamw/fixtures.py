"""`adamw`, `adam`: param, grad, exp_avg, exp_avg_sq[, max_exp_avg_sq] → the same without grad.

Attributes: `step` (of this update, from 1), `lr`, `betas`, `eps`, `weight_decay`, `amsgrad`, `maximize`.
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
        update(op, (param, grad, first, second), attrs | PLAIN)
    for dtype in HALVES:
        param, grad, first = op.normal(5, 37), op.normal(5, 37) / 16, op.normal(5, 37) / 16
        inputs = to_half(dtype, param, grad, first, op.normal(5, 37).square() / 256)
        attrs = {"step": 7, "lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
        update(op, tuple(inputs), attrs | PLAIN)


def adam(op: Operation) -> None:
    for shape, step, weight_decay, amsgrad, maximize in [
        ((5, 37), 1, 0.0, False, False),
        ((5, 37), 7, 0.01, False, False),
        ((48,), 1, 0.1, True, False),
        ((3, 5, 7), 7, 0.1, True, True),
        ((1031,), 1000, 0.0, False, True),
    ]:
        param, grad = op.normal(*shape), op.normal(*shape) / 16
        state = [torch.zeros(shape) for _ in range(2 + amsgrad)]
        if step > 1:
            state = [op.normal(*shape).square() / 256 for _ in state]
        attrs = {"step": step, "lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8}
        attrs |= {"weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize}
        update(op, (param, grad, *state), attrs)


def update(op: Operation, inputs: tuple[Tensor, ...], attrs: dict) -> None:
    param, grad, *before = inputs
    settings = {key: value for key, value in attrs.items() if key != "step"}
    leaf = torch.nn.Parameter(widen(param))
    leaf.grad = widen(grad)
    kind = torch.optim.AdamW if op.name == "adamw" else torch.optim.Adam
    optimizer = kind([leaf], **settings, foreach=False)
    state = optimizer.state[leaf]
    state["step"] = torch.tensor(float(attrs["step"] - 1))
    # cloned, for the optimizer writes to them
    names = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"][: len(before)]
    state |= {name: widen(value).clone() for name, value in zip(names, before)}
    optimizer.step()
    op.record(inputs, [leaf, *(state[name] for name in names)], attrs)


PLAIN = {"amsgrad": False, "maximize": False}
OPERATIONS = {"adamw": adamw, "adam": adam}
