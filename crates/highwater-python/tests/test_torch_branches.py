"""Branches by values of masks and flags, as eager PyTorch takes them; models that Dynamo would cut, in one graph."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class Masked(nn.Module):
    """Takes a shorter way where nothing is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.linear(x)
        either = mask.all() or mask[0].any()
        if mask.to(torch.bool).all():
            x = x * 2.0
        elif (mask.sum(-1) == 0).any() and self.count[None][0] > 1:
            x = x - 1.0
        else:
            x = x.tanh()
        if not (torch.arange(4).diff() != 1).any():
            x = x + either
        self.count += 1
        return x.square().mean()


def test_branches_by_whole_numbers_are_those_of_the_call() -> None:
    model = Masked()
    eager = copy.deepcopy(model)
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend, dynamic=False)
    ones = torch.ones(4, 8, dtype=torch.long)
    some, row = ones.clone(), ones.clone()
    some[1, 3:], row[2] = 0, 0
    for mask in (ones, some, ones, row, row, some, ones):
        x = torch.randn(4, 8)
        ours, theirs = call(x, mask), eager(x, mask)
        ours.backward()
        theirs.backward()
        assert torch.equal(ours, theirs)
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), eager.parameters()) if a.grad is not None and b.grad is not None)
        assert model.count == eager.count
        model.zero_grad()
        eager.zero_grad()


@pytest.mark.parametrize("way", ["float", "random number of a result", "written"])
def test_other_branches_are_refused(way: str) -> None:
    def forward(x: Tensor, mask: Tensor) -> Tensor:
        if way == "written":
            mask.add_(1)
        if {"float": lambda: x.sum() > 0, "random number of a result": lambda: torch.bernoulli(x.detach().sigmoid()).sum() > 0, "written": lambda: mask.any()}[way]():
            return x.square().mean()
        return x.mean()

    with pytest.raises(highwater.torch.GraphBreak, match=r"data-dependent branching|a branch by the value of a tensor|A branch by a random number"):
        torch.compile(forward, backend=highwater.torch.backend("1GiB"), dynamic=False)(torch.randn(4, requires_grad=True), torch.ones(4, dtype=torch.long))


def test_others_keep_dynamos_branches() -> None:
    """What is compiled with other backends is cut as ever."""
    x, mask = torch.randn(4, 8), torch.ones(4, 8, dtype=torch.long)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        torch.compile(Masked(), backend="eager", fullgraph=True)(x, mask)


def test_out_that_is_a_part_of_more() -> None:
    def forward(x: Tensor) -> Tensor:
        whole = torch.empty(4, 8)
        for i in range(2):
            torch.mm(x.detach(), x.detach() + i, out=whole[:, 4 * i : 4 * i + 4])
        return (whole.tanh() * x.repeat(1, 2)).sum()

    x = torch.randn(4, 4, requires_grad=True)
    (expected,) = torch.autograd.grad(forward(x), x)
    found = torch.compile(forward, backend=highwater.torch.backend("1GiB"))(x)
    assert torch.equal(found, forward(x))
    assert torch.equal(torch.autograd.grad(found, x)[0], expected)


class Tiles(torch.autograd.Function):
    """A product in tiles of one buffer; results that are None, and have no gradient. As TRL computes log-probabilities."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, more: bool) -> Any:
        ctx.set_materialize_grads(False)
        buffer, parts = torch.empty(x.shape[0], 4), []
        for start in range(0, weight.shape[0], 3):
            tile = buffer[:, : min(3, weight.shape[0] - start)]
            torch.mm(x, weight[start : start + 3].t(), out=tile)
            parts.append(tile * tile.stride(0))
        ctx.save_for_backward(x, weight)
        y = torch.cat(parts, 1)
        highest = y > 0
        ctx.mark_non_differentiable(highest)
        return y, y.sin() if more else None, highest

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, d_more: Tensor | None, *_: Any) -> Any:
        x, weight = ctx.saved_tensors
        dy = dy if dy is None else dy.contiguous()
        rows = torch.empty(x.shape[0], 12)[:, : weight.shape[0]]
        rows.copy_(torch.zeros_like(rows) if dy is None else dy)
        if d_more is not None:
            rows += d_more * ((x @ weight.t()) * 4).cos()
        return rows @ weight * rows.stride(0), rows.t() @ x, None


@pytest.mark.parametrize("used", ["y", "more", "both"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_function_whose_backward_asks_for_strides(used: str, turned: bool) -> None:
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        y, more, highest = Tiles.apply(x, weight, used != "y")
        weights = torch.linspace(0, 1, y.numel()).view(y.shape[::-1]).t() if turned else 1.0
        loss = (y * highest * weights).sum() if used != "more" else y.detach().sum()
        return loss if more is None else loss + (more * weights).square().sum()

    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(10, 8, requires_grad=True)
    expected = forward(x, weight)
    found = torch.compile(forward, backend=highwater.torch.backend("1GiB"))(x, weight)
    assert torch.equal(found, expected)
    for a, b in zip(torch.autograd.grad(found, [x, weight]), torch.autograd.grad(expected, [x, weight]), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_training_with_quantization() -> None:
    from torch.ao import quantization

    model: Any = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    model = quantization.prepare_qat(model.train())
    x = torch.randn(16, 8)
    with pytest.raises(highwater.torch.GraphBreak, match="run the model once before torch.compile"):
        unsized = copy.deepcopy(model)
        torch.compile(lambda x: unsized(x.tanh()).square().mean(), backend=highwater.torch.backend("1GiB"), dynamic=False)(x)
    model(x)
    expected = losses(copy.deepcopy(model), lambda model: model)
    backend = highwater.torch.backend("1GiB")
    assert losses(copy.deepcopy(model), lambda model: torch.compile(model, backend=backend, dynamic=False)) == expected
    floor = highwater.torch.backend(backend.reports[0].floor_bytes)
    torch._dynamo.reset()
    assert losses(copy.deepcopy(model), lambda model: torch.compile(model, backend=floor, dynamic=False)) == expected


def losses(model: nn.Module, compiled: Callable[[nn.Module], Any]) -> list[Any]:
    """Losses and statistics of some steps."""
    call = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    for step in range(3):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = call(torch.randn(16, 8) * (step + 1)).square().mean()
        loss.backward()
        optimizer.step()
        seen += [loss.item(), *(value.tolist() for value in model.state_dict().values() if isinstance(value, Tensor))]
    return seen


def jagged() -> Tensor:
    return torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)


@pytest.mark.parametrize("whole", [False, True])
def test_nested_tensors_are_refused_by_name(whole: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, words: Tensor) -> Tensor:
            return self.linear(words).values().square().mean()

    model = Model()
    with pytest.raises(highwater.torch.CannotPlan, match=r"(words|args_0|args\[0\]) is a nested tensor.*nested_tensor_from_jagged"):
        if whole:
            highwater.torch.step(model, optimizer=torch.optim.SGD(model.parameters(), 0.1), memory="1GiB")(jagged())
        else:
            torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=False)(jagged())


def test_nested_tensors_made_in_the_model_are_planned() -> None:
    linear = nn.Linear(8, 8)

    def forward(values: Tensor, offsets: Tensor) -> Tensor:
        made = torch.nested.nested_tensor_from_jagged(values, offsets)
        return linear(made).values().square().mean()

    values, offsets = torch.randn(8, 8), torch.tensor([0, 3, 8])
    assert torch.equal(torch.compile(forward, backend=highwater.torch.backend("1GiB"))(values, offsets), forward(values, offsets))
