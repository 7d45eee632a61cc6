"""Models that answer more than their loss, which alone is differentiated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._device.allocated import allocated
from models import Gpt
from releases import FOUND_BY_NAME
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class Answering(nn.Module):
    """As Hugging Face's models answer: logits beside the loss, a hidden state, and a weight; of far more tokens
    than it is wide."""

    def __init__(self, tokens: int = 3000, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.tokens = nn.Embedding(tokens, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.2))
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        hidden = self.inner(self.tokens(ids))
        logits = self.head(hidden)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return {"loss": loss, "logits": logits, "hidden": hidden.flatten(0, 1), "weight": self.head.weight.t()}


def data(length: int = 16) -> Tensor:
    return torch.randint(0, 3000, (4, length), generator=torch.Generator().manual_seed(length))


def gradients(model: nn.Module, call: Callable[..., Any], ids: Tensor) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """What a forward answers, and the gradients of its loss."""
    torch.manual_seed(1)
    out = call(ids)
    out["loss"].backward()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    return {name: value.detach().clone() for name, value in out.items()}, found


def planned(model: nn.Module, memory: int | str, ids: Tensor, **options: Any) -> tuple[Callable[[], Any], highwater.torch.Report]:
    """A step within a memory, which has run once, and its report."""
    torch._dynamo.reset()
    backend = highwater.torch.backend(memory, **options)
    call = torch.compile(model, backend=backend, dynamic=False)

    def step() -> Any:
        out = call(ids)
        out["loss"].backward()
        return out

    step()
    model.zero_grad()
    return step, backend.reports[0]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_gradients_are_eagers_and_the_peak_is_told(share: float) -> None:
    model, ids = Answering(), data()
    answers, expected = gradients(model, model, ids)
    _, most = planned(model, "1GiB", ids, gradients="loss")
    _, all_most = planned(model, "1GiB", ids)
    size = answers["logits"].nbytes
    assert most.live_bytes <= all_most.live_bytes - size and most.floor_bytes <= all_most.floor_bytes - size
    memory = int(most.floor_bytes + share * (most.live_bytes - most.floor_bytes))
    step, report = planned(model, memory, ids, gradients="loss")
    _, peak, _ = allocated(step)
    model.zero_grad()
    assert peak + report.given_bytes <= report.live_bytes <= 1.01 * (peak + report.given_bytes)
    assert report.live_bytes <= memory
    torch._dynamo.reset()
    call = torch.compile(model, backend=highwater.torch.backend(memory, gradients="loss"), dynamic=False)
    ours, found = gradients(model, call, ids)
    assert all(torch.equal(ours[name], value) for name, value in answers.items())
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_no_gradient_is_lost_in_silence() -> None:
    model, ids = Answering(), data()
    call = torch.compile(model, backend=highwater.torch.backend("1GiB", gradients="loss"), dynamic=False)
    for loss in (
        lambda out: out["logits"].square().mean(),
        lambda out: out["loss"] + out["hidden"].square().mean(),
        lambda out: out["weight"].abs().sum(),
    ):
        with pytest.raises(RuntimeError, match='gradients="loss".*backward reached another output'):
            loss(call(ids)).backward()
        assert all(p.grad is None for p in model.parameters())
    # It can be looked at, and written to.
    out = call(ids)
    assert out["logits"].argmax(-1).shape == ids.shape
    with torch.no_grad():
        assert not call(ids)["logits"].requires_grad
    out["logits"].mul_(2)
    out["loss"].backward()
    assert all(p.grad is not None for p in model.parameters())


def test_numbers_beside_the_loss_have_gradients() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = self.a(x)
            return h, self.b(h).square().mean(), h.abs().mean()

    model, x = Two(), torch.randn(4, 8)
    call = torch.compile(model, backend=highwater.torch.backend("1GiB", gradients="loss"), fullgraph=True)
    found = []
    for run in (model, call):
        _, first, second = run(x)
        (first + 0.1 * second).backward()
        found.append([p.grad for p in model.parameters()])
        model.zero_grad()
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_sizes_that_are_symbols() -> None:
    model = Answering()
    backend = highwater.torch.backend("1GiB", gradients="loss")
    call = torch.compile(model, backend=backend, dynamic=True)
    for length in (8, 11, 8, 16):
        answers, expected = gradients(model, model, data(length))
        ours, found = gradients(model, call, data(length))
        assert all(torch.equal(ours[name], value) for name, value in answers.items())
        assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert len(backend.reports) == 3


def test_a_refusal_names_the_option() -> None:
    model, ids = Answering(), data()
    _, report = planned(model, "1GiB", ids)
    _, alone = planned(model, "1GiB", ids, gradients="loss")
    words = r"the gradient of the model's output \(4, 16, 3000\), made by .* in head at .*gradients=\"loss\"\) avoids them"
    with pytest.raises(highwater.OverBudget, match=words):
        planned(model, report.floor_bytes - 1, ids)
    with pytest.raises(highwater.OverBudget) as caught:
        planned(model, alone.floor_bytes - 1, ids, gradients="loss")
    assert "gradient of the model's output" not in str(caught.value) and 'gradients="loss"' not in str(caught.value)
    # Where it is alone it is the loss of somebody.
    torch._dynamo.reset()
    with pytest.raises(highwater.OverBudget) as caught:
        torch.compile(nn.Linear(8, 3000), backend=highwater.torch.backend("100KiB"))(torch.randn(99, 8))
    assert 'gradients="loss"' not in str(caught.value)


def test_settings() -> None:
    with pytest.raises(ValueError, match=r'needs graph_breaks="refuse": with "separate", one piece passes gradients to another'):
        highwater.torch.backend("1GiB", graph_breaks="separate", gradients="loss")
    with pytest.raises(ValueError, match='"all", or "loss"'):
        highwater.torch.backend("1GiB", gradients="some")  # type: ignore[arg-type]


def test_a_model_that_breaks_is_refused() -> None:
    class Broken(Answering):
        def forward(self, ids: Tensor) -> dict[str, Tensor]:
            out = super().forward(ids)
            torch._dynamo.graph_break()
            return out | {"loss": out["loss"] + out["logits"].square().mean()}

    with pytest.raises(highwater.torch.GraphBreak):
        torch.compile(Broken(), backend=highwater.torch.backend("1GiB", gradients="loss"))(data())


@FOUND_BY_NAME
def test_by_name() -> None:
    model, ids = Answering(), data()
    _, expected = gradients(model, model, ids)
    call = torch.compile(copy.deepcopy(model), backend="highwater", options={"memory": "1GiB", "gradients": "loss"})
    with pytest.raises(RuntimeError, match='gradients="loss"'):
        call(ids)["logits"].sum().backward()
    _, found = gradients(model, torch.compile(model, backend="highwater", options={"memory": "1GiB", "gradients": "loss"}), ids)
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_model_that_answers_its_loss_alone_is_planned_as_ever() -> None:
    ids = torch.randint(0, 97, (4, 32))
    reports = []
    for option in ("all", "loss"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        backend = highwater.torch.backend("1GiB", gradients=option)
        torch.compile(Gpt(), backend=backend)(ids).backward()
        reports.append(backend.reports[0])
    assert reports[0].live_bytes == reports[1].live_bytes
