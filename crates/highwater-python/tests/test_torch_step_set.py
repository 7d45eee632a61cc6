"""What a step updates, who sees it, and what becomes of it when it is stopped."""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._device.allocated import allocated
from highwater.torch._optim.optimizers import Optimizers
from highwater.torch._optim.updates import Updates
from torch import Tensor, nn, optim
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

X, Y = torch.randn(32, 16, generator=torch.Generator().manual_seed(1)), torch.randn(32, 16, generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def small() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))


def wide() -> nn.Module:
    """A model whose optimizer's state is most of its memory."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 2048), nn.Linear(2048, 16))


def storages(values: Any) -> int:
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
    return sum({leaf.untyped_storage()._cdata: leaf.untyped_storage().nbytes() for leaf in leaves}.values())


def measured(step: highwater.torch.Step, optimizer: Any, *tensors: Any, times: int = 8) -> int:
    """The most bytes in some steps, with what is there before."""
    most = []
    for _ in range(times):
        there = storages([*step.model.parameters(), X, Y, *tensors, [dict(state) for state in optimizer.state.values()]])
        most.append(there + allocated(lambda: step(X, Y))[1])
    return max(most)


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(one, other) for one, other in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


class Scaled(nn.Module):
    """A loss with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, out: Tensor, target: Tensor) -> Tensor:
        return ((out - target) * self.weight).square().mean() * 100


# The set is the optimizer's.


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("make", [lambda p: optim.AdamW(p, 0.1), lambda p: optim.SGD(p, 0.1, momentum=0.9)])
def test_modules_that_inputs_come_from_are_trained(make: Callable[..., optim.Optimizer], clip: float | None) -> None:
    models = [(small(), small()) for _ in range(2)]
    (encoder, model), (expected_encoder, expected) = models
    optimizer, theirs = (make([*model.parameters(), *encoder.parameters()]) for encoder, model in models)
    step = highwater.torch.step(
        model, nn.MSELoss(), optimizer, memory="1GiB", max_grad_norm=clip, clip_parameters=[*model.parameters(), *encoder.parameters()]
    )
    for _ in range(3):
        step(encoder(X), Y)
        nn.MSELoss()(expected(expected_encoder(X)), Y).backward()
        if clip:
            nn.utils.clip_grad_norm_([*expected.parameters(), *expected_encoder.parameters()], clip)
        theirs.step()
        theirs.zero_grad()
        assert equal(model, expected) and equal(encoder, expected_encoder)
        assert all(parameter.grad is None for parameter in encoder.parameters())


@pytest.mark.parametrize("micro", [1, 2])
def test_the_norm_is_over_what_is_clipped(micro: int) -> None:
    model, loss = small(), Scaled()
    expected, their_loss = copy.deepcopy((model, loss))
    optimizer, theirs = (optim.AdamW([*m.parameters(), *f.parameters()], 0.1) for m, f in ((model, loss), (expected, their_loss)))
    step = highwater.torch.step(model, loss, optimizer, memory="1GiB", max_grad_norm=0.01, gradient_accumulation_steps=micro)
    for _ in range(2):
        for _ in range(micro):
            step(X, Y)
            (their_loss(expected(X), Y) / micro).backward()
        nn.utils.clip_grad_norm_(expected.parameters(), 0.01)
        theirs.step()
        theirs.zero_grad()
    assert equal(model, expected) and equal(loss, their_loss)


def test_what_the_optimizer_lacks() -> None:
    model, loss = small(), Scaled()
    optimizer = optim.SGD(model.parameters(), 0.1)
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="depends on loss_fn.weight, which is not in the optimizer: add it"):
        highwater.torch.step(model, loss, optimizer, memory="1GiB")(X, Y)
    lost = nn.Parameter(torch.ones(16))
    with pytest.raises(highwater.torch.CannotPlan, match=r"depends on a parameter of shape \(16,\), which is not in the optimizer: add it"):
        highwater.torch.step(model, lambda out, target: (out * lost - target).square().mean(), optimizer, memory="1GiB")(X, Y)
    assert equal(model, before)
    # An input's gradient is its owner's, as in any loop.
    x = X.clone().requires_grad_()
    highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")(x, Y)
    theirs = X.clone().requires_grad_()
    nn.MSELoss()(before(theirs), Y).backward()
    assert x.grad is not None and theirs.grad is not None and torch.equal(x.grad, theirs.grad)


