"""Whole training steps within a budget, beside eager ones."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highwater.torch
import pytest
import torch
from models import CASES, Case
from torch import Tensor, nn, optim


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class WithLoss(nn.Module):
    def __init__(self, case: Case, model: nn.Module) -> None:
        super().__init__()
        self.case, self.model = case, model

    def forward(self, *inputs: Tensor) -> Tensor:
        answer = self.model(*inputs)
        return self.case.loss(*answer) if isinstance(answer, tuple) else self.case.loss(answer)


Make = Callable[[nn.Module], optim.Optimizer]


def eager(model: nn.Module, make: Make, data: list[Any], micro: int, norm: float | None, scaled: bool, half: bool) -> list[Tensor]:
    optimizer, losses = make(model), []
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for i, inputs in enumerate(data, 1):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(*inputs)
        scaler.scale(loss / micro).backward()
        losses.append(loss.detach())
        if i % micro == 0:
            scaler.unscale_(optimizer)
            if norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    return losses


def ours(
    model: nn.Module, make: Make, data: list[Any], micro: int, norm: float | None, scaled: bool, half: bool, memory: int
) -> tuple[list[Tensor], highwater.torch.Step]:
    optimizer, losses = make(model), []
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    step = highwater.torch.step(
        model,
        None,
        optimizer,
        memory=memory,
        gradient_accumulation_steps=micro,
        max_grad_norm=norm,
        scaler=torch.amp.GradScaler("cpu") if scaled else None,
    )
    for i, inputs in enumerate(data, 1):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            losses.append(step(*inputs))
        if i % micro == 0:
            scheduler.step()
            assert all(p.grad is None for p in model.parameters())
    return losses, step


MAKES: dict[str, Make] = {
    "adamw": lambda model: optim.AdamW(model.parameters(), 1e-2),
    "momentum": lambda model: optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1),
    "groups": lambda model: optim.Adam(
        [{"params": [p], "lr": 0.01 / i} for i, p in enumerate(model.parameters(), 1)], amsgrad=True
    ),
    # Those that look at numbers of their state.
    "asgd": lambda model: optim.ASGD(model.parameters(), 0.1, t0=1),
    "adafactor": lambda model: optim.Adafactor(model.parameters(), 1e-2),
}

@pytest.mark.parametrize(
    ("name", "kind", "micro", "norm", "scaled", "half"),
    [
        ("mlp", "adamw", 3, None, False, False),
        ("mlp", "groups", 2, 0.1, False, False),
        ("mlp", "adamw", 2, None, True, False),
        ("mlp", "momentum", 1, 0.5, False, True),
        ("mlp", "asgd", 1, None, False, False),
        ("mlp", "adafactor", 2, 0.1, False, False),
        ("gpt", "adamw", 1, None, False, False),
        ("gpt", "groups", 2, 0.1, False, False),
        ("gpt", "adamw", 1, None, False, True),
        ("unet", "momentum", 2, None, False, True),
    ],
)
def test_steps_are_those_of_eager_pytorch(
    name: str, kind: str, micro: int, norm: float | None, scaled: bool, half: bool
) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    model = WithLoss(case, case.model())
    data = [case.inputs() for _ in range(2 * micro)]
    expected = copy.deepcopy(model)
    torch.manual_seed(1)
    losses = eager(expected, MAKES[kind], data, micro, norm, scaled, half)
    memory = 1 << 30
    for _ in range(2):
        torch._dynamo.reset()
        trained = copy.deepcopy(model)
        torch.manual_seed(1)
        found, step = ours(trained, MAKES[kind], data, micro, norm, scaled, half, memory)
        assert all(torch.equal(a, b) for a, b in zip(losses, found, strict=True))
        state = zip(expected.state_dict().values(), trained.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in state)
        assert all(report.live_bytes <= report.budget_bytes for report in step.reports)
        memory = max(report.floor_bytes for report in step.reports)


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))


def test_targets_and_keywords() -> None:
    model = classifier()
    twin = copy.deepcopy(model)
    x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
    step = highwater.torch.step(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1), memory="1GiB")
    loss = step(x, y)
    expected = nn.CrossEntropyLoss()(twin(x), y)
    expected.backward()
    optim.SGD(twin.parameters(), 0.1).step()
    assert torch.equal(loss, expected)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    # Another size is another plan.
    step(x[:5], y[:5])
    assert len(step.reports) == 2


def test_updates_let_go_of_gradients() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(16)))
    optimizer = optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(2, 64), torch.randn(2, 64)
    soon = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    soon(*inputs)
    late = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB", max_grad_norm=1.0)
    late(*inputs)
    weights = sum(p.nbytes for p in model.parameters())
    assert soon.reports[0].live_bytes < weights * 1.2 < weights * 1.9 < late.reports[0].live_bytes


def test_what_does_not_fit_changes_nothing() -> None:
    model = classifier()
    before = copy.deepcopy(model.state_dict())
    for micro in (1, 3):
        step = highwater.torch.step(
            model, nn.CrossEntropyLoss(), optim.AdamW(model.parameters()), memory="4KiB", gradient_accumulation_steps=micro
        )
        with pytest.raises(highwater.torch.OverBudget, match=r"the optimizer's state"):
            step(torch.randn(16, 8), torch.randint(0, 4, (16,)))
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_what_a_step_refuses() -> None:
    model = classifier()
    data = torch.randn(16, 8), torch.randint(0, 4, (16,))

    def step(optimizer: optim.Optimizer, **words: Any) -> None:
        highwater.torch.step(model, nn.CrossEntropyLoss(), optimizer, memory="1GiB", **words)(*data)

    some = optim.SGD(list(model.parameters())[:2], 0.1)
    with pytest.raises(ValueError, match="depends on 2.weight, which is not in the optimizer"):
        step(some)
    every = optim.SGD(model.parameters(), 0.1)
    for loss_fn, kind, words in [
        (lambda out, target: (out.sum(), target), TypeError, "loss_fn must return a tensor, not tuple"),
        (lambda out, target: out.detach().sum(), ValueError, "depends on no parameter that requires a gradient"),
    ]:
        with pytest.raises(kind, match=words):
            highwater.torch.step(model, loss_fn, every, memory="1GiB")(*data)
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    with pytest.raises(RuntimeError, match="0.weight already has a gradient"):
        step(every)
    every.zero_grad()
    handle = model[0].bias.register_hook(lambda grad: grad * 2)
    with pytest.raises(ValueError, match="0.bias has gradient hooks"):
        step(every)
    handle.remove()
    with pytest.raises(ValueError, match=r"shape \(16, 4\) and must be a single number"):
        highwater.torch.step(model, optimizer=every, memory="1GiB")(data[0])
    with pytest.raises(TypeError, match=r"needs an optimizer: .* step\(model, optimizer=optimizer, memory=...\)"):
        highwater.torch.step(model, memory="1GiB")
    with pytest.raises(TypeError, match=r"loss_fn is an optimizer \(SGD\): pass it by name, optimizer=optimizer"):
        highwater.torch.step(model, every, memory="1GiB")  # type: ignore[arg-type]
    step(every)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if x.sum() > 1e9:
            x = x * 2
        return x.square().mean()


def test_a_model_that_is_no_graph_is_refused_with_its_line() -> None:
    model, x = Branching(), torch.randn(16, 8)
    line = Branching.forward.__code__.co_firstlineno + 2
    before = copy.deepcopy(model.state_dict())
    step = highwater.torch.step(model, optimizer=optim.SGD(model.parameters(), 0.1), memory="1GiB")
    for call in (step, step, lambda x: highwater.torch.plan(model, x)):
        with pytest.raises(highwater.torch.GraphBreak, match=rf"not one graph: .* breaks it at .*test_torch_step\.py:{line} \(.*branching"):
            call(x)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    with pytest.raises(highwater.torch.GraphBreak, match=r"breaks it at .*test_torch_step\.py:\d+ \(.*graph break"):
        # In the loss as well.
        loss = lambda out, target: (torch._dynamo.graph_break(), out - target)[1].mean()  # noqa: E731
        highwater.torch.step(model.layer, loss, optim.SGD(model.parameters(), 0.1), memory="1GiB")(x, torch.zeros(16, 4))


@pytest.mark.parametrize("make", [optim.AdamW, lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9)])
def test_states_stand_in_eagers_order(make: Callable[..., optim.Optimizer]) -> None:
    plain = classifier()
    model = copy.deepcopy(plain)
    data = torch.randn(16, 8), torch.randint(0, 4, (16,))
    expected, optimizer = (make([{"params": m[2].parameters()}, {"params": m[0].parameters()}]) for m in (plain, model))
    step = highwater.torch.step(model, nn.CrossEntropyLoss(), optimizer, memory="1GiB")
    for _ in range(2):
        nn.CrossEntropyLoss()(plain(data[0]), data[1]).backward()
        expected.step()
        expected.zero_grad()
        step(*data)
        ours, theirs = optimizer.state_dict()["state"], expected.state_dict()["state"]
        assert [(i, list(state)) for i, state in ours.items()] == [(i, list(state)) for i, state in theirs.items()]
        assert all(torch.equal(a, b) for i in theirs for a, b in zip(ours[i].values(), theirs[i].values(), strict=True))


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4, sparse=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).square().mean()


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[x.sum(1) > 0].square().mean()


def test_graphs_that_cannot_be_planned() -> None:
    for model, inputs, words in [
        (Sparse(), torch.randint(0, 10, (8,)), "in table at .*sparse result"),
        (Chosen(), torch.randn(8, 4), r"test_torch_step\.py:\d+ has a result whose size depends on data"),
    ]:
        torch._dynamo.reset()
        step = highwater.torch.step(model, None, optim.SGD(model.parameters(), 0.1), memory="1GiB")
        with pytest.raises(highwater.torch.CannotPlan, match=words):
            step(inputs)


class Halves(nn.Module):
    """Two parameters that are views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(32)
        self.a, self.b = nn.Parameter(whole[:16].view(4, 4)), nn.Parameter(whole[16:].view(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return ((x @ self.a).tanh() @ self.b).square().mean()


def test_parameters_that_share_bytes() -> None:
    model = Halves()
    twin, x = copy.deepcopy(model), torch.randn(8, 4)
    highwater.torch.step(model, None, optim.AdamW(model.parameters()), memory="1GiB")(x)
    twin(x).backward()
    optim.AdamW(twin.parameters()).step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


class Talking(nn.Module):
    """Answers as Hugging Face's models do, and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logger.warning("%s classes", 4)
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


logger = logging.getLogger(__name__)


def test_models_that_log_and_answer_their_loss() -> None:
    model = Talking()
    twin = copy.deepcopy(model)
    data = {"x": torch.randn(16, 8), "labels": torch.randint(0, 4, (16,))}
    # A learning rate may be a tensor.
    step = highwater.torch.step(model, None, optim.AdamW(model.parameters(), lr=torch.tensor(0.1)), memory="1GiB")
    loss = step(**data)
    expected = twin(**data)["loss"]
    expected.backward()
    optim.AdamW(twin.parameters(), lr=torch.tensor(0.1)).step()
    assert torch.equal(loss, expected)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert highwater.torch.plan(model, data, optimizer=optim.AdamW).parameter_bytes == 4 * (32 + 4)


class Doubling(optim.SGD):
    """An optimizer that nobody knows."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            total = sum(p.grad.sum() for group in self.param_groups for p in group["params"])
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * total)


def test_optimizers_that_look_at_all_gradients() -> None:
    model = classifier()
    twin = copy.deepcopy(model)
    data = torch.randn(16, 8), torch.randint(0, 4, (16,))
    highwater.torch.step(model, nn.CrossEntropyLoss(), Doubling(model.parameters(), 0.1), memory="1GiB")(*data)
    nn.CrossEntropyLoss()(twin(data[0]), data[1]).backward()
    Doubling(twin.parameters(), 0.1).step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (optim.AdamW, {}),
        (optim.Adafactor, {}),
        (optim.NAdam, {}),
        (optim.RMSprop, {}),
        (optim.Adagrad, {}),
        (optim.ASGD, {"t0": -5}),  # it averages from there on
        (optim.Adadelta, {}),
        (optim.RAdam, {}),
    ],
)
def test_states_and_scratch_are_foretold(make: Callable[..., optim.Optimizer], settings: dict[str, Any]) -> None:
    from highwater.torch._device.allocated import allocated
    from highwater.torch._optim.optimizers import Optimizers
    from highwater.torch._optim.updates import Updates

    weight = nn.Parameter(torch.zeros(1000, 250))
    optimizer = make([weight], **settings)
    needs = Updates(Optimizers(optimizer)).needs(weight)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    state = sum(leaf.nbytes for leaf in optimizer.state[weight].values() if isinstance(leaf, Tensor))
    # RAdam needs more from its sixth step on.
    taken = [most - now for _, most, now in (allocated(optimizer.step) for _ in range(8))]
    assert needs.state == state
    assert needs.scratch == pytest.approx(max(taken), abs=100)


