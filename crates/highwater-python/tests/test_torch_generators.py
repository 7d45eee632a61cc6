"""Generators, seeds and states within a model, and branches by random numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import pytest
import torch
from torch import Tensor, nn

OUTSIDE = torch.Generator()
Middle = Callable[["Model", Tensor], Tensor]


class Model(nn.Module):
    def __init__(self, middle: Middle) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 1)
        self.generator = torch.Generator().manual_seed(1)
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.last(self.middle(self, self.first(x).tanh())).square().mean()
        return loss


def forked(model: Model, x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        noise = torch.randn_like(x)
    return x * noise * torch.rand_like(x)


def nested_forks(model: Model, x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        with torch.random.fork_rng(devices=[], enabled=True):
            torch.random.manual_seed(4)
            x = x * torch.randn(64)
        x = torch.dropout(x, 0.3, True)
    return torch.dropout(x, 0.3, True)


def state_put_back(model: Model, x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    noise = torch.randn_like(x)
    torch.set_rng_state(state)
    return x * noise * torch.randn_like(x)


def seeded(model: Model, x: Tensor) -> Tensor:
    torch.manual_seed(5)
    return x * torch.rand_like(x)


def own(model: Model, x: Tensor) -> Tensor:
    return x * torch.rand(x.shape, generator=model.generator) * torch.rand_like(x)


def seeded_own(model: Model, x: Tensor) -> Tensor:
    model.generator.manual_seed(7)
    return x * torch.rand(64, generator=model.generator) + torch.rand(64, generator=OUTSIDE)


def made(model: Model, x: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    other = torch.Generator(device="cpu")
    state = other.get_state()
    x = x * torch.rand(x.shape, generator=generator) * torch.rand(64, generator=other) * torch.randn(64, generator=generator) * torch.rand(64)
    other.set_state(state)
    return x + torch.rand(64, generator=other)


def all_kinds(model: Model, x: Tensor) -> Tensor:
    at = model.generator
    noise = torch.empty_like(x).normal_(generator=at).uniform_(generator=at).exponential_(generator=at)
    mask = torch.empty_like(x).bernoulli_(0.5, generator=at) + torch.bernoulli(torch.full((64,), 0.5), generator=at)
    rows, columns = torch.randperm(x.shape[0], generator=at), torch.multinomial(torch.ones(64), 64, generator=at)
    numbers = torch.randint(0, 5, (64,), generator=at) + torch.normal(0.0, 1.0, (64,), generator=at)
    default = torch.rand(64, generator=torch.default_generator) * torch.rand(64, generator=None)
    return (x * noise)[rows][:, columns] * torch.dropout(mask, 0.5, True) + numbers * default


def branch(model: Model, x: Tensor) -> Tensor:
    x = x * 2 if torch.rand(1) > 0.5 else x * torch.rand_like(x)
    return x.tanh() if torch.rand([]) < 0.3 else x


def branch_of_own(model: Model, x: Tensor) -> Tensor:
    return x * 2 if torch.rand(1, generator=model.generator) > 0.5 else x * torch.rand_like(x)


def branch_after_dropout(model: Model, x: Tensor) -> Tensor:
    x = nn.functional.dropout(x, 0.5)
    x = x * 2 if torch.randint(0, 2, (1,)) == 1 else x.tanh()
    torch.manual_seed(int(x.shape[0]))
    return x if torch.randn(3).sum() > 0 else x.sin()


def branch_that_is_certain(model: Model, x: Tensor) -> Tensor:
    x = nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)[0]
    return x if torch.rand([]) < 0.0 else x * 2


MIDDLES = [
    forked, nested_forks, state_put_back, seeded, own, seeded_own, made, all_kinds, branch, branch_of_own, branch_after_dropout, branch_that_is_certain,
]  # fmt: skip


def trained(middle: Middle, compiled: Callable[[Model], Any], steps: int = 2) -> list[Tensor]:
    """What some steps come to, with the generators after each."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    OUTSIDE.manual_seed(1)
    model = Model(middle)
    call, found = compiled(model), []
    for i in range(steps):
        torch.manual_seed(100 + i)
        loss = call(torch.randn(32, 64))
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        found += [torch.get_rng_state(), model.generator.get_state(), OUTSIDE.get_state()]
        model.zero_grad()
    return found


@pytest.mark.parametrize("middle", MIDDLES, ids=lambda middle: middle.__name__)
def test_numbers_and_generators_are_those_of_eager(middle: Middle) -> None:
    eager = trained(middle, lambda model: model)
    plenty = highwater.torch.backend("1GiB")
    assert all(map(torch.equal, eager, trained(middle, lambda model: torch.compile(model, backend=plenty, dynamic=False))))
    floor = highwater.torch.backend(max(report.floor_bytes for report in plenty.reports))
    assert all(map(torch.equal, eager, trained(middle, lambda model: torch.compile(model, backend=floor, dynamic=False))))
    # One plan is measured.
    model, x = Model(middle), torch.randn(32, 64)
    call = torch.compile(model, backend=floor, dynamic=False)
    for measured in (False, True):
        torch.manual_seed(1)
        model.generator.manual_seed(1)
        most = highwater.torch.allocated(lambda: call(x).backward())[1] if measured else call(x).backward() or 0
        model.zero_grad()
    assert most <= floor.memory - floor.reports[-1].given_bytes


def test_other_generators_each_step_share_a_plan() -> None:
    def forward(x: Tensor, generator: torch.Generator) -> Tensor:
        return (x * torch.rand(8, generator=generator)).sum()

    backend = highwater.torch.backend("1GiB")
    call = torch.compile(forward, backend=backend, dynamic=False)
    for i in range(4):
        x = torch.randn(8, requires_grad=True)
        ours, theirs = (torch.Generator().manual_seed(i) for _ in range(2))
        assert torch.equal(call(x, ours), forward(x, theirs))
        assert torch.equal(ours.get_state(), theirs.get_state())
    assert len(backend.reports) == 1


def test_a_generator_in_a_step() -> None:
    def parameters(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = Model(all_kinds)
        optimizer = torch.optim.AdamW(model.parameters())
        step = highwater.torch.step(model, optimizer=optimizer, memory="1GiB") if compiled else None
        for _ in range(3):
            x = torch.randn(32, 64)
            if step:
                step(x)
            else:
                model(x).backward()
                optimizer.step()
                optimizer.zero_grad()
        return [*model.parameters(), model.generator.get_state(), torch.get_rng_state()]

    assert all(map(torch.equal, parameters(False), parameters(True)))


def test_a_seed_that_changes_is_no_other_plan() -> None:
    def forward(x: Tensor, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return (x * torch.rand(8)).sum()

    backend = highwater.torch.backend("1GiB")
    call = torch.compile(forward, backend=backend, dynamic=False)
    x = torch.randn(8, requires_grad=True)
    for seed in (3, 4, 5, 6, 7):
        assert torch.equal(call(x, seed), forward(x, seed))
    assert len(backend.reports) <= 2


def test_requires_grad_set_to_what_it_is() -> None:
    def forward(x: Tensor) -> Tensor:
        eye = torch.eye(4)
        eye.requires_grad = False
        y = x * 2
        return ((y @ y.T - eye).norm(p="fro") + y.sum()) * 0.1

    x = torch.randn(4, 4, requires_grad=True)
    backend = highwater.torch.backend("1GiB")
    loss = torch.compile(forward, backend=backend)(x)
    assert torch.equal(loss, forward(x))
    assert len(backend.reports) == 1
