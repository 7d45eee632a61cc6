"""Kernels that write over their first argument, beside themselves with a result of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._in_place import OUT, ROWS
from torch import Tensor, nn

aten = torch.ops.aten

# The arguments after the first.
OTHERS: dict[Any, Callable[[Tensor, int], tuple[Any, ...]]] = {
    aten.threshold_backward.default: lambda x, dim: (x, 0.1),
    aten.tanh_backward.default: lambda x, dim: (x.tanh(),),
    aten.sigmoid_backward.default: lambda x, dim: (x.sigmoid(),),
    aten.gelu_backward.default: lambda x, dim: (x,),
    aten.silu_backward.default: lambda x, dim: (x,),
    aten.elu_backward.default: lambda x, dim: (1.5, 1.0, 1.0, dim % 2 == 0, x),
    aten.leaky_relu_backward.default: lambda x, dim: (x, 0.1, False),
    aten.hardtanh_backward.default: lambda x, dim: (x, -1.0, 1.0),
    aten.hardswish_backward.default: lambda x, dim: (x,),
    aten.hardsigmoid_backward.default: lambda x, dim: (x,),
    aten.softplus_backward.default: lambda x, dim: (x, 1.0, 20.0),
    aten.log_sigmoid_backward.default: lambda x, dim: (x, aten.log_sigmoid_forward(x)[1]),
    aten.mul.Scalar: lambda x, dim: (0.3,),
    aten._softmax.default: lambda x, dim: (dim, False),
    aten._log_softmax.default: lambda x, dim: (dim, False),
    aten._softmax_backward_data.default: lambda x, dim: (x.softmax(dim), dim, x.dtype),
    aten._log_softmax_backward_data.default: lambda x, dim: (x.log_softmax(dim), dim, x.dtype),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("target", OUT | ROWS, ids=str)
def test_the_same_bits_in_place(target: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    dice = random.Random(1)
    in_place, out = (OUT | ROWS)[target]
    shapes = [[dice.choice([1, 2, 3, 7, 17, 33, 64, 100]) for _ in range(dice.randint(1, 3))] for _ in range(30)]
    for shape in [*shapes, [4, 50257], [3, 7001, 3]]:
        first, x = torch.randn(shape).to(dtype), (3 * torch.randn(shape)).to(dtype)
        others = OTHERS[target](x, dice.randrange(len(shape)))
        expected = target(first, *others)
        found = in_place(first, *others, **{out: first} if out else {})
        assert found.data_ptr() == first.data_ptr()
        assert torch.equal(found, expected), f"{shape}, {others[1:]}"


def test_a_loss_takes_its_logits_twice_at_least() -> None:
    """Logarithms of softmax and a gradient, which becomes that of the logits."""
    rows, classes = 256, 1000

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, classes)

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(self.head(x), labels)

    report = highwater.torch.plan(Loss(), (torch.randn(rows, 16), torch.arange(rows)), memory="1GiB")
    logits, rest = 4 * rows * classes, 200_000
    assert 2 * logits < report.floor_bytes < 2 * logits + rest
