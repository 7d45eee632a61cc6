"""Branches by random numbers, and what draws, writes or is left out before them: as in eager PyTorch, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from releases import DRAWS_FROM_OBJECTS
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint

Use = Callable[[Any, Tensor], Tensor]
WAYS = ["step", "plenty", "floor"]


@pytest.fixture(autouse=True)
def fresh(untimed: None) -> None:
    torch._dynamo.reset()


class Model(nn.Module):
    """Calls something, and then leaves a layer out now and then."""

    def __init__(self, use: Use, drop: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.third, self.use, self.drop = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), use, drop
        self.region = torch.compiler.nested_compile_region(lambda x: self.third(x).tanh())
        self.dropping = torch.compiler.nested_compile_region(lambda x: dropped(self, x))
        self.rate = 0.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.use(self, self.first(x))
        if self.drop and torch.rand(()) < 0.5:
            x = self.second(x)
        return (x * torch.rand(8)).square().mean()


def trained(model: Model, way: str, memory: Any = "1GiB") -> tuple[list[Any], int]:
    """What some steps come to, and the smallest memory that was enough for each."""
    torch._dynamo.reset()
    torch.manual_seed(2)
    random.seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    optimizer, found = optim.SGD(model.parameters(), 0.1), list[Any]()
    backend = highwater.torch.backend(memory)
    train = highwater.torch.step(model, None, optimizer, memory=memory) if way == "step" else None
    call = torch.compile(model, backend=backend, dynamic=False) if way == "backend" else model
    for i in range(6):
        model.rate = [0.1, 0.4, 0.0, 0.3, 1.0, 0.6][i]
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(i))
        loss = train(x) if train else call(x)
        if not train:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        found += [loss.item(), torch.get_rng_state().tolist(), random.random(), [p.tolist() for p in model.parameters()]]
    return found, max((report.floor_bytes for report in backend.reports), default=0)


def check(use: Use, way: str, drop: bool = True) -> None:
    expected, _ = trained(Model(use, drop), "eager")
    if way == "step":
        assert trained(Model(use, drop), "step")[0] == expected
        return
    found, floor = trained(Model(use, drop), "backend")
    assert found == expected
    if way == "floor":
        assert trained(Model(use, drop), "backend", floor)[0] == expected


def attention(x: Tensor, share: float = 0.3, **options: Any) -> Tensor:
    rows = x.view(1, 2, 2, 8)
    return F.scaled_dot_product_attention(rows, rows * 0.5, rows + 1, dropout_p=share, **options).view(4, 8)


def grouped(model: Model, x: Tensor) -> Tensor:
    query, key = x.view(1, 4, 1, 8), torch.cat([x, x.detach()]).view(1, 2, 4, 8)
    return F.scaled_dot_product_attention(query, key, key, dropout_p=0.3, enable_gqa=True).view(4, 8)


def halves(model: Model, x: Tensor) -> Tensor:
    return attention(x.bfloat16()).float()


def forked(model: Model, x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        x = x + torch.rand(8)
    return x


def hooked(model: Model, x: Tensor) -> Tensor:
    x = x * 1
    x.register_hook(lambda gradient: gradient * 2)
    return x


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


def written(model: Model, x: Tensor) -> Tensor:
    """A branch by what was drawn into memory."""
    noise = torch.empty(3)
    first = noise[0]
    noise.uniform_()
    return x * 2 if first < 0.5 else x


def turned(model: Model, x: Tensor) -> Tensor:
    """Branches in another order than their draws."""
    first, second = torch.rand(()) < 0.5, torch.rand(()) < 0.5
    if second:
        x = model.third(x)
    return x * 2 if first else x


def of_a_vector(model: Model, x: Tensor) -> Tensor:
    kept = torch.rand(4) < 0.5
    for i in (3, 1, 0):
        if kept[i]:
            x = x + i
    return x * 2 if kept[3] else x


BEFORE: dict[str, Use] = {
    "attention": lambda model, x: attention(x),
    "causal attention": lambda model, x: attention(x, is_causal=True),
    "attention of groups": grouped,
    "attention in half precision": halves,
    "path": lambda model, x: x * x.new_empty(4, 1).bernoulli_(0.7),
    "bernoulli": lambda model, x: x * torch.bernoulli(x.detach().sigmoid()),
    "bernoulli of a tensor": lambda model, x: x * torch.empty(4, 8).bernoulli_(x.detach().sigmoid()),
    "uniform": lambda model, x: x + torch.empty_like(x).uniform_(),
    "normal": lambda model, x: x + torch.empty(3, 8).normal_().sum(0),
    "exponential": lambda model, x: x + torch.empty(4, 8).exponential_(),
    "dropout in place": lambda model, x: F.dropout(x * 2, 0.3, inplace=True),
    "dropout by a number that changes": lambda model, x: F.dropout(x, model.rate),
    "fork": forked,
    "hook": hooked,
    "checkpoint": lambda model, x: checkpoint(model.third, x, use_reentrant=False),
    "region": lambda model, x: model.region(x),
    "cond": lambda model, x: torch.cond(x.sum() > 0, model.third, lambda x: model.third(x) * 2, (x,)),
    "function": lambda model, x: Twice.apply(x),
    "drawn into memory": written,
    "another order": turned,
    "a vector": of_a_vector,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BEFORE)
def test_what_draws_before_a_branch(name: str, way: str) -> None:
    if name == "fork" and not DRAWS_FROM_OBJECTS:
        pytest.skip("refused with PyTorch 2.14")
    check(BEFORE[name], way)


def unused(draw: Callable[[Tensor], Any], coin: Callable[[], Any]) -> Use:
    def use(model: Model, x: Tensor) -> Tensor:
        draw(x)
        return x * 2 if coin() else x

    return use


COINS: dict[str, Callable[[], Any]] = {
    "python's": lambda: random.random() < 0.5,
    "never": lambda: torch.rand(()) < 0.0,
    "always": lambda: torch.rand(()) < 1.0,
    "torch's": lambda: torch.rand(()) < 0.5,
}
UNUSED: dict[str, Callable[[Tensor], Any]] = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "native dropout": lambda x: torch.native_dropout(x, 0.5, True),
    "alpha dropout": lambda x: F.feature_alpha_dropout(x, 0.5),
    "attention": attention,
    "in place": lambda x: x.new_empty(4).normal_(),
}


@pytest.mark.parametrize("way", ["step", "plenty"])
@pytest.mark.parametrize("draw", UNUSED)
@pytest.mark.parametrize("coin", COINS)
def test_draws_that_nobody_uses_stay_before_a_branch(coin: str, draw: str, way: str) -> None:
    check(unused(UNUSED[draw], COINS[coin]), way, drop=False)


def dropped(model: Any, x: Tensor) -> Tensor:
    F.dropout(x)
    return model.third(x)  # type: ignore[no-any-return]


REGIONS: dict[str, Use] = {
    "checkpoint": lambda model, x: checkpoint(lambda x: dropped(model, x), x, use_reentrant=False),
    "region": lambda model, x: model.dropping(model.dropping(x)),
    "cond": lambda model, x: torch.cond(x.sum() > -1e9, lambda x: dropped(model, x), lambda x: x * 3, (x,)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REGIONS)
def test_draws_that_nobody_uses_stay_in_regions(name: str, way: str) -> None:
    check(lambda model, x: x * 2 if (x := REGIONS[name](model, x)) is not None and random.random() < 0.5 else x, way, drop=False)


def overwritten(model: Model, x: Tensor) -> Tensor:
    coin = torch.rand(()) < 0.5
    coin.logical_not_()
    return x * 2 if coin else x


def scaled(model: Model, x: Tensor) -> Tensor:
    number = torch.rand(())
    number.mul_(5)
    return x * 2 if number < 1.0 else x


def overwritten_in_a_region(model: Model, x: Tensor) -> Tensor:
    coin = torch.rand(())

    def body(x: Tensor) -> Tensor:
        coin.fill_(0.7)
        return x * 2

    x = checkpoint(body, x, use_reentrant=False)
    return x * 2 if coin < 0.5 else x


UNKNOWN: dict[str, tuple[Use, str]] = {
    "overwritten": (overwritten, "logical_not_"),
    "overwritten, within any range": (scaled, "mul_"),
    "checkpoint": (lambda model, x: checkpoint(lambda x: F.dropout(x).tanh(), x, use_reentrant=False), "checkpoint"),
    "cond": (lambda model, x: torch.cond(x.sum() > 0, lambda x: F.dropout(x), lambda x: x * 2, (x,)), "cond"),
    "choice": (lambda model, x: x[torch.multinomial(x.detach().abs(), 4)[0]], "multinomial"),
    "values": (lambda model, x: x * 2 if torch.rand(()) < x.sum().sigmoid() else x, "linear"),
}


@pytest.mark.parametrize("way", ["step", "backend"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_keeps_a_branch_from_being_known_is_named(name: str, way: str) -> None:
    use, words = UNKNOWN[name]
    with pytest.raises(highwater.torch.GraphBreak, match=rf"A branch by a random number .*({words}).* at .*test_torch_drawn\.py:\d+"):
        trained(Model(use), way)


def test_a_region_that_writes_what_a_branch_looks_at() -> None:
    with pytest.raises(Exception):  # noqa: B017  PyTorch has words for it, too
        trained(Model(overwritten_in_a_region), "backend")


def mixed(model: Model, x: Tensor) -> Tensor:
    return x * 2 if (random.random() < 0.5) == (torch.rand(()) < 0.5) else x


def test_a_branch_by_numbers_of_both_kinds_is_refused() -> None:
    with pytest.raises(highwater.torch.GraphBreak, match=r"A branch by a random number .* follows from a number of Python's random too"):
        trained(Model(mixed), "backend")
