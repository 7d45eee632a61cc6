"""`clone` of x, dense."""

import torch

from pytorch import Operation


def clone(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)
    for x in (op.normal(13, 7).t(), op.normal(6, 20)[1:5, 2:18:3], op.normal(1, 6).expand(4, 6), op.normal(0, 5)):
        op.case(lambda x: x.clone(memory_format=torch.contiguous_format), x)


OPERATIONS = {"clone": clone}
