"""`gelu` of x.

Attribute: `approximate`, `none` or `tanh`.
"""

import torch.nn.functional as F

from pytorch import Operation, unary


def gelu(op: Operation) -> None:
    for approximate in ("none", "tanh"):
        unary(lambda x: F.gelu(x, approximate=approximate), op, approximate=approximate)


OPERATIONS = {"gelu": gelu}