@pytest.mark.parametrize("shape", [(64, 64), (1000, 250), (33, 129)])
def test_what_products_of_an_update_take_is_foretold(shape: tuple[int, int], tmp_path: Path) -> None:
    from highwater.torch._device.allocated import allocated
    from highwater.torch._graph.joint import Kernel
    from highwater.torch._optim.optimizers import Optimizers
    from highwater.torch._optim.updates import Updates
    from highwater.torch._plan.costs import Costs

    costs = Costs(tmp_path / "kernels")
    weight = nn.Parameter(torch.randn(shape))
    optimizer = optim.Muon([weight])
    scratch = Updates(Optimizers(optimizer), lambda node: costs.of(Kernel(node, [], []))[1]).needs(weight).scratch
    weight.grad = torch.randn(shape)
    optimizer.step()
    _, most, now = allocated(optimizer.step)
    assert most - now <= scratch <= 1.2 * (most - now)


@pytest.mark.parametrize("watched", [False, True])
def test_frozen_parameters_of_an_optimizer_have_no_state(watched: bool) -> None:
    """Neither updated one by one nor all at once."""
    floors = []
    for everything in (True, False):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 64))
        model[0].requires_grad_(False)
        optimizer = optim.AdamW((model if everything else model[2]).parameters())
        if watched:
            optimizer.register_step_pre_hook(lambda *_: None)
        step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
        step(torch.randn(8, 64), torch.randn(8, 64))
        floors.append(step.reports[0].floor_bytes)
    assert floors[0] == floors[1]


