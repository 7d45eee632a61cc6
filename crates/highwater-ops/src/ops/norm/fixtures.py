"""`norm` (`torch.linalg.vector_norm`) of x; `div_or_zero` of a and b; `norm_slope` of x and a norm.

Attributes: `p` (a number, `inf` or `-inf`), of `norm` also `dim` (null: all; else a list) and `keepdim`.
"""

import torch
from torch import Tensor

from pytorch import Operation


def norm(op: Operation) -> None:
    def case(x: Tensor, p: float | str, dim: list[int] | None, keepdim: bool = False) -> None:
        def forward(x: Tensor) -> Tensor:
            return torch.linalg.vector_norm(x, float(p), dim, keepdim)

        attrs = {"p": p, "dim": dim, "keepdim": keepdim}
        if p == 0:
            # A count, which PyTorch does not differentiate.
            op.record((x,), [forward(x)], attrs)
        else:
            op.case(forward, x, **attrs)

    for p in [2, 1, 0, 3, 1.5, 0.5, "inf", "-inf"]:
        case(op.numbers.away_from_zero(5, 7), p, None)
        case(op.numbers.away_from_zero(5, 7), p, [0])
        case(op.numbers.away_from_zero(3, 5, 7), p, [0, -1], True)
        case(op.numbers.away_from_zero(20, 70), p, [0])
    for p in [2, 1, 3, "inf"]:
        # Nothing but zeros, zeros among others, and several of one size.
        case(torch.zeros(3, 4), p, [1])
        case(op.numbers.integers(-2, 3, 5, 9).float(), p, [1])
    case(op.normal(13, 7).t(), 2, [0])
    case(op.normal(0, 5), 2, [0])
    op.halves(
        lambda x: torch.linalg.vector_norm(x, 2, 1), op.normal(5, 37) * 100, p=2, dim=[1], keepdim=False
    )


def div_or_zero(op: Operation) -> None:
    def forward(a: Tensor, b: Tensor) -> Tensor:
        safe = torch.where(b == 0, 1.0, b)
        return torch.where(b == 0, 0.0, a / safe)

    op.case(forward, op.normal(5, 37), op.numbers.away_from_zero(5, 37))
    op.case(forward, op.normal(5, 37), op.numbers.integers(-1, 2, 5, 37).float())
    op.case(forward, op.normal(5, 37), op.numbers.away_from_zero(5, 1))
    op.case(forward, op.normal(7), op.numbers.away_from_zero(3, 7))


def norm_slope(op: Operation) -> None:
    for p in [3, 1.5, 2.5, 0.5]:

        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x.sign() * (x / y).abs() ** (p - 1)

        op.case(forward, op.numbers.away_from_zero(5, 7), op.numbers.away_from_zero(5, 1).abs() + 1, p=p)


OPERATIONS = {"norm": norm, "div_or_zero": div_or_zero, "norm_slope": norm_slope}
