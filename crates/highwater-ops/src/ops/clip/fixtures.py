"""`clip_grad_norm`: gradients → total norm, clipped gradients.

Attributes: `max_norm`, `norm_type`.
"""

import torch

from pytorch import Operation, widen


def clip_grad_norm(op: Operation) -> None:
    for shapes, scale, max_norm in [
        ([(5, 37), (48,), (3, 5, 7)], 1.0, 1.0),
        ([(5, 37), (48,), (3, 5, 7)], 2.0**-10, 1.0),
        ([(64,)], 100.0, 0.5),
        ([(7, 3), (0, 5), ()], 1.0, 1.0),
        ([(5,), (2, 3)], 0.0, 1.0),
    ]:
        grads = tuple(op.normal(*shape) * scale for shape in shapes)
        leaves = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes]
        for leaf, grad in zip(leaves, grads):
            leaf.grad = widen(grad).clone()
        norm = torch.nn.utils.clip_grad_norm_(leaves, max_norm)
        op.record(grads, [norm, *(leaf.grad for leaf in leaves)], {"max_norm": max_norm, "norm_type": 2.0})


OPERATIONS = {"clip_grad_norm": clip_grad_norm}
