"""`scatter` and `scatter_reduce` of x, indices and source.

Attribute: `dim`; of `scatter_reduce` also `reduce` and `include_self`.
"""

import math

import torch
from torch import Tensor

from pytorch import Operation

# Shapes of x, dimensions, and how many indices there are along them.
CASES = [((5, 41), 1, 37), ((29, 13), 0, 20), ((3, 17, 5), 1, 9), ((2, 3, 4, 6), -2, 4), ((60,), 0, 40), ((3, 5), 0, 0)]


def unique(op: Operation, shape: tuple[int, ...], dim: int, count: int) -> Tensor:
    """Indices of which no two name one place."""
    order = op.numbers.integers(0, 1 << 30, *shape).argsort(dim=dim, stable=True)
    return order.narrow(dim, 0, count).clone()


def scatter(op: Operation) -> None:
    op.tolerances = (0.0, 0.0)

    def case(x: Tensor, dim: int, index: Tensor) -> None:
        op.case(lambda x, i, s: x.scatter(dim, i, s), x, index, op.normal(*index.shape), dim=dim)

    for shape, dim, count in CASES:
        case(op.normal(*shape), dim, unique(op, shape, dim, count))
    case(op.normal(13, 7).t(), 0, unique(op, (7, 13), 0, 5))
    index = unique(op, (3, 9), 1, 4)
    op.halves(lambda x, i, s: x.scatter(1, i, s), op.normal(3, 9), index, op.normal(3, 4), dim=1)
    # Of several elements for one place PyTorch, on one thread, takes the last as well.
    index, source = op.numbers.integers(0, 4, 3, 60), op.normal(3, 60)
    x = op.normal(3, 4)
    op.record((x, index, source), [x.scatter(1, index, source)], {"dim": 1})
    x, source = op.numbers.integers(-9, 9, 3, 9), op.numbers.integers(-9, 9, 3, 4)
    index = unique(op, (3, 9), 1, 4)
    op.record((x, index, source), [x.scatter(1, index, source)], {"dim": 1})


def scatter_reduce(op: Operation) -> None:
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            attrs = {"reduce": reduce, "include_self": include_self}

            def joined(x: Tensor, i: Tensor, s: Tensor, dim: int = 1) -> Tensor:
                return x.scatter_reduce(dim, i, s, reduce, include_self=include_self)

            for (rows, columns), count in [((5, 11), 37), ((4, 90), 30), ((3, 5), 0)]:
                index = op.numbers.integers(0, columns, rows, count)
                op.case(joined, op.normal(rows, columns), index, op.normal(rows, count), dim=1, **attrs)
            index = op.numbers.integers(0, 9, 20, 13)
            op.case(lambda *x: joined(*x, dim=0), op.normal(9, 13), index, op.normal(20, 13), dim=0, **attrs)
            index = op.numbers.integers(0, 4, 3, 12)
            op.halves(joined, op.normal(3, 4), index, op.normal(3, 12), dim=1, **attrs)
            # Zeros, equals and NaN. What is there before is none of the equals, which PyTorch counts even if it
            # is not included.
            x, source = torch.full((3, 6), 7.0), op.numbers.integers(0, 3, 3, 12).float()
            index = op.numbers.integers(0, 6, 3, 12)
            op.case(joined, x, index, source, dim=1, **attrs)
            source = source.clone()
            source[1, 3] = source[2, 7] = math.nan
            op.record((x.clone(), index.clone(), source), [joined(x, index, source)], {"dim": 1, **attrs})


OPERATIONS = {"scatter": scatter, "scatter_reduce": scatter_reduce}
