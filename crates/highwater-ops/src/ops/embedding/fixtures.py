"""`embedding` of indices and weight."""

import torch.nn.functional as F

from pytorch import Operation


def embedding(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for rows, width, shape in [(11, 37, (2, 5)), (3, 48, (4, 17)), (64, 5, (7,)), (1, 7, (3, 3)), (9, 4, (0,))]:
        op.case(F.embedding, op.numbers.integers(0, rows, *shape), op.normal(rows, width))
    op.case(F.embedding, op.numbers.integers(0, 6, 5, 3).t(), op.normal(6, 8))
    # Rows that come up often: their gradients are sums of many.
    op.halves(F.embedding, op.numbers.integers(0, 3, 4, 70), op.normal(3, 8))


OPERATIONS = {"embedding": embedding}
