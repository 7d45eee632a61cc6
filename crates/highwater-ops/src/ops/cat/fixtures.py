"""`cat` of tensors, along `dim`."""

import torch
from torch import Tensor

from pytorch import Operation


def cat(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)

    def case(dim: int, *values: Tensor) -> None:
        op.case(lambda *values: torch.cat(values, dim), *values, dim=dim)

    n = op.normal
    for dim, shapes in [
        (0, [(7, 5), (1, 5), (4, 5)]),
        (1, [(9, 37), (9, 3), (9, 16)]),
        (1, [(3, 2, 5), (3, 7, 5)]),
        (2, [(2, 5, 33), (2, 5, 17)]),
        (0, [(3, 4)]),
        (1, [(4, 0), (4, 3)]),
    ]:
        case(dim, *(n(*shape) for shape in shapes))
    case(0, n(13, 7).t(), n(3, 13), n(1, 13).expand(4, 13))
    case(1, n(6, 20)[1:5, 2:18:3], n(4, 9))


OPERATIONS = {"cat": cat}
