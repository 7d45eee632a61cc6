"""`torch.utils.checkpoint` in a model: what its policies say is done."""

from __future__ import annotations

import copy
import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._backend import compiled
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from highwater import Instruction

Policy = Callable[..., CheckpointPolicy]
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class Layer(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(F.gelu(self.up(x)), self.dropout, self.training)
        return self.norm(self.down(h)).tanh()


class Model(nn.Module):
    def __init__(self, policy: Policy | None, layers: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(32, dropout) for _ in range(layers))
        self.policy = policy

    def forward(self, x: Tensor) -> Tensor:
        more = {} if self.policy is None else {"context_fn": functools.partial(create_selective_checkpoint_contexts, self.policy)}
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False, **more)
        return x


def products(then: CheckpointPolicy, other: CheckpointPolicy) -> Policy:
    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return then if op in PRODUCTS else other

    return policy


MUST, PREFER = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE
AGAIN, RATHER_AGAIN = CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE

POLICIES: dict[str, Policy | None] = {
    "plain": None,
    "products": products(MUST, RATHER_AGAIN),
    "rather products": products(PREFER, RATHER_AGAIN),
    "all": products(MUST, MUST),
    "nothing": products(AGAIN, AGAIN),
    "no products": products(AGAIN, PREFER),
}


def grads(model: nn.Module, call: Callable[[Tensor], Tensor]) -> list[Tensor]:
    torch.manual_seed(3)
    call(torch.randn(64, 32)).square().mean().backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return [*found, torch.rand(1)]


class Seen:
    """How often kernels of the forward run again in the last plan that a backend carries out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.again: Counter[Any] = Counter()
        plain = compiled.emit

        def emit(joint: Any, choice: Any, transfers: Any) -> Any:
            runs = Counter(step.node for step in choice.plan.instructions if isinstance(step, Instruction.Run))
            self.again.clear()
            for i, kernel in enumerate(joint.kernels):
                if kernel.node not in joint.backward:
                    self.again[kernel.node.target] += runs[i] - 1
            return plain(joint, choice, transfers)

        monkeypatch.setattr(compiled, "emit", emit)


def planned(model: nn.Module, memory: int, expected: list[Tensor] | None = None) -> highwater.torch.Report:
    torch._dynamo.reset()
    backend = highwater.torch.backend(memory)
    found = grads(model, torch.compile(model, backend=backend, dynamic=False))
    if expected is not None:
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    (report,) = backend.reports
    assert report.live_bytes <= memory
    return report


@pytest.mark.parametrize("name", POLICIES)
def test_what_policies_say_is_done_at_every_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    seen, model = Seen(monkeypatch), Model(POLICIES[name])
    eager = Model(None)
    eager.load_state_dict(model.state_dict())
    expected = grads(eager, eager)
    plenty = planned(model, 1 << 30, expected)
    again = dict(seen.again)
    if name in ("plain", "all"):
        assert plenty.recomputed_kernels == 0
    else:
        assert plenty.recomputed_kernels > 0
    for share in (0.0, 0.5):
        planned(model, int(plenty.floor_bytes + share * (plenty.live_bytes - plenty.floor_bytes)), expected)
        if name in ("products", "all"):
            assert not any(seen.again[op] for op in PRODUCTS)
        if name in ("nothing", "no products"):
            assert sum(seen.again[op] for op in PRODUCTS) >= 4
    # With enough, a wish is as good as a demand.
    if "products" in name or name == "nothing":
        often = sum(again.get(op, 0) for op in PRODUCTS)
        assert often == 0 if name in ("products", "rather products") else often >= 4


def test_wishes_give_way_to_the_budget() -> None:
    torch.manual_seed(1)
    rather, must = Model(products(PREFER, PREFER)), Model(products(MUST, MUST))
    wish, demand = planned(rather, 1 << 30), planned(must, 1 << 30)
    assert wish.live_bytes == demand.live_bytes and wish.recomputed_kernels == demand.recomputed_kernels == 0
    assert wish.floor_bytes < demand.floor_bytes
    tight = planned(rather, wish.floor_bytes)
    assert tight.recomputed_kernels > 0
    torch._dynamo.reset()
    with pytest.raises(highwater.OverBudget, match="are held because a checkpoint policy in the model says MUST_SAVE"):
        torch.compile(must, backend=highwater.torch.backend(wish.floor_bytes))(torch.randn(64, 32))


def test_the_same_in_a_step() -> None:
    torch.manual_seed(1)
    models = [Model(products(MUST, RATHER_AGAIN), dropout=0.0), Model(None, dropout=0.0)]
    models[1].load_state_dict(models[0].state_dict())
    steps = [highwater.torch.step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1), memory="1GiB") for model in models]
    x, y = torch.randn(2, 64, 32)
    for _ in range(2):
        assert torch.equal(steps[0](x, y), steps[1](x, y))
    assert steps[0].reports[0].recomputed_kernels > 0 == steps[1].reports[0].recomputed_kernels
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters()))


@pytest.mark.parametrize("seed", range(6))
def test_policies_at_random(seed: int) -> None:
    drawn = random.Random(seed)
    choices: dict[str, CheckpointPolicy] = {}

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return choices.setdefault(str(op), drawn.choice([MUST, PREFER, AGAIN, RATHER_AGAIN]))

    torch.manual_seed(seed)
    model = Model(policy, layers=drawn.randint(1, 5), dropout=drawn.choice([0.0, 0.2]))
    eager = Model(None, layers=len(model.layers), dropout=model.layers[0].dropout)
    eager.load_state_dict(copy.deepcopy(model.state_dict()))
    expected = grads(eager, eager)
    plenty = planned(model, 1 << 30, expected)
    for share in (0.0, drawn.random()):
        planned(model, int(plenty.floor_bytes + share * (plenty.live_bytes - plenty.floor_bytes)), expected)
