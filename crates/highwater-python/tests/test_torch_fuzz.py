"""Random small modules beside eager PyTorch: the same bits at the floor, in between and with plenty.

``HIGHWATER_FUZZ=2000 pytest test_torch_fuzz.py`` tries so many; ``HIGHWATER_SEED=17`` one of them again.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, WIDTH = 6, 8


class Program(nn.Module):
    """A random program over tensors of one shape, with parameters that are shared and buffers that change."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.numbers = numbers = random.Random(seed)
        torch.manual_seed(seed)
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) * 0.4 for _ in range(3))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.norm, self.batch_norm = nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH)
        self.register_buffer("seen", torch.zeros(WIDTH))
        self.weights[2].requires_grad_(numbers.random() < 0.7)
        names = [name for name in dir(self) if name.startswith("op_")]
        self.steps = [(numbers.choice(names), numbers.randrange(1 << 16), numbers.randrange(1 << 16)) for _ in range(numbers.randint(3, 14))]
        self.answers = numbers.randint(1, 3)
        del self.numbers

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        made = [x @ self.weights[0]]
        for name, i, j in self.steps:
            made.append(getattr(self, name)(made[i % len(made)], made[j % len(made)], i, j))
        # A compiler leaves out what nobody reads, and the random numbers that it would draw.
        made[-1] = made[-1] + 0.01 * torch.stack(made).sum(0)
        return tuple(made[-self.answers :])

    def op_matmul(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a @ self.weights[j % 3]

    def op_matmul_t(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return F.linear(a, self.weights[j % 3], self.bias)

    def op_gram(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return torch.softmax(a @ b.t(), -1) @ b

    def op_add(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a + b

    def op_mul(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a * b.tanh()

    def op_div(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a / (b.square() + 1)

    def op_gelu(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return F.gelu(a)

    def op_relu_in_place(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return F.relu(a + 1, inplace=True)

    def op_sigmoid(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a.sigmoid()

    def op_silu(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return F.silu(a)

    def op_where(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return torch.where(a > b, a, b * 0.5)

    def op_dropout(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return F.dropout(a, 0.3)

    def op_noise(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a + 0.1 * torch.randn_like(a) * torch.rand(WIDTH)

    def op_layer_norm(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return self.norm(a) + 0 * b

    def op_batch_norm(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        out: Tensor = self.batch_norm(a)
        return out

    def op_narrow(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        at = i % (WIDTH - 2)
        return torch.cat([a[:, at:], b[:, :at]], 1)

    def op_views(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a.t().reshape(ROWS, WIDTH) + b.view(WIDTH, ROWS).t().contiguous().view(ROWS, WIDTH)

    def op_split(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        first, second = a.chunk(2, 1)
        return torch.cat([second * 2, first], 1) + b

    def op_unbind(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        rows = a.unbind(0)
        return torch.stack([rows[(k + i) % ROWS] for k in range(ROWS)])

    def op_expand(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a.mean(0, keepdim=True).expand(ROWS, WIDTH) + b.sum(1, keepdim=True)

    def op_write(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        out = a.clone()
        out[i % ROWS] = b[j % ROWS]
        out[:, 1:3].mul_(0.5)
        return out

    def op_fill(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a.masked_fill(b > 0.5, 0.25)

    def op_seen(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        self.seen.mul_(0.9).add_(a.detach().mean(0))
        return b + self.seen

    def op_detach(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a.detach() * b

    def op_double(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return (a.double() * 1.5).float() + b

    def op_index(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a[torch.arange(ROWS).flip(0)] + F.embedding(torch.arange(ROWS) % WIDTH, self.weights[i % 3])

    def op_sorted(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        values, places = a.sort(1)
        return values + places * 0.1 + a.amax(0)

    def op_cumsum(self, a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
        return a.cumsum(1) * 0.2 + b.logsumexp(1, keepdim=True)


def train(model: Program, call: Callable[..., Any]) -> list[Tensor]:
    """All that two steps come to."""
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen: list[Tensor] = []
    for step in range(2):
        x = torch.randn(ROWS, WIDTH, requires_grad=step == 1)
        before = x.detach().clone()
        answers = call(x)
        loss = torch.stack([answer.square().mean() for answer in answers]).sum()
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        assert torch.equal(x, before)
        seen += [loss.detach(), *(answer.detach().clone() for answer in answers)]
        seen += [p.grad.clone() for p in [x, *model.parameters()] if p.grad is not None]
        optimizer.step()
        seen += [value.clone() for value in model.state_dict().values()]
    return [*seen, torch.rand(1)]


def differs(a: Tensor, b: Tensor) -> bool:
    return a.shape != b.shape or a.dtype != b.dtype or not torch.equal(a.nan_to_num(7), b.nan_to_num(7))


def check(seed: int) -> None:
    torch._dynamo.reset()
    model = Program(seed)
    expected = train(eager := copy.deepcopy(model), eager)
    share = random.Random(seed).random()
    least, most = 0, 1 << 30
    for part in (1.0, 0.0, share):
        torch._dynamo.reset()
        backend = highwater.torch.backend(int(least + part * (most - least)))
        ours = copy.deepcopy(model)
        found = train(ours, torch.compile(ours, backend=backend, dynamic=False))
        assert len(found) == len(expected)
        wrong = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if differs(a, b)]
        assert not wrong, f"seed {seed}, {part} of the way from the floor: {wrong} of {len(expected)} differ; {model.steps}"
        assert all(report.live_bytes <= backend.memory for report in backend.reports)
        if part == 1.0 and backend.reports:
            least = max(report.floor_bytes for report in backend.reports)
            most = max(report.live_bytes for report in backend.reports)


ONLY = os.environ.get("HIGHWATER_SEED")
COUNT = int(os.environ.get("HIGHWATER_FUZZ", "12"))


@pytest.mark.parametrize("seed", [int(ONLY)] if ONLY else range(COUNT))
def test_random_modules_give_eagers_bits(seed: int) -> None:
    check(seed)
