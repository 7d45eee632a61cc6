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
