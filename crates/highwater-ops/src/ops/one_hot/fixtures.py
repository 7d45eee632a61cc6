"""`one_hot` of classes.

Attribute: `classes`.
"""

import torch.nn.functional as F

from pytorch import Operation


def one_hot(op: Operation) -> None:
    for classes, shape in [(7, (2, 5)), (1, ()), (12, (9,)), (3, (0,)), (5, (2, 3, 4))]:
        indices = op.numbers.integers(0, classes, *shape)
        op.record((indices,), [F.one_hot(indices, classes)], {"classes": classes})


OPERATIONS = {"one_hot": one_hot}
