"""`gather` and `index_select` of x and indices; `scatter_add` and `index_add` of x, indices and source.

Attribute: `dim`.
"""

import torch
from torch import Tensor

from pytorch import Operation

# Shapes of x, dimensions, and how many indices there are along them.
CASES = [((5, 11), 1, 37), ((9, 13), 0, 20), ((3, 7, 5), 1, 9), ((2, 3, 4, 6), -2, 5), ((6,), 0, 40), ((3, 5), 0, 0)]


def indices(op: Operation, shape: tuple[int, ...], dim: int, count: int) -> tuple[Tensor, tuple[int, ...]]:
    """Indices for the dimension, and their shape."""
    wanted = list(shape)
    wanted[dim] = count
    return op.numbers.integers(0, shape[dim], *wanted), tuple(wanted)


def gather(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for shape, dim, count in CASES:
        index, _ = indices(op, shape, dim, count)
        op.case(lambda x, i: torch.gather(x, dim, i), op.normal(*shape), index, dim=dim)
    op.case(lambda x, i: torch.gather(x, 0, i), op.normal(5, 9).t(), op.numbers.integers(0, 9, 4, 5), dim=0)
    op.halves(lambda x, i: torch.gather(x, 1, i), op.normal(3, 4), op.numbers.integers(0, 4, 3, 60), dim=1)


def index_select(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for shape, dim, count in CASES:
        index = op.numbers.integers(0, shape[dim], count)
        op.case(lambda x, i: torch.index_select(x, dim, i), op.normal(*shape), index, dim=dim)
    op.halves(lambda x, i: x.index_select(0, i), op.normal(4, 5), op.numbers.integers(0, 4, 60), dim=0)


def scatter_add(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for shape, dim, count in CASES:
        index, wanted = indices(op, shape, dim, count)
        op.case(lambda x, i, s: x.scatter_add(dim, i, s), op.normal(*shape), index, op.normal(*wanted), dim=dim)
    index = op.numbers.integers(0, 4, 3, 60)
    op.halves(lambda x, i, s: x.scatter_add(1, i, s), op.normal(3, 4), index, op.normal(3, 60), dim=1)


def index_add(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for shape, dim, count in CASES:
        _, wanted = indices(op, shape, dim, count)
        index = op.numbers.integers(0, shape[dim], count)
        op.case(lambda x, i, s: x.index_add(dim, i, s), op.normal(*shape), index, op.normal(*wanted), dim=dim)


OPERATIONS = {
    "gather": gather,
    "index_select": index_select,
    "scatter_add": scatter_add,
    "index_add": index_add,
}
