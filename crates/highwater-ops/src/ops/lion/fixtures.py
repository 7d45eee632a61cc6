"""`lion`: param, grad, exp_avg → param, exp_avg. By the paper's lines: PyTorch has no Lion.

Attributes: `lr`, `betas`, `weight_decay`.
"""

from pytorch import Operation, widen


def lion(op: Operation) -> None:
    for shape, lr, betas, weight_decay in [
        ((5, 37), 1e-3, (0.9, 0.99), 0.0),
        ((48,), 1e-2, (0.95, 0.98), 0.1),
        ((3, 5, 7), 1e-2, (0.9, 0.99), 1.0),
        ((0, 5), 1e-2, (0.9, 0.99), 0.0),
    ]:
        inputs = op.normal(*shape), op.normal(*shape), op.normal(*shape) / 4
        param, grad, first = map(widen, inputs)
        direction = (betas[0] * first + (1 - betas[0]) * grad).sign()
        param = param * (1 - lr * weight_decay) - lr * direction
        first = betas[1] * first + (1 - betas[1]) * grad
        attrs = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        op.record(inputs, [param, first], attrs)


OPERATIONS = {"lion": lion}
