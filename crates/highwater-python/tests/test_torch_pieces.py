"""Models that `torch.compile` takes in pieces, or not at all: refused, told, or counted."""

from __future__ import annotations

import copy
import gc
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highwater.torch
import pytest
import torch
from releases import FOUND_BY_NAME
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


log = logging.getLogger("highwater_tests")


def hook(model: nn.Module, name: str) -> None:
    if name == "print":
        print(end="")
    elif name == "log":
        log.warning("a step of %s", type(model).__name__)
    elif name == "item":
        float(model.first.weight.sum())
    elif name == "break":
        torch._dynamo.graph_break()


class Model(nn.Module):
    """Two layers, with something before, between or after them."""

    def __init__(self, before: str = "", between: str = "", after: str = "", width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.rnn = nn.LSTM(4 * width, 4 * width)
        self.where = before, between, after

    def forward(self, x: Tensor) -> Tensor:
        before, between, after = self.where
        hook(self, before)
        x = self.first(x).tanh()
        hook(self, between)
        if between == "rnn":
            x = self.rnn(x[None])[0][0]
        x = self.second(x).sigmoid()
        hook(self, after)
        return x * 2


def train(call: Callable[..., Tensor], *inputs: Tensor) -> None:
    call(*inputs).square().mean().backward()


@pytest.mark.parametrize("what", ["print", "item", "break"])
@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_a_model_that_breaks_is_refused_with_its_line(what: str, place: str) -> None:
    model = Model(**{place: what})
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend)
    line = rf"{Path(__file__).name}:\d+"
    words = rf"at .*{line} follows from a number that the model computes" if what == "item" else rf"torch.compile breaks it at .*{line} \("
    for _ in range(2):
        # As often as it is tried: what was compiled before the break is no way around it.
        with pytest.raises(highwater.torch.GraphBreak, match=rf"{words}.*graph_breaks=\"separate\""):
            train(call, torch.randn(4, 8))
    assert not backend.reports
    assert all(p.grad is None for p in model.parameters())


def test_recurrent_modules_within_a_model_are_refused() -> None:
    with pytest.raises(highwater.torch.GraphBreak, match=r"Dynamo does not support RNN, GRU, or LSTM|breaks it at .*\(step_unsupported\)"):
        train(torch.compile(Model(between="rnn"), backend=highwater.torch.backend("1GiB")), torch.randn(4, 8))


def test_pieces_of_what_is_skipped_are_refused() -> None:
    class Skipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Model() for _ in range(2))

        @torch._dynamo.disable(recursive=False)
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    call = torch.compile(Skipped(), backend=highwater.torch.backend("1GiB"))
    for _ in range(2):
        with pytest.raises(highwater.torch.GraphBreak, match="splits it into pieces, one of which begins at"):
            train(call, torch.randn(4, 8))


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == log.name]


@pytest.mark.parametrize("by_name", [False, pytest.param(True, marks=FOUND_BY_NAME)])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_model_logs_is_left_out(by_name: bool, in_place: bool, caplog: pytest.LogCaptureFixture) -> None:
    model = Model(between="log")
    eager = copy.deepcopy(model)
    settings: dict[str, Any] = {"backend": "highwater", "options": {"memory": "1GiB"}} if by_name else {"backend": highwater.torch.backend("1GiB")}
    before = set(torch._dynamo.config.ignore_logging_functions)
    if in_place:
        model.compile(**settings)
    call = model if in_place else torch.compile(model, **settings)
    x = torch.randn(4, 8)
    train(call, x)
    assert not logged(caplog)
    train(eager, x)
    assert len(logged(caplog)) == 1
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), eager.parameters()) if a.grad is not None and b.grad is not None)
    # It is so while ours are called: who compiles with others has their logs.
    assert torch._dynamo.config.ignore_logging_functions == before
    torch._dynamo.reset()
    train(torch.compile(eager, backend="eager"), x)
    assert len(logged(caplog)) == 2


