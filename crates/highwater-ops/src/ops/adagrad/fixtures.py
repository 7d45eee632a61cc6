"""`adagrad`: param, grad, sum → param, sum.

Attributes: `step` (of this update, from 1), `lr`, `lr_decay`, `weight_decay`, `initial`, `eps`, `maximize`.
"""

import torch

from pytorch import Operation, widen


def adagrad(op: Operation) -> None:
    for shape, step, lr, lr_decay, weight_decay, initial, maximize in [
        ((5, 37), 1, 1e-2, 0.0, 0.0, 0.0, False),
        ((5, 37), 7, 1e-2, 0.1, 0.01, 0.0, False),
        ((48,), 1, 0.1, 0.0, 0.1, 0.5, True),
        ((3, 5, 7), 100, 0.1, 1e-3, 0.0, 0.0, False),
        ((0, 5), 2, 0.1, 0.0, 0.0, 0.0, False),
    ]:
        param, grad = op.normal(*shape), op.normal(*shape)
        before = op.normal(*shape).square() if step > 1 else torch.full(shape, initial)
        leaf = torch.nn.Parameter(widen(param))
        leaf.grad = widen(grad)
        optimizer = torch.optim.Adagrad(
            [leaf], lr, lr_decay, weight_decay, initial, maximize=maximize, foreach=False
        )
        state = optimizer.state[leaf]
        state["step"] = torch.tensor(float(step - 1))
        state["sum"] = widen(before).clone()
        optimizer.step()
        attrs = {
            "step": step, "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay,
            "initial": initial, "eps": 1e-10, "maximize": maximize,
        }
        op.record((param, grad, before), [leaf, state["sum"]], attrs)


OPERATIONS = {"adagrad": adagrad}
