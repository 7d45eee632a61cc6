"""Updates of large parameters some rows at a time: the plain optimizer's bits, and less memory."""

from __future__ import annotations

import copy
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._device.allocated import allocated
from highwater.torch._optim import rows as _rows
from highwater.torch._optim.optimizers import Optimizers
from highwater.torch._optim.updates import Updates
from torch import Tensor, nn, optim


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(_rows, "NUMBERS", 1000)


KINDS: list[tuple[Any, dict[str, Any]]] = [
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    (optim.Adam, {"amsgrad": True}),
    (optim.Adam, {"weight_decay": 0.1, "maximize": True}),
    (optim.AdamW, {}),
    (optim.AdamW, {"foreach": True}),
    (optim.AdamW, {"fused": True}),
    (optim.AdamW, {"lr": torch.tensor(1e-3)}),
    (optim.RMSprop, {"centered": True, "momentum": 0.5}),
    (optim.Adagrad, {"lr_decay": 0.1}),
    (optim.Adadelta, {}),
    (optim.Adamax, {}),
    (optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    (optim.RAdam, {}),
    (optim.Rprop, {}),
    (optim.ASGD, {}),
    (optim.Adafactor, {}),
    (optim.Muon, {}),
]


def state_of(optimizer: optim.Optimizer) -> dict[str, Any]:
    states: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return states.get(0, {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind, settings", KINDS)
def test_bits_and_states_are_those_of_all_rows_at_once(kind: Any, settings: dict[str, Any], dtype: torch.dtype) -> None:
    for shape in [(300, 7), (7, 300), (9000, 4)]:
        torch.manual_seed(0)
        plain, ours = (nn.Parameter(t.to(dtype)) for t in torch.randn(shape).expand(2, *shape).clone())
        theirs, optimizer = kind([plain], **settings), kind([ours], **settings)
        updates = Updates(Optimizers(optimizer))
        for step in range(4):
            if step == 2:  # as a run that goes on does
                for one in (theirs, optimizer):
                    one.load_state_dict(copy.deepcopy(one.state_dict()))
            gradient = torch.randn(shape).to(dtype)
            plain.grad, ours.grad = gradient, gradient.clone()
            theirs.step()
            updates.step([ours])
            assert torch.equal(plain, ours)
        expected, found = state_of(theirs), state_of(optimizer)
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            if isinstance(value, Tensor):
                assert torch.equal(value, found[key]) and value.stride() == found[key].stride() and value.dtype == found[key].dtype
            else:
                assert value == found[key]


def test_kernels_whose_bits_depend_on_the_place_are_not_asked() -> None:
    parameter = nn.Parameter(torch.zeros(300, 70))
    rows = [Updates(Optimizers(kind([parameter], **settings)))._rows(parameter) for kind, settings in KINDS]
    assert [n for n, (kind, settings) in zip(rows, KINDS) if kind in (optim.Adafactor, optim.Muon) or settings.get("fused")] == [None] * 4
    assert rows.count(14) == len(KINDS) - 4

    class Odd(optim.SGD):
        """Its bits depend on how many rows there are."""

        def step(self, closure: Any = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                parameter.data.add_(parameter.grad, alpha=1 / len(parameter))

    assert not _rows.same_bits(lambda like: Odd([nn.Parameter(like)]), torch.float32, torch.device("cpu"))


def test_an_update_that_fails_leaves_no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = nn.Parameter(torch.zeros(8, 2))
    parameter.grad = torch.ones(8, 2)
    optimizer = optim.SGD([parameter], 0.1, momentum=0.9)
    optimizer.step()

    def fails() -> None:
        raise RuntimeError("an update")

    monkeypatch.setattr(optimizer, "step", fails)
    with pytest.raises(RuntimeError, match="an update"):
        _rows.step_by_rows(optimizer, 3)
    assert list(optimizer.state) == [parameter] and optimizer.param_groups[0]["params"] == [parameter]


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(4096, 64), nn.Linear(64, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.words(ids).tanh())


def test_a_step_needs_less_by_what_an_update_took(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    ids, target = torch.randint(4096, (32,)), torch.randn(32, 8)
    models = [Words()]
    models.append(copy.deepcopy(models[0]))
    found = []
    for model, numbers in zip(models, (1 << 22, 1 << 14)):
        monkeypatch.setattr(_rows, "NUMBERS", numbers)
        optimizer = optim.AdamW(model.parameters(), lr=0.1)
        step = highwater.torch.step(model, F.mse_loss, optimizer, memory="1GiB")
        step(ids, target)
        _, most, _ = allocated(lambda step=step: step(ids, target))
        step = highwater.torch.step(model, F.mse_loss, optimizer, memory=step.reports[0].floor_bytes)
        torch._dynamo.reset()
        losses = [step(ids, target) for _ in range(2)]
        (report,) = step.reports
        assert report.given_bytes + most <= 1.01 * report.live_bytes
        found.append((report.floor_bytes, losses))
    words = models[0].words.weight.nbytes
    # AdamW takes twice what it updates, and in its first step makes the state of that beside it.
    assert found[0][0] - found[1][0] == pytest.approx(2 * words - 4 * (1 << 14) * 4, abs=64)
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1]))
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters()))