def test_a_model_of_which_nothing_is_planned_is_told() -> None:
    backend = highwater.torch.backend("1GiB")
    with pytest.warns(highwater.torch.NothingPlanned, match="nn.LSTM") as told:
        torch.compile(nn.LSTM(8, 8), backend=backend)(torch.randn(2, 3, 8))
    assert [warning.filename for warning in told if warning.category is highwater.torch.NothingPlanned] == [__file__]
    assert not backend.reports
    torch._dynamo.reset()  # 2.14 skips other modules of PyTorch's own once it has skipped one
    with warnings.catch_warnings():
        warnings.simplefilter("error", highwater.torch.NothingPlanned)
        call = torch.compile(nn.Linear(8, 8), backend=backend)
        for _ in range(2):
            train(call, torch.randn(4, 8))
        with pytest.raises(highwater.OverBudget):
            torch.compile(nn.Linear(8, 16), backend=highwater.torch.backend(16))(torch.randn(4, 8))


def test_more_graphs_than_there_may_be_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highwater.torch._dynamo.calls, "SIZES", 3)
    model = Model()
    with torch._dynamo.config.patch(recompile_limit=2):
        call = torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=False)
        for rows in (2, 3, 4, 5, 6, 2):  # sizes are no reason
            train(call, torch.randn(rows, 8))
        with pytest.raises(Exception, match=r"graphs in forward .*where.* set recompile_limit"):
            for i in range(5):
                model.where = "", "", str(i)
                train(call, torch.randn(2, 8))


def test_pieces_that_are_planned_one_by_one_count_what_is_kept() -> None:
    class Widening(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 512)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x).tanh()
            torch._dynamo.graph_break()
            return self.second(h).sigmoid()

    model = Widening()
    eager = copy.deepcopy(model)
    x = torch.randn(256, 64)
    backend = highwater.torch.backend("1GiB", graph_breaks="separate")
    train(torch.compile(model, backend=backend), x)
    train(eager, x)
    assert all(a.grad is not None and b.grad is not None and torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), eager.parameters()))
    first, second = backend.reports
    torch._dynamo.reset()
    model.zero_grad()
    alone = highwater.torch.backend("1GiB")
    torch.compile(lambda h: model.second(h).sigmoid(), backend=alone)(torch.randn(256, 64, requires_grad=True))
    # The first keeps its inputs; what it answers is an input of the second.
    assert second.given_bytes - alone.reports[0].given_bytes == x.nbytes
    assert second.floor_bytes - alone.reports[0].floor_bytes == x.nbytes
    torch._dynamo.reset()
    gc.collect()
    tight = highwater.torch.backend(second.floor_bytes - 1, graph_breaks="separate")
    with pytest.raises(highwater.OverBudget, match="what other graphs hold for their backwards"):
        train(torch.compile(model, backend=tight), x)
    assert len(tight.reports) == 1


def test_forwards_that_wait_for_their_backward_are_told() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)))
    backend = highwater.torch.backend("1GiB")
    train(torch.compile(model, backend=backend, dynamic=False), torch.randn(64, 64))
    (report,) = backend.reports
    torch._dynamo.reset()
    model.zero_grad()
    call = torch.compile(model, backend=highwater.torch.backend(report.live_bytes), dynamic=False)
    x, y = torch.randn(2, 64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in (x, y, x, y):
            train(call, batch)
            model.zero_grad()
        call(x)  # nobody waits for this one
        train(call, y)
    model.zero_grad()
    with pytest.warns(highwater.torch.AboveMemory, match="earlier forward passes hold .* until their backward") as told:
        (call(x).mean() + call(y).mean()).backward()
    assert [warning.filename for warning in told] == [__file__]


def test_other_words_are_refused() -> None:
    wrong: Any = "both"
    with pytest.raises(ValueError, match="graph_breaks='both'"):
        highwater.torch.backend("1GiB", graph_breaks=wrong)


@FOUND_BY_NAME
def test_other_options_are_refused() -> None:
    with pytest.raises(ValueError, match="mode cannot be set there. The settings are memory, .*graph_breaks"):
        torch.compile(nn.Linear(2, 2), backend="highwater", options={"memory": "1GiB", "mode": 1})
