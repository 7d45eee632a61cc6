"""Weights that are used more than once under `torch.autocast`: eager PyTorch casts them once."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A multiple of what vectors hold: rows that are no multiple have other bits than a trace without the gaps between them.
WIDTH = 64

USES: dict[str, Callable[[Shared, Tensor], Tensor]] = {
    "linear": lambda m, x: m.linear(x),
    "functional": lambda m, x: F.linear(x, m.weight, bias=m.bias),
    "at": lambda m, x: x @ m.weight,
    "method": lambda m, x: x.matmul(m.weight),
    "mm": lambda m, x: torch.mm(x, m.weight),
    "addmm": lambda m, x: torch.addmm(m.bias, x, m.weight),
    "twice": lambda m, x: x @ torch.mm(m.weight, m.weight),
    "transposed": lambda m, x: x @ m.weight.t(),
    "convolution": lambda m, x: m.convolution(x[:, None])[:, 0],
    "cell": lambda m, x: m.cell(x)[0],
    "recurrent": lambda m, x: m.recurrent(x, m.state * 1),
    "by hand": lambda m, x: (x.half() @ m.weight.half()).to(x.dtype),
    "without gradients": lambda m, x: x + no_gradients(m, x),
    "pointwise": lambda m, x: x * m.bias,
    "norm": lambda m, x: F.layer_norm(x, (WIDTH,), m.bias),
}


def no_gradients(m: Shared, x: Tensor) -> Tensor:
    with torch.no_grad():
        return F.linear(x, m.weight)


class Shared(nn.Module):
    """Uses of the same few weights, some of them in regions of their own."""

    def __init__(self, groups: list[tuple[str, list[str]]]) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(WIDTH, WIDTH) * WIDTH**-0.5), nn.Parameter(torch.randn(WIDTH))
        self.linear, self.convolution = nn.Linear(WIDTH, WIDTH), nn.Conv1d(1, 1, 3, padding=1)
        self.cell, self.recurrent = nn.LSTMCell(WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.state = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        for kind, uses in self.groups:
            with region(kind):
                for use in uses:
                    # The dtype of what other regions answered is not this one's.
                    x = USES[use](self, x.float()).tanh()
        return x.float().square().mean()


def region(kind: str) -> torch.autocast | nullcontext[None]:
    if kind == "none":
        return nullcontext()
    return torch.autocast("cpu", torch.bfloat16, enabled=kind != "off", cache_enabled=kind != "forgets")


def gradients(model: nn.Module, call: Callable[[Tensor], Tensor], x: Tensor, kind: str) -> list[Tensor | None]:
    x.grad = None
    model.zero_grad()
    with region(kind):
        loss = call(x)
    loss.backward()
    return [loss.detach(), x.grad, *(p.grad for p in model.parameters())]


def same(found: list[Tensor | None], expected: list[Tensor | None]) -> bool:
    return all(a is b is None or a is not None and b is not None and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def compare(groups: list[tuple[str, list[str]]], kind: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Shared(groups)
    x = torch.randn(WIDTH, WIDTH, requires_grad=True)
    plenty = highwater.torch.backend("1GiB")
    ours = gradients(model, torch.compile(model, backend=plenty), x, kind)
    torch._dynamo.reset()
    least = highwater.torch.backend(plenty.reports[0].floor_bytes)
    tight = gradients(model, torch.compile(model, backend=least), x, kind)
    expected = gradients(model, model, x, kind)
    assert same(ours, expected)
    assert same(tight, expected)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["on", "none"])
def test_used_three_times(use: str, kind: str) -> None:
    compare([("none", [use] * 3)], kind)


def test_is_of_use() -> None:
    model = Shared([("none", ["linear"] * 3)])
    x = torch.randn(WIDTH, WIDTH, requires_grad=True)
    traced = gradients(model, torch.compile(model, backend="aot_eager"), x, "on")
    assert not same(traced, gradients(model, model, x, "on"))


@pytest.mark.parametrize("seed", range(16))
def test_random_uses(seed: int) -> None:
    numbers = random.Random(seed)
    few = numbers.sample(sorted(USES), 3)
    kinds = ["none", "none", "on", "on", "off", "forgets"]
    groups = [(numbers.choice(kinds), numbers.choices(few, k=numbers.randint(1, 4))) for _ in range(numbers.randint(1, 4))]
    compare(groups, numbers.choice(kinds))
