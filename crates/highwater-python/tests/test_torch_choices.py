"""The choice among plans, by what is really alive."""

from __future__ import annotations

import highwater.torch
import pytest
import torch
from highwater.torch._backend import compiled
from highwater.torch._plan.choices import Choices
from models import CASES


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> Choices:
    """Those of a small GPT, which draws random numbers again."""
    made: list[Choices] = []

    class Seen(Choices):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(compiled, "Choices", Seen)
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = CASES["gpt"]
    torch.compile(case.model(), backend=highwater.torch.backend("1GiB"), dynamic=False)(*case.inputs())
    return made[0]


def test_more_memory_is_never_slower_and_is_never_exceeded(choices: Choices) -> None:
    floor, most = choices.floor_bytes, choices.given + choices.fastest.needed
    before = float("inf")
    for i in range(101):
        budget = floor + (most - floor) * i // 100
        choice = choices.at(budget)
        assert choices.given + choice.needed <= budget
        assert choice.plan.seconds <= before
        before = choice.plan.seconds
    assert before == choices.fastest.plan.seconds


def test_a_plan_may_be_larger_than_the_budget_where_less_is_alive(choices: Choices) -> None:
    """What a kernel's second run makes again is let go of before it, which the planner does not count."""
    floor, most = choices.floor_bytes, choices.given + choices.fastest.needed
    chosen = [(budget, choices.at(budget)) for budget in range(floor, most, (most - floor) // 100)]
    assert any(choices.given + choice.plan.live_bytes > budget for budget, choice in chosen)


def test_the_floor_is_no_more_than_a_plan_in_it_uses() -> None:
    """What kernels need for a while beside a plan may make a larger one of the planner's the smaller one."""

    def loss(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        rows = torch.tanh(x * weights).view(64, 32)
        out = torch.zeros(64, 32).index_put((torch.randint(64, (64,)),), rows, accumulate=True)
        out = out + torch.zeros(64, 32).scatter_reduce(0, torch.randint(64, (64, 32)), rows, "amax")
        return (torch.sin(out + rows.index_select(0, torch.randint(64, (64,)))) * 2).sum()

    def report(memory: int) -> highwater.torch.Report:
        torch._dynamo.reset()
        backend = highwater.torch.backend(memory)
        torch.compile(loss, backend=backend)(torch.randn(2, 1024), torch.randn(1024, requires_grad=True)).backward()
        return backend.reports[0]

    floor = report(1 << 30).floor_bytes
    assert report(floor).live_bytes == floor
    with pytest.raises(highwater.torch.OverBudget):
        report(floor - 64)
