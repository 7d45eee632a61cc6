"""Plans for Inductor's kernels, beside what Inductor does by itself."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import highwater.torch
import pytest
import torch
import torch._inductor.config as inductor
from highwater.torch._device.allocated import allocated
from models import CASES, Case, Gpt
from releases import FOUND_BY_NAME
from torch import Tensor, nn

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")

SMALL = {"gpt": Case(lambda: Gpt(layers=1), CASES["gpt"].inputs, lambda loss: loss), "unet": CASES["unet"]}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    # With more, Inductor's embeddings add up in another order each time, and its bits depend on what is fused.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(case: Case, backend: Any, dynamic: bool = False) -> tuple[list[Tensor], int]:
    """Gradients, buffers and the next random number after two steps, and the peak of the last."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, inputs = case.model(), case.inputs()
    call = torch.compile(model, backend=backend, dynamic=dynamic)

    def step() -> None:
        model.zero_grad()
        case.loss(call(*inputs)).backward()

    step()
    model.zero_grad()
    _, peak, _ = allocated(step)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [*gradients, *(buffer.clone() for buffer in model.buffers()), torch.rand(1)], peak


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def by_inductor(memory: int | str) -> highwater.torch.Backend:
    return highwater.torch.backend(memory, kernels="inductor")


@pytest.mark.parametrize("name", SMALL)
def test_numbers_are_those_of_inductor(name: str) -> None:
    """Dropout is computed again with the same numbers; running statistics are written once."""
    case = SMALL[name]
    expected, alone = train(case, "inductor")
    plenty = by_inductor("1GiB")
    answers, most = train(case, plenty)
    (report,) = plenty.reports
    assert same(answers, expected) and not report.is_bound
    for share in (0.4, 0.0):
        tight = by_inductor(int(report.floor_bytes + share * (report.live_bytes - report.floor_bytes)))
        answers, peak = train(case, tight)
        assert same(answers, expected)
        assert tight.reports[0].live_bytes <= tight.memory
        assert tight.reports[0].live_bytes < report.live_bytes
        if name == "gpt":
            assert peak < 0.9 * min(alone, most)


def test_random_kernels_of_pytorchs_run_once() -> None:
    """With `fallback_random` Inductor has eager PyTorch's random numbers, and no seeds to draw them from again."""
    case = CASES["mlp"]
    with inductor.patch(fallback_random=True):
        expected, _ = train(case, "inductor")
        plenty = by_inductor("1GiB")
        assert same(train(case, plenty)[0], expected)
        tight = by_inductor(plenty.reports[0].floor_bytes)
        assert same(train(case, tight)[0], expected)


class Counting(nn.Module):
    """A buffer that the forward reads, and overwrites with something else; the backward reads what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("scale", torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.layer(x) + self.scale)
        z = torch.tanh(self.layer(y) + self.scale)
        self.scale.mul_(0.5).add_(z.detach().mean(0))
        return self.layer(torch.tanh(z)).square().mean()


def test_what_is_overwritten_is_read_before() -> None:
    """Inductor by itself (torch 2.15) computes again from what the buffer is then."""
    case = Case(Counting, lambda: (torch.randn(128, 64),), lambda loss: loss)
    expected, _ = train(case, "eager")
    plenty = by_inductor("1GiB")
    answers, _ = train(case, plenty)
    torch.testing.assert_close(answers, expected)
    tight = by_inductor(plenty.reports[0].floor_bytes)
    assert same(train(case, tight)[0], answers)
    assert tight.reports[0].recomputed_kernels > 0


MLP = Case(lambda: nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)), lambda: (torch.randn(32, 16),), lambda out: out.square().mean())


def test_sizes_that_are_symbols() -> None:
    backend = by_inductor("1GiB")
    assert same(train(MLP, backend, dynamic=True)[0], train(MLP, "inductor")[0])
    assert len(backend.reports) == 1


def test_without_gradients_there_is_no_plan() -> None:
    backend = by_inductor("1KiB")
    with torch.no_grad():
        torch.compile(MLP.model(), backend=backend)(*MLP.inputs())
    assert not backend.reports


def test_what_no_plan_is_for_is_refused() -> None:
    with pytest.raises(highwater.OverBudget, match="does not fit into 1.0 KiB"):
        train(MLP, by_inductor("1KiB"))

    def branch(x: Tensor, weight: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, [x * weight]).sum()

    torch._dynamo.reset()
    with pytest.raises(Exception, match="contains further graphs, which cannot be planned for Inductor"):
        torch.compile(branch, backend=by_inductor("1GiB"))(torch.randn(8), torch.randn(8, requires_grad=True)).backward()


def test_a_partitioner_of_the_users_is_not_replaced() -> None:
    from highwater.torch._backend.inductor import Partitioner

    partitioner = Partitioner(lambda *_: pytest.fail("not asked"))
    assert copy.deepcopy(partitioner) is partitioner
    with inductor.patch(custom_partitioner_fn=partitioner), pytest.raises(Exception, match="custom_partitioner_fn is set"):
        train(MLP, by_inductor("1GiB"))


@FOUND_BY_NAME
def test_by_name() -> None:
    options = {"memory": "1GiB", "kernels": "inductor"}
    model = MLP.model()
    call: Callable[..., Tensor] = torch.compile(model, backend="highwater", options=options)
    MLP.loss(call(*MLP.inputs())).backward()
    with pytest.raises(ValueError, match="kernels='nvcc'"):
        highwater.torch.backend("1GiB", kernels="nvcc")  # type: ignore[arg-type]
