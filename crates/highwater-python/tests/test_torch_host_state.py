"""An optimizer's state that waits on the host: ordinary steps, in less memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._device.allocated import allocated
from highwater.torch._device.transfers import Transfers
from highwater.torch._optim.optimizers import Optimizers
from highwater.torch._optim.states import States
from highwater.torch._optim.updates import Updates
from late_lanes import LateLanes
from models import Gpt
from test_torch_step import MAKES, Make
from torch import Tensor, nn, optim

MAKES = MAKES | {"plain": lambda model: optim.SGD(model.parameters(), 0.1), "rmsprop": lambda model: optim.RMSprop(model.parameters())}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def start() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    return Gpt(layers=2, width=64), [torch.randint(0, 97, (4, 32)) for _ in range(3)]


def stepper(
    model: nn.Module, make: Make, memory: int, host_memory: int | str = "1GiB", late: bool = False, **more: Any
) -> highwater.torch.Step:
    step = highwater.torch.step(model, None, make(model), memory=memory, host_memory=host_memory, **more)
    if late:
        lanes = LateLanes()
        step.transfers._make = lambda device: lanes
    return step


def floor_of(make: Make, host_memory: int | str, **more: Any) -> int:
    model, data = start()
    step = stepper(model, make, 1 << 30, host_memory, **more)
    step(data[0])
    torch._dynamo.reset()
    return step.reports[0].floor_bytes


def expected(make: Make, norm: float | None = None) -> tuple[list[Tensor], nn.Module, optim.Optimizer]:
    model, data = start()
    optimizer, losses = make(model), []
    torch.manual_seed(1)
    for ids in data:
        loss = model(ids)
        loss.backward()
        losses.append(loss.detach())
        if norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        optimizer.zero_grad()
    return losses, model, optimizer


def same_states(a: Any, b: Any) -> bool:
    return all(
        torch.equal(value, b[i][key]) if isinstance(value, Tensor) else value == b[i][key] for i in a for key, value in a[i].items()
    )


@pytest.mark.parametrize("kind", MAKES)
@pytest.mark.parametrize("late", [False, True], ids=["threads", "late"])
def test_steps_are_those_of_eager_pytorch(kind: str, late: bool) -> None:
    make = MAKES[kind]
    losses, twin, plain = expected(make)
    memory = floor_of(make, "1GiB")
    model, data = start()
    step = stepper(model, make, memory, late=late)
    torch.manual_seed(1)
    assert all(torch.equal(a, step(ids)) for a, ids in zip(losses, data))
    assert all(map(torch.equal, twin.state_dict().values(), model.state_dict().values()))
    ours, theirs = step.optimizer.state_dict(), plain.state_dict()
    assert ours["state"].keys() == theirs["state"].keys()
    assert same_states(ours["state"], theirs["state"])
    (report,) = step.reports
    assert report.live_bytes <= memory
    assert report.moved_bytes > 0


@pytest.mark.parametrize("norm", [0.05, 1e6])
def test_clipping_by_the_norm_leaves_updates_one_by_one(norm: float) -> None:
    make = MAKES["adamw"]
    losses, twin, _ = expected(make, norm)
    memory = floor_of(make, "1GiB", max_grad_norm=norm)
    assert memory < floor_of(make, 0, max_grad_norm=norm)
    model, data = start()
    step = stepper(model, make, memory, late=True, max_grad_norm=norm)
    torch.manual_seed(1)
    assert all(torch.equal(a, step(ids)) for a, ids in zip(losses, data))
    assert all(map(torch.equal, twin.state_dict().values(), model.state_dict().values()))
    assert step.reports[0].live_bytes <= memory


def test_the_floor_is_lower_by_the_state() -> None:
    make = MAKES["adamw"]
    model, _ = start()
    weights = sum(p.nbytes for p in model.parameters())
    assert floor_of(make, "1GiB") < floor_of(make, 0) - 1.5 * weights


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_the_peak_is_the_one_that_was_told(share: float) -> None:
    make = MAKES["adamw"]
    floor = floor_of(make, "1GiB")
    memory = int(floor + share * (floor_of(make, 0) - floor))
    model, data = start()
    step = stepper(model, make, memory)
    step(data[0])
    (report,) = step.reports
    held = sum(leaf.nbytes for state in step.optimizer.state.values() for leaf in state.values())
    on_host = sum(leaf.nbytes for home in step.states._homes.values() for leaf in home.values())
    assert on_host > 0
    _, most, _ = allocated(lambda: step(data[1]))
    peak = most + sum(p.nbytes for p in model.parameters()) + held - on_host + data[1].nbytes
    assert peak <= report.live_bytes
    assert peak >= 0.98 * report.live_bytes


def test_what_was_kept_of_plans_with_states_on_the_host_does_not_stand_in_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing fits, plans without the host are looked for too, of which the kept ones know nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for memory in (1 << 32, 1000):
        torch._dynamo.reset()
        model, data = start()
        step = stepper(model, MAKES["adamw"], memory, max_grad_norm=0.1)
        if memory > 1000:
            step(data[0])
            continue
        with pytest.raises(highwater.torch.OverBudget):
            step(data[0])


def test_states_that_are_loaded_go_where_they_are_wanted() -> None:
    make = MAKES["adamw"]
    losses, twin, plain = expected(make)
    model, data = start()
    step = stepper(model, make, floor_of(make, "1GiB"))
    torch.manual_seed(1)
    step(data[0])
    saved = copy.deepcopy(step.optimizer.state_dict())
    step.optimizer.load_state_dict(saved)
    assert torch.equal(step(data[1]), losses[1])
    # Another plan has them in memory.
    step.memory = 1 << 30
    longer = torch.cat([data[2], data[2]])
    step(longer)
    assert not step.states._homes
    assert step.reports[-1].moved_bytes == 0


def test_updates_of_all_at_once_have_states_where_parameters_are() -> None:
    make = MAKES["adamw"]
    model, data = start()
    step = stepper(model, make, floor_of(make, "1GiB"))
    step(data[0])
    assert step.states._homes
    step.optimizer.register_step_post_hook(lambda *_: None)
    step.memory = 1 << 30
    step(torch.cat([data[2], data[2]]))
    assert not step.states._homes


def test_more_state_than_the_host_has_room_for_stays() -> None:
    make = MAKES["adamw"]
    model, data = start()
    weights = sum(p.nbytes for p in model.parameters())
    alone = floor_of(make, 0)
    assert floor_of(make, "1GiB") < floor_of(make, 2 * weights) < alone
    for room in (weights // 8, weights, 2 * weights):
        torch._dynamo.reset()
        step = stepper(model, make, alone, room)
        for ids in data:
            step(ids)
        assert step.reports[0].live_bytes <= alone
        assert step.transfers.rooms.taken_bytes <= room


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_the_host_has_as_many_bytes_as_were_told(share: float) -> None:
    def make(model: nn.Module) -> optim.Optimizer:
        return optim.AdamW(model.parameters(), 1e-2)

    def odd(memory: int, host_memory: int) -> highwater.torch.Step:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(37, 37) for _ in range(6)])
        step = highwater.torch.step(model, lambda y, t: (y - t).square().mean(), make(model), memory=memory, host_memory=host_memory)
        for _ in range(2):
            step(torch.ones(8, 37), torch.zeros(8, 37))
        return step

    host = odd(odd(1 << 30, 1 << 30).reports[0].floor_bytes, 1 << 30).reports[0].host_bytes
    host = int(share * host)
    step = odd(odd(1 << 30, host).reports[0].floor_bytes, host)
    assert 0 < step.transfers.rooms.taken_bytes <= step.reports[0].host_bytes <= host


@pytest.mark.parametrize("updates", [0, 5, 11])
def test_a_step_that_is_cut_short_leaves_whole_states(updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make = MAKES["adamw"]
    model, data = start()
    step = stepper(model, make, floor_of(make, "1GiB"), late=True)
    step(data[0])
    before, left = copy.deepcopy(step.optimizer.state_dict()["state"]), iter(range(updates))
    only = Updates._only

    def cut(self: Updates, parameter: Tensor) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return only(self, parameter)

    with monkeypatch.context() as patch:
        patch.setattr(Updates, "_only", cut)
        with pytest.raises(KeyboardInterrupt):
            step(data[1])
    after = step.optimizer.state_dict()["state"]
    same = [i for i in before if before[i]["step"] == after[i]["step"]]
    assert len(same) == len(before) - updates
    assert same_states({i: before[i] for i in same}, after)
    if updates:
        with pytest.raises(RuntimeError, match=rf"KeyboardInterrupt stopped the last step after it had updated {updates} of 28 parameters. .* call step.reset\(\)"):
            step(data[2])
        step.reset()
    assert step(data[2]).isfinite()
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_a_state_that_found_no_memory_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = nn.Parameter(torch.zeros(8))
    parameter.grad = torch.ones(8)
    optimizer = optim.AdamW([parameter])
    optimizer.step()
    states = States(Optimizers(optimizer), Transfers(1 << 10))
    states.evict(parameter)[1].result()
    before, empty_like = copy.deepcopy(optimizer.state_dict()["state"]), torch.empty_like
    results = iter([torch.full((8,), 99.0)])

    def little(*args: Any, **kwargs: Any) -> Tensor:
        try:
            return next(results)
        except StopIteration:
            raise torch.OutOfMemoryError from None

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty_like", little)
        with pytest.raises(torch.OutOfMemoryError):
            states.fetch(parameter)
    assert torch.empty_like is empty_like
    states.arrange([parameter], [parameter])
    assert same_states(before, optimizer.state_dict()["state"])
