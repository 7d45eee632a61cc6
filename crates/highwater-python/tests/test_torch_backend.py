"""The backend beside eager PyTorch: the same bits under every budget."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._device.allocated import allocated
from models import CASES, Case, Gpt
from releases import FOUND_BY_NAME
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def train(model: nn.Module, call: nn.Module, case: Case, steps: int = 3) -> dict[str, Tensor]:
    """Losses, gradients, parameters and buffers of some steps, by name."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen: dict[str, Tensor] = {}
    for step in range(steps):
        torch.manual_seed(step)
        inputs = case.inputs()
        optimizer.zero_grad()
        out = call(*inputs)
        loss = case.loss(*out) if isinstance(out, tuple) else case.loss(out)
        loss.backward()
        seen[f"{step}.loss"] = loss.detach().clone()
        seen |= {f"{step}.{name}.grad": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        seen |= {f"{step}.{name}": value.clone() for name, value in model.state_dict().items()}
        seen[f"{step}.random"] = torch.rand(1)
    return seen


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> list[str]:
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


def models(case: Case, count: int) -> list[nn.Module]:
    torch.manual_seed(7)
    model = case.model()
    return [copy.deepcopy(model) for _ in range(count)]


@pytest.mark.parametrize("name", CASES)
def test_every_budget_gives_eagers_bits(name: str) -> None:
    case = CASES[name]
    eager, plenty = models(case, 2)
    expected = train(eager, eager, case)
    backend = highwater.torch.backend(memory="8GiB")
    assert not same(train(plenty, torch.compile(plenty, backend=backend, dynamic=False), case), expected)
    (report,) = backend.reports
    floor, most = report.floor_bytes, report.live_bytes
    assert floor < most
    for share in (0.0, 0.1, 0.3, 0.6, 0.9):
        torch._dynamo.reset()
        budget = int(floor + share * (most - floor))
        (model,) = models(case, 1)
        backend = highwater.torch.backend(memory=budget)
        different = same(train(model, torch.compile(model, backend=backend, dynamic=False), case), expected)
        assert not different, (share, different)
        assert backend.reports[0].live_bytes <= budget


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_the_one_that_was_told(name: str, share: float) -> None:
    case = CASES[name]

    def planned(memory: int | str) -> tuple[Callable[[], Any], highwater.torch.Report]:
        torch._dynamo.reset()
        (model,) = models(case, 1)
        inputs = case.inputs()
        backend = highwater.torch.backend(memory)

        def loss(*inputs: Tensor) -> Tensor:
            out = model(*inputs)
            return case.loss(*out) if isinstance(out, tuple) else case.loss(out)

        call = torch.compile(loss, backend=backend, dynamic=False, fullgraph=True)
        call(*inputs).backward()
        model.zero_grad()
        return lambda: call(*inputs).backward(), backend.reports[0]

    _, report = planned("1GiB")
    budget = int(report.floor_bytes + share * (report.live_bytes - report.floor_bytes))
    step, report = planned(budget)
    _, peak, _ = allocated(step)
    peak += report.given_bytes
    assert peak <= report.live_bytes <= 1.001 * peak
    assert report.live_bytes <= budget


class Constants(nn.Module):
    """Has a list of numbers in its code, and an operation that computes otherwise in a mode of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = torch.tensor(list(range(64)), dtype=torch.float32)
        h = (self.layer(x) * numbers).tanh() * numbers
        angles = torch.linalg.pinv(torch.view_as_complex(h.detach().view(8, 32, 2)))
        return h.square().mean() + torch.view_as_real(angles).sum()


def test_the_first_step_is_as_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, copied = Constants(), torch.randn(8, 8), list[int]()
    call = torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=False)
    loss, known = call(x), Tensor.__deepcopy__
    assert torch.equal(loss, model(x))
    # PyTorch copies a backward when it first runs.
    monkeypatch.setattr(Tensor, "__deepcopy__", lambda self, memo: (copied.append(self.numel()), known(self, memo))[1])
    loss.backward()
    assert 64 not in copied


def test_what_does_not_fit_is_refused_before_anything_runs() -> None:
    case = CASES["mlp"]
    (model,) = models(case, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    call = torch.compile(model, backend=highwater.torch.backend(memory="20KiB"), dynamic=False)
    with pytest.raises(highwater.OverBudget, match="does not fit into 20.0 KiB: it needs") as caught:
        call(*case.inputs())
    assert caught.value.budget == 20 << 10
    assert not same(dict(model.state_dict()), before)


def test_the_example_of_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(example, names)
    (report,) = names["step"].reports
    assert report.live_bytes <= 13 << 20
    assert report.recomputed_kernels > 0


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "tutorials" / "pytorch.md").read_text()
    model, *programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    # With fewer layers it is planned sooner, and a quarter of the memory is not enough.
    (tmp_path / "model.py").write_text(model.replace("layers=6", "layers=2"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    printed = []
    for program in programs:
        exec(program.replace("[0.5, 0.25]", "[0.5]"), {})
        printed.append(capsys.readouterr().out)
    half, plan, step = printed
    for losses in [re.findall(r"loss ([\d.]+)", half), re.findall(r"loss ([\d.]+)", step)]:
        assert len(losses) > 1
        assert len(set(losses)) == 1
    assert "MiB  fits" in plan
    del sys.modules["model"]


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_planned_while_it_is_measured_is_an_error(whole: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where no kernels are known
    case = CASES["mlp"]
    (model,), (x,) = models(case, 1), case.inputs()
    if whole:
        step = highwater.torch.step(model, lambda out, _: case.loss(out), torch.optim.SGD(model.parameters(), 0.1), memory="1GiB")
        run: Callable[[], Any] = lambda: step(x, x)  # noqa: E731
    else:
        call = torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=False)
        run = lambda: case.loss(call(x)).backward()  # noqa: E731
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="Run the call once before you measure it"):
        highwater.torch.allocated(run)
    assert not same(dict(model.state_dict()), before)
    assert all(p.grad is None for p in model.parameters())
    run()
    model.zero_grad()
    _, most, _ = highwater.torch.allocated(run)
    assert most > 32 * 64 * 4


def test_public_names_are_short() -> None:
    for name in highwater.torch.__all__:
        value = getattr(highwater.torch, name)
        assert not isinstance(value, type) or f"{value.__module__}.{value.__qualname__}" == f"highwater.torch.{name}"


@FOUND_BY_NAME
def test_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["mlp"]
    eager, (ours, again) = models(case, 1)[0], models(case, 2)
    expected = train(eager, eager, case)
    call = torch.compile(ours, backend="highwater", dynamic=False, options={"memory": "1GiB"})
    assert not same(train(ours, call, case), expected)
    torch._dynamo.reset()
    monkeypatch.setenv("HIGHWATER_MEMORY", "20KiB")
    with pytest.raises(highwater.OverBudget):
        torch.compile(again, backend="highwater", dynamic=False)(*case.inputs())


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = nn.Linear(8, 8), nn.ModuleList(nn.Linear(8, 512) for _ in range(3))

    def forward(self, x: Tensor, head: int) -> Tensor:
        result: Tensor = self.heads[head](self.body(x))
        return result.square().mean()


@pytest.mark.parametrize("in_place", [False, True])
def test_parameters_that_a_call_does_not_use_are_counted(in_place: bool) -> None:
    def call(memory: int) -> highwater.torch.Report:
        torch._dynamo.reset()
        model, backend = Heads(), highwater.torch.backend(memory)
        if in_place:
            model.compile(backend=backend, dynamic=False)
        (model if in_place else torch.compile(model, backend=backend, dynamic=False))(torch.randn(4, 8), 1)
        return backend.reports[-1]

    weights = sum(parameter.nbytes for parameter in Heads().parameters())
    report = call(1 << 30)
    assert report.floor_bytes > report.given_bytes >= weights
    with pytest.raises(highwater.OverBudget, match="those that the call does not use"):
        call(weights)
