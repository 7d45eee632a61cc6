"""Parameters that a step uses and its optimizer does not have: those of another network, or of a teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable

import highwater.torch
import pytest
import torch
from torch import Tensor, nn, optim


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))


class Gan(nn.Module):
    """Judges what a generator makes, which another optimizer trains."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.judge, self.generator, self.how = net(1), net(2), how

    def forward(self, real: Tensor, noise: Tensor) -> Tensor:
        if self.how == "no_grad":
            with torch.no_grad():
                fake = self.generator(noise)
        elif self.how == "detach":
            fake = self.generator(noise).detach()
        else:
            fake = noise
        return self.judge(fake).square().mean() - self.judge(real).tanh().mean()


def trained(how: str, by: Callable[[Gan, optim.Optimizer], Callable[[Tensor, Tensor], Tensor]], clip: float | None) -> list[Tensor]:
    model = Gan(how)
    step = by(model, optim.AdamW(model.judge.parameters(), lr=0.01))
    torch.manual_seed(3)
    losses = [step(torch.randn(4, 8), torch.randn(4, 8)) for _ in range(3)]
    assert all(parameter.grad is None for parameter in model.generator.parameters())
    return [*losses, *model.parameters()]


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("how", ["no_grad", "detach", "unused"])
def test_parameters_without_gradients_need_no_optimizer(how: str, clip: float | None) -> None:
    def plain(model: Gan, optimizer: optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
        def step(real: Tensor, noise: Tensor) -> Tensor:
            loss: Tensor = model(real, noise)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    steps: list[highwater.torch.Step] = []

    def planned(memory: int) -> Callable[[Gan, optim.Optimizer], Callable[[Tensor, Tensor], Tensor]]:
        def by(model: Gan, optimizer: optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
            steps.append(highwater.torch.step(model, None, optimizer, memory=memory, max_grad_norm=clip))
            return steps[-1]

        return by

    expected = trained(how, plain, clip)
    found = trained(how, planned(1 << 30), clip)
    least = trained(how, planned(max(report.floor_bytes for report in steps[0].reports)), clip)
    for theirs, ours, tight in zip(expected, found, least, strict=True):
        assert torch.equal(theirs, ours) and torch.equal(theirs, tight)


def test_parameters_with_gradients_need_one() -> None:
    model = Gan("unused")
    step = highwater.torch.step(model, None, optim.SGD(model.generator.parameters(), 0.1), memory="1GiB")
    with pytest.raises(highwater.torch.CannotPlan, match=r"the loss depends on judge.0.weight, which is not in the optimizer: add it, or call requires_grad_"):
        step(torch.randn(4, 8), torch.randn(4, 8))


def test_a_gradient_that_would_be_clipped_by_is_refused() -> None:
    model = Gan("no_grad")
    before = copy.deepcopy(model.state_dict())
    for parameter in model.generator.parameters():
        parameter.grad = torch.ones_like(parameter)
    step = highwater.torch.step(model, None, optim.SGD(model.judge.parameters(), 0.1), memory="1GiB", max_grad_norm=1.0)
    with pytest.raises(RuntimeError, match=r"generator.0.weight already has a gradient, which would be part of the step"):
        step(torch.randn(4, 8), torch.randn(4, 8))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # Without clipping it is nobody's.
    highwater.torch.step(model, None, optim.SGD(model.judge.parameters(), 0.1), memory="1GiB")(torch.randn(4, 8), torch.randn(4, 8))