class Tagged(Tensor):
    """A subclass that holds nothing of its own."""


@pytest.mark.parametrize("accumulation", [1, 2])
def test_subclasses_without_tensors_of_their_own(accumulation: int) -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(8, 8), torch.randn(4, 8).as_subclass(Tagged), torch.randn(4, 8)
    expected = copy.deepcopy(model)
    step = highwater.torch.step(model, nn.MSELoss(), optim.SGD(model.parameters(), 0.1), memory="1GiB", gradient_accumulation_steps=accumulation)
    theirs = optim.SGD(expected.parameters(), 0.1)
    for _ in range(accumulation):
        loss = nn.MSELoss()(expected(x), y)
        (loss / accumulation).backward()
        assert torch.equal(step(x, y), loss.detach())
    theirs.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_what_hooks_keep_from_the_step_before_is_counted() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, kept = torch.randn(64, 32), dict[int, Tensor]()
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.Tanh())))
    for i in (1, 3, 5):
        model[i].register_forward_hook(lambda module, args, result, i=i: kept.__setitem__(i, result.detach() * 1))
    step = highwater.torch.step(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), memory="1GiB")
    step(x, x)
    given = x.nbytes + sum(parameter.nbytes for parameter in model.parameters())
    before = sum(value.nbytes for value in kept.values())
    _, most, _ = highwater.torch.allocated(lambda: step(x, x))
    assert before == 3 * x.nbytes
    assert given + before + most <= step.reports[-1].live_bytes


@pytest.mark.parametrize("when", [0, 1, 2])
def test_weights_that_are_tied_between_steps(when: int) -> None:
    """By `data`, as which a parameter stays what it is."""

    def run(ours: bool) -> list[Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        optimizer = optim.AdamW(model.parameters(), lr=0.1)
        step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
        for i in range(4):
            if i == when:
                model[0].weight.data = model[2].weight.data
            x, y = torch.randn(4, 8), torch.randn(4, 8)
            if ours:
                step(x, y)
                continue
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return list(model.parameters())

    assert all(map(torch.equal, run(True), run(False)))
