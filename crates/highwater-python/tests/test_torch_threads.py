"""First calls in several threads at once, with eager PyTorch's numbers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import highwater.torch
import pytest
import torch
from torch import Tensor, nn

THREADS, STEPS = 4, 12

Loss = Callable[[Tensor, Tensor], Tensor]
Wrap = Callable[[nn.Module, torch.optim.Optimizer], Loss]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def mlp(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def by_loop(call: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer) -> Loss:
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(call(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def trained(model: nn.Module, wrap: Wrap, together: Callable[[], object]) -> list[Tensor]:
    """Losses and parameters of some steps, whose batches grow."""
    step = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    numbers = torch.Generator().manual_seed(7)
    losses = []
    for i in range(STEPS):
        x, y = torch.randn(2, 3 + i // 4, 16, generator=numbers)
        together()
        losses.append(step(x, y))
    return [*losses, *model.parameters()]


def one_backend(memory: str) -> Wrap:
    backend = highwater.torch.backend(memory)
    return lambda model, optimizer: by_loop(torch.compile(model, backend=backend), optimizer)


def own_backends(memory: str) -> Wrap:
    return lambda model, optimizer: by_loop(torch.compile(model, backend=highwater.torch.backend(memory)), optimizer)


def steps(memory: str) -> Wrap:
    return lambda model, optimizer: highwater.torch.step(model, nn.MSELoss(), optimizer, memory=memory)


def in_threads(run: Callable[[Any], Any], over: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result(timeout=60) for future in [pool.submit(run, one) for one in over]]


@pytest.mark.parametrize("make", [one_backend, own_backends, steps])
def test_models_trained_in_threads_at_once(make: Callable[[str], Wrap]) -> None:
    models = [mlp(seed) for seed in range(THREADS)]
    expected = [trained(copy.deepcopy(model), by_loop, lambda: None) for model in models]
    wrap, start = make("1GiB"), threading.Barrier(THREADS, timeout=60)
    found = in_threads(lambda model: trained(model, wrap, start.wait), models)
    for theirs, ours in zip(expected, found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True))


def test_one_model_called_by_many_threads() -> None:
    model = mlp(0)
    batches = [torch.randn(3 + i % 5, 16) for i in range(16)]
    backend = highwater.torch.backend("1GiB")
    compiled = torch.compile(model, backend=backend)
    assert all(torch.equal(found, model(x)) for found, x in zip(in_threads(compiled, batches), batches, strict=True))


def test_a_first_call_within_the_backward_of_another() -> None:
    model, gate = mlp(0), mlp(1)
    x = torch.randn(4, 16)

    def gradient(call: Callable[[Tensor], Tensor], weigh: Callable[[Tensor], Tensor]) -> Tensor:
        leaf = x.clone().requires_grad_()
        middle = leaf * 2
        middle.register_hook(lambda gradient: gradient * weigh(gradient).detach())
        call(middle).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    compiled = [torch.compile(copy.deepcopy(one), backend=highwater.torch.backend("1GiB")) for one in (model, gate)]
    assert torch.equal(gradient(*compiled), gradient(model, gate))


def test_the_flag_of_tracing_is_not_seen_by_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def backend(module: Any, inputs: Any) -> Any:
        seen.append(bool(torch.compiler.is_compiling()))
        seen.extend(in_threads(lambda _: bool(torch.compiler.is_compiling()), [0]))
        return module

    plain = highwater.torch.backend("1GiB")
    monkeypatch.setattr(type(plain), "_compile", lambda self, module, inputs: backend(module, inputs))
    torch.compile(mlp(0), backend=plain)(torch.randn(2, 16))
    assert seen == [True, False]
