"""`torch.cond` and `is` by what eager PyTorch has as a Python value; methods of numbers that change. As in eager PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from releases import DRAWS_FROM_OBJECTS
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint

Use = Callable[["Model", Tensor], Tensor]
WAYS = ["step", "plenty", "floor"]


@pytest.fixture(autouse=True)
def fresh(untimed: None) -> None:
    torch._dynamo.reset()


class Model(nn.Module):
    def __init__(self, use: Use) -> None:
        super().__init__()
        self.first, self.second, self.use = nn.Linear(8, 8), nn.Linear(8, 8), use
        self.rate, self.count, self.layers = 0.0, 0, nn.ModuleList([self.first, self.second])

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self, x).square().mean()


def either(model: Model, condition: Any, x: Tensor) -> Tensor:
    """Draws in one of two ways."""
    return torch.cond(condition, lambda x: model.first(F.dropout(x)), lambda x: model.second(x) * 2.0, (x,))  # type: ignore[no-any-return]


def within(model: Model, x: Tensor) -> Tensor:
    return checkpoint(lambda x: either(model, model.rate < 0.5, x), x, use_reentrant=False)  # type: ignore[no-any-return]


BY_PYTHON: dict[str, Use] = {
    "a number that changes": lambda model, x: either(model, model.rate < 0.5, x),
    "a counter": lambda model, x: either(model, model.count % 2, x),
    "a size": lambda model, x: either(model, x.shape[0] > 4, x),
    "a constant": lambda model, x: either(model, model.training, x),
    "a number that is drawn": lambda model, x: either(model, random.random() < 0.5, x),
    "a whole number that is drawn": lambda model, x: either(model, random.randint(0, 1), x),
    "both": lambda model, x: either(model, (random.random() < 0.5) & (model.rate < 0.5), x),
    "by names": lambda model, x: torch.cond(pred=model.rate < 0.5, true_fn=model.first, false_fn=model.second, operands=(x,)),
    "in a checkpoint": within,
    "is": lambda model, x: model.first(x) * (2 if (random.random() < 0.5) is True else 3),
    "is not": lambda model, x: model.first(x) * (2 if (random.random() < 0.5) is not False else 3),
}
# Eager PyTorch has an operation there, too.
BY_TENSORS: dict[str, Use] = {
    "a tensor": lambda model, x: torch.cond(x.sum() > 0, model.first, model.second, (x,)),
    "a tensor of a number": lambda model, x: torch.cond(torch.tensor(random.random()) < 0.5, model.first, model.second, (x,)),
}
METHODS: dict[str, Use] = {
    "index of modules": lambda model, x: model.layers[model.count % 2](x),
    "bit_length": lambda model, x: model.first(x) * model.count.bit_length(),
    "absolute": lambda model, x: torch.lerp(model.first(x), model.second(x), abs(model.count - 3)),
    "power": lambda model, x: torch.lerp(model.first(x), model.second(x), (model.count - 3) ** 2),
    "index of a list": lambda model, x: model.first(x) * [1, 2, 3, 4, 5, 6, 7, 8][model.count] * model.count.bit_length(),
}


def trained(use: Use, way: str, memory: Any = "1GiB") -> tuple[list[Any], int]:
    """What steps with changing numbers and sizes come to, and the smallest memory that was enough for each."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    random.seed(1)
    model, found = Model(use), list[Any]()
    optimizer = optim.SGD(model.parameters(), 0.1)
    backend = highwater.torch.backend(memory)
    train = highwater.torch.step(model, None, optimizer, memory=memory) if way == "step" else None
    call = torch.compile(model, backend=backend, dynamic=False) if way == "backend" else model
    for i, rate in enumerate([0.1, 0.7, 0.2, 0.8, 0.3, 0.1]):
        model.rate, model.count = rate, i
        x = torch.randn(3 + i % 3, 8, generator=torch.Generator().manual_seed(i))
        if train:
            found.append(train(x).item())
        else:
            loss = call(x)
            loss.backward()
            found.append(loss.item())
            found.append([None if p.grad is None else p.grad.tolist() for p in model.parameters()] if way != "eager for a step" else None)
            optimizer.step()
            optimizer.zero_grad()
        found += [torch.get_rng_state().tolist(), random.random(), [p.tolist() for p in model.parameters()]]
    return [part for part in found if part is not None], max((report.floor_bytes for report in backend.reports), default=0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*BY_PYTHON, *BY_TENSORS, *METHODS])
def test_values_of_python_are_eagers(name: str, way: str, recwarn: pytest.WarningsRecorder) -> None:
    if name in ("both", "in a checkpoint") and not DRAWS_FROM_OBJECTS:
        pytest.skip("refused with PyTorch 2.14")
    use = (BY_PYTHON | BY_TENSORS | METHODS)[name]
    if way == "step":
        assert trained(use, "step")[0] == trained(use, "eager for a step")[0]
        return
    expected, _ = trained(use, "eager")
    found, floor = trained(use, "backend")
    assert found == expected
    if way == "floor":
        assert trained(use, "backend", floor)[0] == expected
    assert not [warning for warning in recwarn if "Pred is a Python constant" in str(warning.message)]


REFUSED: dict[str, Use] = {
    "in a checkpoint": lambda model, x: checkpoint(lambda x: either(model, random.random() < 0.5, x), x, use_reentrant=False),
    "given to a checkpoint": lambda model, x: checkpoint(lambda x, coin: either(model, coin, x), x, random.random() < 0.5, use_reentrant=False),
    "in a branch": lambda model, x: torch.cond(
        x.sum() > 0, lambda x: torch.cond(random.random() < 0.5, model.first, model.second, (x,)), lambda x: model.second(x), (x,)
    ),
}


@pytest.mark.parametrize("way", ["step", "backend"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_cond_by_a_number_that_cannot_be_known_is_refused(name: str, way: str) -> None:
    with pytest.raises(highwater.torch.CannotPlan, match=r"torch\.cond at .*test_torch_conds\.py:\d+ is by a number that Python's random draws"):
        trained(REFUSED[name], way)