def test_two_optimizers() -> None:
    model = small()
    expected = copy.deepcopy(model)

    def make(model: nn.Module) -> list[optim.Optimizer]:
        parameters = list(model.parameters())
        return [optim.Muon(parameters[::2]), optim.AdamW(parameters[1::2])]

    step, theirs = highwater.torch.step(model, nn.MSELoss(), make(model), memory="1GiB"), make(expected)
    for _ in range(2):
        step(X, Y)
        nn.MSELoss()(expected(X), Y).backward()
        for optimizer in theirs:
            optimizer.step()
            optimizer.zero_grad()
    assert equal(model, expected)
    with pytest.raises(ValueError, match="each parameter needs one optimizer"):
        highwater.torch.step(model, nn.MSELoss(), [optim.SGD(model.parameters()), optim.AdamW(model.parameters())], memory="1GiB")


# Who sees an update.


def hooks_of(kind: str, optimizer: optim.Optimizer, call: Callable[..., None]) -> Any:
    return {
        "before": optimizer.register_step_pre_hook,
        "after": optimizer.register_step_post_hook,
        "before all": register_optimizer_step_pre_hook,
        "after all": register_optimizer_step_post_hook,
    }[kind](call)


@pytest.mark.parametrize("kind", ["before", "after", "before all", "after all"])
def test_hooks_are_called_once_a_step(kind: str) -> None:
    model, calls = small(), []
    optimizer = optim.AdamW(model.parameters())
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    step(X, Y)
    handle = hooks_of(kind, optimizer, lambda *_: calls.append(sum(p.grad is not None for p in model.parameters())))
    step(X, Y)
    step(X, Y)
    handle.remove()
    step(X, Y)
    assert calls == [4, 4]


def normed(model: nn.Module, optimizer: optim.Optimizer) -> optim.Optimizer:
    """An optimizer whose `step` is replaced by one that looks at all gradients."""
    step = optimizer.step

    def first(*_: Any) -> None:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.div_(norm)
        step()

    optimizer.step = first  # type: ignore[method-assign,assignment]
    return optimizer


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_step_that_was_replaced_is_called(scheduled: bool) -> None:
    model = small()
    expected = copy.deepcopy(model)
    optimizer, theirs = (optim.SGD(m.parameters(), 0.1) for m in (model, expected))
    if scheduled:
        for one in (optimizer, theirs):
            optim.lr_scheduler.StepLR(one, 1)
        assert Optimizers(optimizer).one_by_one
    normed(model, optimizer)
    normed(expected, theirs)
    assert not Optimizers(optimizer).one_by_one
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    for _ in range(2):
        step(X, Y)
        nn.MSELoss()(expected(X), Y).backward()
        theirs.step()
        theirs.zero_grad()
    assert equal(model, expected)


def test_a_class_whose_step_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = optim.RMSprop(small().parameters())
    assert Optimizers(optimizer).one_by_one
    with monkeypatch.context() as patch:
        patch.setattr(optim.RMSprop, "step", lambda self, closure=None: None)
        assert not Optimizers(optimizer).one_by_one
    assert Optimizers(optimizer).one_by_one


# What an update needs.


GROUPS: dict[str, Callable[[list[Tensor], list[Tensor]], optim.Optimizer]] = {
    "no decay first": lambda a, b: optim.Adam([{"params": a, "weight_decay": 0.0}, {"params": b, "weight_decay": 0.05}]),
    "momentum in the second": lambda a, b: optim.SGD([{"params": a}, {"params": b, "momentum": 0.9}], lr=0.01),
    "amsgrad in the second": lambda a, b: optim.Adam([{"params": a}, {"params": b, "amsgrad": True}]),
    "centered in the second": lambda a, b: optim.RMSprop([{"params": a}, {"params": b, "centered": True, "momentum": 0.5}]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_each_group_has_its_own_settings(name: str) -> None:
    model = wide()
    vectors, matrices = ([p for p in model.parameters() if p.dim() == dims] for dims in (1, 2))
    optimizer = GROUPS[name](vectors, matrices)
    memory = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    memory(X, Y)
    floor = memory.reports[0].floor_bytes
    torch._dynamo.reset()
    model = wide()
    vectors, matrices = ([p for p in model.parameters() if p.dim() == dims] for dims in (1, 2))
    optimizer = GROUPS[name](vectors, matrices)
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory=floor)
    step(X, Y)
    assert measured(step, optimizer, times=2) <= floor


class Own(optim.Optimizer):
    """With a required argument, and state that is first made in its third step."""

    def __init__(self, parameters: Any, rate: float, late: int) -> None:
        super().__init__(parameters, {"lr": rate})
        self.late, self.steps = late, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if self.steps >= self.late:
                    state.setdefault("sum", torch.zeros_like(parameter)).add_(parameter.grad)
                parameter.sub_(group["lr"] * state.get("sum", parameter.grad).sign())


def test_state_that_appears_late_is_foreseen() -> None:
    model = wide()
    optimizer = Own(model.parameters(), 0.01, late=9)
    plenty = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    plenty(X, Y)
    floor = plenty.reports[0].floor_bytes
    torch._dynamo.reset()
    model = wide()
    optimizer = Own(model.parameters(), 0.01, late=9)
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory=floor)
    step(X, Y)
    assert measured(step, optimizer, times=5) <= floor
    before = copy.deepcopy(model)
    # The state of the ninth step has no room, and is seen some steps before.
    with pytest.raises(highwater.torch.OverBudget):
        step(X, Y)
    assert optimizer.steps == 6 and equal(model, before)
    roomy = highwater.torch.step(model, nn.MSELoss(), optimizer, memory=floor + storages(list(model.parameters())))
    roomy(X, Y)
    assert measured(roomy, optimizer, times=6) <= roomy.memory and optimizer.steps == 13
    assert sum("sum" in state for state in optimizer.state.values()) == 6


