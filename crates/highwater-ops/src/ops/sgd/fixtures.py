"""`sgd`: param, grad → param; with momentum param, grad, buffer → param, buffer.

Attributes: `lr`, `momentum`, `nesterov`, `weight_decay`, `dampening`.
"""

import torch

from pytorch import Operation, widen


def sgd(op: Operation) -> None:
    for shape, lr, momentum, nesterov, weight_decay in [
        ((5, 37), 0.1, 0.0, False, 0.0),
        ((5, 37), 0.1, 0.0, False, 0.01),
        ((48,), 0.1, 0.9, False, 0.0),
        ((48,), 0.1, 0.9, False, 0.01),
        ((3, 5, 7), 0.05, 0.9, True, 0.0),
        ((3, 5, 7), 0.05, 0.9, True, 0.01),
        ((0, 5), 0.1, 0.9, False, 0.0),
    ]:
        param, grad = op.normal(*shape), op.normal(*shape)
        inputs = (param, grad, op.normal(*shape)) if momentum else (param, grad)
        leaf = torch.nn.Parameter(widen(param))
        leaf.grad = widen(grad)
        optimizer = torch.optim.SGD(
            [leaf], lr, momentum, weight_decay=weight_decay, nesterov=nesterov, foreach=False
        )
        if momentum:
            optimizer.state[leaf]["momentum_buffer"] = widen(inputs[2]).clone()
        optimizer.step()
        outputs = [leaf, optimizer.state[leaf]["momentum_buffer"]] if momentum else [leaf]
        attrs = {
            "lr": lr, "momentum": momentum, "nesterov": nesterov,
            "weight_decay": weight_decay, "dampening": 0.0,
        }
        op.record(inputs, outputs, attrs)


OPERATIONS = {"sgd": sgd}
