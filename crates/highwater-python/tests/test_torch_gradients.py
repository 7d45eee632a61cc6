"""Gradients that autograd would copy when a backward is over, and those that are there before: told, and the same bits."""

from __future__ import annotations

from collections.abc import Callable

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