def test_rehearsals_leave_no_trace() -> None:
    model = small()
    optimizer = Own(model.parameters(), 0.01, late=1)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    random = torch.get_rng_state()
    assert Updates(Optimizers(optimizer)).whole.state == storages(list(model.parameters()))
    assert not calls and not optimizer.state and optimizer.steps == 0
    assert all(map(torch.equal, parameters, model.parameters())) and torch.equal(random, torch.get_rng_state())


def test_settings_that_change_are_planned_anew() -> None:
    model = wide()
    expected = copy.deepcopy(model)
    optimizer, theirs = (optim.SGD(m.parameters(), 0.01) for m in (model, expected))
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    for momentum in (0.0, 0.9):
        optimizer.param_groups[0]["momentum"] = theirs.param_groups[0]["momentum"] = momentum
        step(X, Y)
        nn.MSELoss()(expected(X), Y).backward()
        theirs.step()
        theirs.zero_grad()
    assert equal(model, expected)
    first, second = step.reports
    assert second.given_bytes - first.given_bytes == storages(list(model.parameters()))


# Accumulation.


class PerItem(nn.Module):
    """Divides its loss by the number of all items, if that is said, as models of Hugging Face's do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor, y: Tensor, num_items_in_batch: Tensor | None = None) -> Tensor:
        loss = (self.layer(x) - y).square()
        return loss.mean() if num_items_in_batch is None else loss.sum() / num_items_in_batch


@pytest.mark.parametrize("how", ["num_items_in_batch", "sum", "mean"])
def test_what_is_divided(how: str) -> None:
    model = PerItem()
    expected = copy.deepcopy(model)
    optimizer, theirs = (optim.SGD(m.parameters(), 0.1) for m in (model, expected))
    words: dict[str, Any] = {"accumulation": "sum"} if how == "sum" else {}
    step = highwater.torch.step(model, optimizer=optimizer, memory="1GiB", gradient_accumulation_steps=2, **words)
    keywords = {"num_items_in_batch": torch.tensor(32 * 16)} if how == "num_items_in_batch" else {}
    for rows in (X[:24], X[24:]):
        target = torch.zeros_like(rows)
        step(rows, target, **keywords)
        loss = expected(rows, target, **keywords)
        (loss / 2 if how == "mean" else loss).backward()
    theirs.step()
    assert equal(model, expected)


def test_the_end_of_an_epoch_within_an_accumulation() -> None:
    model = small()
    expected = copy.deepcopy(model)
    optimizer, theirs = (optim.AdamW(m.parameters(), 0.1) for m in (model, expected))
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB", gradient_accumulation_steps=3, max_grad_norm=0.1)
    for batches in (3, 2, 3):
        for _ in range(batches):
            step(X, Y)
            (nn.MSELoss()(expected(X), Y) / 3).backward()
        step.flush()  # does nothing where all is done
        nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
        theirs.step()
        theirs.zero_grad()
        assert equal(model, expected)


# Steps that are stopped.


def test_ctrl_c_waits_for_the_end_of_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    expected = copy.deepcopy(model)
    optimizer, theirs = (optim.AdamW(m.parameters(), 0.1) for m in (model, expected))
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    only, times = Updates._only, iter([1])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # test runners may ignore it

    def interrupted(self: Updates, parameter: Tensor) -> Any:
        if next(times, None):
            signal.raise_signal(signal.SIGINT)
        return only(self, parameter)

    monkeypatch.setattr(Updates, "_only", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(X, Y)
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    step(X, Y)
    for _ in range(2):
        nn.MSELoss()(expected(X), Y).backward()
        theirs.step()
        theirs.zero_grad()
    assert equal(model, expected)


class Fails(optim.SGD):
    """Fails after its first parameter, or before it."""

    after = 1

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for i, parameter in enumerate(self.param_groups[0]["params"]):
            if i == self.after and isinstance(parameter.grad, Tensor) and not hasattr(parameter.grad, "fake_mode"):
                raise MemoryError("no room")
            parameter.data.sub_(parameter.grad)


def test_an_update_that_stops_half_way_is_said() -> None:
    model = small()
    before = copy.deepcopy(model.state_dict())
    optimizer = Fails(model.parameters(), 0.1)
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    with pytest.raises(MemoryError):
        step(X, Y)
    for call in (lambda: step(X, Y), step.flush):
        with pytest.raises(RuntimeError, match=r"MemoryError stopped the last step while the optimizer updated parameters. .*from a checkpoint, then call step.reset\(\)"):
            call()
    model.load_state_dict(before)
    step.reset()
    optimizer.after = -1
    assert step(X, Y).isfinite()


@pytest.mark.parametrize("micro", [1, 2])
def test_a_backward_that_stops_changes_nothing(micro: int) -> None:
    class Stops(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if armed:
                raise RuntimeError("stopped")
            return gradients[0]

    armed: list[int] = []
    model, encoder = small(), small()
    before = copy.deepcopy(model)
    optimizer = optim.SGD([*model.parameters(), *encoder.parameters()], 0.1)
    step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB", gradient_accumulation_steps=micro)
    for i in range(micro):
        armed += [1] * (i == micro - 1)
        x = Stops.apply(encoder(X))
        if armed:
            with pytest.raises(RuntimeError, match="stopped"):
                step(x, Y)
        else:
            step(x, Y)
    armed.clear()
    assert equal(model, before)
    if micro > 1:
        with pytest.raises(RuntimeError, match=r"some gradients include it .* No parameter was updated. Call step.reset\(\)"):
            step(X, Y)
        step.reset()
    assert all(parameter.grad is None for parameter in optimizer.param_groups[0]["params"])
    for _ in range(micro):
        step(X, Y)
    assert not equal(model, before)


# What is no optimizer, and what models return.


def test_optimizers_that_a_step_cannot_call() -> None:
    model = small()

    class Sam(optim.SGD):
        def step(self, closure: Any) -> None:  # type: ignore[override]
            raise AssertionError

    class Sharp(optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            if closure is None:
                raise ValueError("it needs a closure.")

    for optimizer, words in [
        (optim.SGD, "optimizer is the class SGD"),
        ([], "pass an optimizer, or a list"),
        (optim.lr_scheduler.StepLR(optim.SGD(model.parameters()), 1), "is a learning rate scheduler \\(StepLR\\): pass its optimizer"),
        (optim.LBFGS(model.parameters()), "LBFGS.step needs a closure"),
        (Sam(model.parameters()), "Sam.step needs a closure"),
    ]:
        with pytest.raises(TypeError, match=words):
            highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")
    before = copy.deepcopy(model)
    for optimizer, words in [(Sharp(model.parameters()), r"it needs a closure\. The trial"), (optim.SparseAdam(model.parameters()), "dense gradients")]:
        with pytest.raises(highwater.torch.CannotPlan, match=f"failed in a trial step, and nothing was changed: .*{words}"):
            highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")(X, Y)
    assert equal(model, before)


def test_a_forecast_takes_the_optimizer_that_is_there() -> None:
    model = wide()
    vectors, matrices = ([p for p in model.parameters() if p.dim() == dims] for dims in (1, 2))
    size = storages(matrices)
    optimizer = optim.SGD([{"params": vectors}, {"params": matrices, "momentum": 0.9}], 0.1)
    assert highwater.torch.plan(model, (X, Y), loss_fn=nn.MSELoss(), optimizer=optimizer).state_bytes == size
    own = Own(model.parameters(), 0.1, late=1)
    assert highwater.torch.plan(model, (X, Y), loss_fn=nn.MSELoss(), optimizer=own).state_bytes == storages(list(model.parameters()))
    assert own.steps == 0 and not own.state and not optimizer.state
