"""Kernels that write over their first argument, beside themselves with a result of their own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._device.in_place import FORMS
from highwater.torch._graph.joint import JointGraph
from in_place_trials import FIRST, OTHERS, scratch, trial
from torch import Tensor, nn

aten = torch.ops.aten


@pytest.mark.parametrize("target", FORMS, ids=str)
def test_the_same_bits_in_place(target: Any) -> None:
    """Every row of the table, for each dtype and layout. `in_place_trials.py` tries more."""
    counts = Counter[bool | None]()
    for dtype in FORMS[target].dtypes:
        for first in FIRST:
            for layout in OTHERS:
                dice = random.Random(f"{target} {dtype} {first} {layout}")
                found = trial(target, dtype, first, layout, dice)
                assert found is not False, (dtype, first, layout)
                counts[found] += 1
    assert counts[True], "none of these would be rewritten"


@pytest.mark.parametrize("target", FORMS, ids=str)
def test_no_more_bytes_in_place(target: Any) -> None:
    """Some overloads make their result, and copy it."""
    for dtype in FORMS[target].dtypes:
        dice = random.Random(f"{target} {dtype}")
        taken = next((found for _ in range(20) if (found := scratch(target, dtype, dice)) and found[1] >= 0), None)
        assert taken is None or taken[1] <= taken[0], (dtype, taken)


def in_place(model: Callable[..., Tensor], *inputs: Tensor) -> list[str]:
    """What a plan writes over its first argument, of a graph without gradients."""
    backend = highwater.torch.backend("1GiB")

    class Watched(JointGraph):
        def __post_init__(self, foretold: Any) -> None:
            super().__post_init__(foretold)
            seen.extend(str(kernel.node.target) for kernel in self.kernels if kernel.in_place)

    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("highwater.torch._backend.compiled.JointGraph", Watched)
        torch._dynamo.reset()
        torch.compile(model, backend=backend)(*inputs)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_what_training_needs_is_written_in_place(dtype: torch.dtype) -> None:
    def model(x: Tensor) -> Tensor:
        y = F.gelu(F.silu(F.relu(x + 1) * 2))
        y = ((y - x) / 3).tanh().sigmoid().masked_fill(x > 0, 1.0)
        return y.softmax(-1).log_softmax(-1).exp().sqrt()

    x = torch.randn(4, 8).to(dtype).requires_grad_()
    found = in_place(lambda x: model(x).sum(), x)
    forward = "relu.default gelu.default silu.default tanh.default sigmoid.default masked_fill.Scalar _softmax.default exp.default sqrt.default"
    backward = "threshold_backward.default gelu_backward.default silu_backward.default tanh_backward.default _softmax_backward_data.default"
    assert {f"aten.{name}" for name in f"{forward} {backward} mul.Tensor div.Tensor".split()} <= set(found)


def test_complex_numbers_are_not_written_in_place() -> None:
    """Eager PyTorch rounds otherwise there."""
    torch.manual_seed(0)
    x, y = torch.randn(33, 17, dtype=torch.complex64), torch.randn(17, 33, dtype=torch.complex64)

    def model(x: Tensor, y: Tensor) -> Tensor:
        a = (x * 2) / y.t()
        b = (a + 1) * y.t().conj()
        return b / (a.exp() + y.mT)

    assert in_place(model, x, y) == []
    torch._dynamo.reset()
    found = torch.compile(model, backend=highwater.torch.backend("1GiB"))(x, y)
    assert torch.equal(torch.view_as_real(found), torch.view_as_real(model(x, y)))


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
