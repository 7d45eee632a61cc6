"""`rmsprop`: param, grad, square_avg[, momentum_buffer][, grad_avg] → the same without grad.

Attributes: `lr`, `alpha`, `eps`, `weight_decay`, `momentum`, `centered`, `maximize`.
"""

import torch

from pytorch import Operation, widen


def rmsprop(op: Operation) -> None:
    for shape, lr, alpha, weight_decay, momentum, centered, maximize in [
        ((5, 37), 1e-2, 0.99, 0.0, 0.0, False, False),
        ((48,), 1e-2, 0.9, 0.1, 0.0, False, True),
        ((5, 37), 1e-2, 0.99, 0.01, 0.9, False, False),
        ((3, 5, 7), 1e-3, 0.9, 0.0, 0.0, True, False),
        ((3, 5, 7), 1e-3, 0.9, 0.1, 0.9, True, True),
        ((0, 5), 1e-2, 0.99, 0.0, 0.9, True, False),
    ]:
        param, grad = op.normal(*shape), op.normal(*shape)
        state = {"square_avg": op.normal(*shape).square() + 1}
        if momentum:
            state["momentum_buffer"] = op.normal(*shape)
        if centered:
            state["grad_avg"] = op.normal(*shape) / 8
        leaf = torch.nn.Parameter(widen(param))
        leaf.grad = widen(grad)
        settings = {
            "lr": lr, "alpha": alpha, "eps": 1e-8, "weight_decay": weight_decay,
            "momentum": momentum, "centered": centered, "maximize": maximize,
        }
        optimizer = torch.optim.RMSprop([leaf], **settings, foreach=False)
        after = optimizer.state[leaf]
        after["step"] = torch.tensor(3.0)
        after |= {name: widen(value).clone() for name, value in state.items()}
        optimizer.step()
        outputs = [leaf, *(after[name] for name in state)]
        op.record((param, grad, *state.values()), outputs, settings)


OPERATIONS = {"rmsprop": rmsprop}
