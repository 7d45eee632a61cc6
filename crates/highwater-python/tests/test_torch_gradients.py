"""Gradients that autograd would copy when a backward is over, and those that are there before: told, and the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._device.allocated import allocated
from torch import Tensor, nn

SIZE = 96


class Two(nn.Module):
    def __init__(self, loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.p, self.q = nn.Parameter(torch.randn(SIZE, SIZE)), nn.Parameter(torch.randn(SIZE, SIZE))
        self.image = nn.Parameter(torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last))
        self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(self.p, self.q, x) + (self.image * self.image).mean()


# Of two parameters and an input: gradients that are expanded, one for two, transposed, parts, and none of these.
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "expanded": lambda p, q, x: p.sum() + 2 * q.sum(),
    "one for two": lambda p, q, x: ((p + q) @ x).square().mean(),
    "transposed": lambda p, q, x: (p.t() * 2 + q.t() * x).square().mean(),
    "parts": lambda p, q, x: (torch.cat([p, q], 1) @ torch.cat([x, x])).square().mean(),
    "whole": lambda p, q, x: (x @ p @ q).square().mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_autograd_would_copy_is_told(name: str) -> None:
    torch._dynamo.reset()
    model = Two(LOSSES[name])
    x = torch.randn(SIZE, SIZE)
    model(x).backward()
    expected = [p.grad for p in model.parameters()]
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend, dynamic=False, fullgraph=True)
    model.zero_grad()
    call(x).backward()
    model.zero_grad()
    _, peak, _ = allocated(lambda: call(x).backward())
    found = [p.grad for p in model.parameters()]
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(found, expected, strict=True))
    (report,) = backend.reports
    assert report.live_bytes == peak + report.given_bytes


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(SIZE, SIZE), nn.GELU()) for _ in range(6)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_that_are_added_to_are_beside_a_plan(dynamic: bool) -> None:
    torch._dynamo.reset()
    model, x = Deep(), torch.randn(4 * SIZE, SIZE)
    weights = sum(p.nbytes for p in model.parameters())
    plenty = highwater.torch.backend("1GiB")
    torch.compile(model, backend=plenty, dynamic=dynamic)(x).backward()
    expected = [4 * p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    torch._dynamo.reset()
    most = plenty.reports[0].live_bytes
    backend = highwater.torch.backend(most)
    call = torch.compile(model, backend=backend, dynamic=dynamic)
    for _ in range(3):
        call(x).backward()
    _, peak, _ = allocated(lambda: call(x).backward())
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), expected) if p.grad is not None)
    without, beside = backend.reports
    assert without.live_bytes == most and beside.given_bytes == without.given_bytes + weights
    assert beside.live_bytes == peak + beside.given_bytes <= most
    # Either plan is there for who lets go of them.
    model.zero_grad()
    call(x).backward()
    assert backend.reports == [without, beside]


def test_gradients_that_no_plan_has_room_for_are_told() -> None:
    """They may be gone before the backward, as loops often have it: that is no error."""
    torch._dynamo.reset()
    model, x = Deep(), torch.randn(4 * SIZE, SIZE)
    backend = highwater.torch.backend("1GiB")
    torch.compile(model, backend=backend)(x).backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    torch._dynamo.reset()
    call = torch.compile(model, backend=highwater.torch.backend(backend.reports[0].floor_bytes))
    with pytest.warns(highwater.torch.AboveMemory, match=r"gradients of earlier backward passes use .* call zero_grad\(\) before the forward") as told:
        for _ in range(3):
            loss = call(x)
            model.zero_grad()
            loss.backward()
    assert [warning.filename for warning in told] == [__file__]
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), expected) if p.grad is not None)


class Teacher(nn.Module):
    """Writes to a parameter in its forward, as models with a teacher that follows them do."""

    def __init__(self, write: Callable[[nn.Module], None], reached: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.student, self.teacher = nn.Linear(16, 16), nn.Linear(16, 16)
        self.write, self.reached = write, reached

    def forward(self, x: Tensor) -> Tensor:
        self.write(self)
        target = self.teacher(x)
        return (self.student(x) - (target if self.reached else target.detach())).square().mean()


@torch.no_grad()
def followed(model: nn.Module) -> None:
    for a, b in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
        a.mul_(0.9).add_(b, alpha=0.1)


@torch.no_grad()
def clamped(model: nn.Module) -> None:
    model.teacher.weight.clamp_(-0.1, 0.1)


def shrunk(model: nn.Module) -> None:
    model.teacher.weight.data.mul_(0.9)


WRITES: dict[str, Callable[[nn.Module], None]] = {"followed": followed, "clamped": clamped, "shrunk": shrunk}


@pytest.mark.parametrize("reached", [False, True])
@pytest.mark.parametrize("way", ["backend", "step", "step of the student"])
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_to_a_leaf_brings_it_no_gradient(name: str, way: str, reached: bool) -> None:
    def trained(way: str, memory: int | str) -> list[Tensor | int]:
        torch._dynamo.reset()
        model = Teacher(WRITES[name], reached)
        updated = model.student if way.endswith("student") else model
        optimizer = torch.optim.AdamW(updated.parameters(), lr=0.1, weight_decay=0.1)
        x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
        if way.startswith("step") and memory:
            step = highwater.torch.step(model, None, optimizer, memory=memory)
            for _ in range(3):
                step(x)
        else:
            call = torch.compile(model, backend=highwater.torch.backend(memory), dynamic=False) if memory else model
            for _ in range(3):
                call(x).backward()
                optimizer.step()
                model.zero_grad()
        return [*(p.detach() for p in model.parameters()), torch.tensor(len(optimizer.state))]

    if way.endswith("student") and reached:
        with pytest.raises(highwater.torch.CannotPlan, match="not in the optimizer"):
            trained(way, "1GiB")
        return
    with pytest.raises(highwater.OverBudget) as least:
        trained(way, 1)
    expected, floor = trained(way, 0), re.search(r"\((\d+) bytes\)", str(least.value))
    assert floor
    for memory in ("1GiB", int(floor[1])):
        assert all(map(torch.equal, trained(way, memory), expected)), memory


@pytest.mark.parametrize("way", ["backend", "step"])
def test_inputs_that_a_model_does_not_use_are_counted(way: str) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor, mask: Tensor, **others: Tensor) -> Tensor:
            return self.layer(x).square().mean()

    model, x, mask, ids = Masked(), torch.randn(8, 16), torch.ones(300, 300), torch.ones(100, dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch._dynamo.reset()
    planned: Any = highwater.torch.backend("1GiB") if way == "backend" else highwater.torch.step(model, None, optimizer, memory="1GiB")
    call = torch.compile(model, backend=planned, dynamic=False) if way == "backend" else planned
    call(x, mask, ids=ids)
    given = sum(tensor.nbytes for tensor in (*model.parameters(), x, mask, ids))
    assert planned.reports[0].given_bytes >= given


class Attribute(torch.autograd.Function):
    """Keeps a tensor as an attribute of `ctx`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.mask = torch.rand_like(x)
        return x * weights * ctx.mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weights = ctx.saved_tensors
        return grad * weights * ctx.mask, (grad * x * ctx.mask).sum(0)


class WithAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weights = nn.Linear(16, 16), nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        return Attribute.apply(self.layer(x), self.weights).square().sum()  # type: ignore[no-any-return, no-untyped-call]


class Renormed(nn.Module):
    """Writes to its table, of which a gradient comes in, if only as zeros."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.table, self.weights, self.detached = nn.Embedding(50, 16, max_norm=1.0), nn.Parameter(torch.randn(16)), detached

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.table(ids)
        return ((rows.detach() if self.detached else rows) * self.weights).square().sum()


@pytest.mark.parametrize("kind", ["attribute", "renormed", "detached"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_what_autograd_holds_beside_saved_tensors_is_in_the_budget(kind: str, share: float) -> None:
    def measured(memory: int | str) -> tuple[highwater.torch.Report, int, list[Tensor]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = WithAttribute() if kind == "attribute" else Renormed(kind == "detached")
        x = torch.randn(64, 16) if kind == "attribute" else torch.randint(0, 50, (30,))
        backend = highwater.torch.backend(memory)
        call = torch.compile(model, backend=backend, dynamic=False)
        call(x).backward()
        model.zero_grad()
        _, most, _ = highwater.torch.allocated(lambda: call(x).backward())
        found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        return backend.reports[0], most + sum(tensor.nbytes for tensor in (*model.parameters(), x)), found

    plenty, _, expected = measured("1GiB")
    memory = int(plenty.floor_bytes + share * (plenty.live_bytes - plenty.floor_bytes))
    _, most, found = measured(memory)
    assert most <= memory
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_numbers_that_become_inputs_are_in_the_budget() -> None:
    def measured(memory: int | str) -> tuple[int, list[int]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.Dropout(0.1), nn.GELU())])
        step = highwater.torch.step(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), memory=memory)
        x, y = torch.randn(16, 32), torch.randn(16, 32)
        given = sum(tensor.nbytes for tensor in (*model.parameters(), x, y))
        step(x, y)
        for layer in model:
            if isinstance(layer, nn.Dropout):
                layer.p = 0.5
        step(x, y)
        most = [given + highwater.torch.allocated(lambda: step(x, y))[1] for _ in range(2)]
        return max(report.floor_bytes for report in step.reports), most

    floor, _ = measured("1GiB")
    assert max(measured(floor)[1]) <= floor
