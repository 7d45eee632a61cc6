"""`full` of nothing.

Attributes: `value`, `shape`.
"""

import torch

from pytorch import Operation


def full(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for value, shape in [(0.75, (5, 37)), (-0.0, (7,)), (1e-3, ()), (0.1, (0, 5)), (3.0, (2, 1, 3))]:
        op.record((), [torch.full(shape, value, dtype=torch.float64)], {"value": value, "shape": shape})


OPERATIONS = {"full": full}
