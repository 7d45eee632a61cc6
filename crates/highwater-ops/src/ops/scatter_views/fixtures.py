"""`as_strided`: the gradient of each view of a storage → the storage's.

Attributes: `numel` of the storage; `views`: `shape`, `strides`, `offset` of each.
"""

import torch
from torch import Tensor

from pytorch import Operation, widen


def as_strided(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for numel, views in [
        (35, [((7, 5), (1, 7), 0)]),
        (40, [((4, 6), (8, 1), 3), ((5,), (2,), 1)]),
        (12, [((3, 4), (0, 1), 2), ((6,), (1,), 4), ((), (), 11)]),
        (10, [((4, 4), (2, 1), 0)]),
        (5, [((0, 3), (3, 1), 0), ((5,), (1,), 0)]),
    ]:
        storage = torch.zeros(numel, dtype=torch.float64, requires_grad=True)
        grads = tuple(op.normal(*shape) for shape, _, _ in views)
        of_views = ((storage.as_strided(*view) * widen(grad)).sum() for view, grad in zip(views, grads))
        (grad,) = torch.autograd.grad(sum(of_views), storage)
        listed = [{"shape": shape, "strides": strides, "offset": offset} for shape, strides, offset in views]
        op.record(grads, [grad], {"numel": numel, "views": listed})
    # The gradient of that gradient, which is a sum of each view's elements at their places.
    views = [((4, 6), (8, 1), 3), ((5,), (2,), 1), ((3, 4), (0, 1), 2)]
    places = [torch.arange(40).as_strided(*view).flatten() for view in views]

    def scattered(*grads: Tensor) -> Tensor:
        zeros = torch.zeros(40, dtype=torch.float64)
        return zeros.index_add(0, torch.cat(places), torch.cat([grad.flatten() for grad in grads]))

    listed = [{"shape": shape, "strides": strides, "offset": offset} for shape, strides, offset in views]
    op.case(scattered, *(op.normal(*shape) for shape, _, _ in views), numel=40, views=listed)


OPERATIONS = {"as_strided": as_strided}
