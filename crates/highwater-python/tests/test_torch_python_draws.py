"""Random numbers of Python and NumPy in a model, and branches by what a model draws, counts or writes: as in eager
PyTorch, or refused."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import highwater.torch
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from releases import DRAWS_FROM_OBJECTS
from torch import Tensor, nn, optim

Draw = Callable[[Tensor], Any]

OWN = random.Random(3)
X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
WAYS = ["step", "backend"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class Model(nn.Module):
    def __init__(self, use: Draw) -> None:
        super().__init__()
        self.first, self.second, self.use = nn.Linear(8, 8), nn.Linear(8, 8), use

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        result: Tensor = self.use(x)
        return result.square().mean()


class Branches(Model):
    """Leaves a layer out by what it is told."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.use(x):
            x = self.second(x)
        return x.square().mean()


def losses(make: Callable[[], nn.Module], way: str, steps: int = 6) -> list[float]:
    """The losses of some steps, and what generators draw after them."""
    for seed in (random.seed, torch.manual_seed, np.random.seed, OWN.seed):
        seed(1)
    model = make()
    optimizer = optim.SGD(model.parameters(), 0.1)
    found = []
    if way == "step":
        train = highwater.torch.step(model, None, optimizer, memory="1GiB")
        found = [train(X).item() for _ in range(steps)]
    else:
        call = torch.compile(model, backend=highwater.torch.backend("1GiB")) if way == "backend" else model
        for _ in range(steps):
            loss = call(X)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
    return [*found, random.random(), OWN.random(), torch.rand(()).item(), float(np.random.rand())]


def shuffled(x: Tensor) -> Tensor:
    order = list(range(4))
    random.shuffle(order)
    return x[order[:2]]


def seeded_before(x: Tensor) -> Tensor:
    random.seed(5)
    return x[random.sample(range(4), 2)] * random.random()


SAME: dict[str, Draw] = {
    "random": lambda x: x * random.random(),
    "uniform": lambda x: x * random.uniform(1, 2),
    "randint": lambda x: x * random.randint(1, 5),
    "randrange": lambda x: x * random.randrange(1, 5),
    "of an object": lambda x: x * OWN.random(),
    "of a new object": lambda x: x * random.Random(0).random(),
    "seeded in the model": seeded_before,
    "as a tensor": lambda x: x * torch.tensor(random.random()),
    "as a tensor of another dtype": lambda x: x * torch.tensor(random.random(), dtype=torch.float64),
    "as a whole tensor": lambda x: x * torch.as_tensor(random.randint(1, 3)),
}
REFUSED: dict[str, Draw] = {
    "sample": lambda x: x[random.sample(range(4), 2)],
    "shuffle": shuffled,
    "choice": lambda x: x * random.choice([1.0, 2.0]),
    "gauss": lambda x: x * random.gauss(0, 1),
    "sample of an object": lambda x: x[OWN.sample(range(4), 2)],
    "an object without a seed": lambda x: x * random.Random().random(),
    "numpy, a number": lambda x: x * np.random.rand(),
    "numpy, an array": lambda x: x * torch.as_tensor(np.random.rand(8)).float(),
    "numpy, normal": lambda x: x * torch.as_tensor(np.random.normal(0, 1, 8)).float(),
    "numpy, choice": lambda x: x[np.random.choice(4, 2)],
    "numpy, a generator": lambda x: x * torch.as_tensor(np.random.default_rng(0).random(8)).float(),
    "a seed that is drawn": lambda x: torch.manual_seed(random.randint(0, 9)) and x * torch.rand(8),
    "a size": lambda x: x[:, : random.randint(1, 8)],
    "an exponent": lambda x: x ** random.randint(1, 3),
    "a base": lambda x: random.uniform(1, 3) ** x,
    "the power of a method": lambda x: x.abs().pow(random.uniform(1, 3)),
    "lerp in half precision": lambda x: torch.lerp(x.bfloat16(), x.bfloat16().tanh(), random.random()).float(),
    "a seed of an object that is drawn": lambda x: x * random.Random(random.randint(0, 9)).random(),
    "a bound that is drawn": lambda x: x * random.uniform(0, random.random()),
    "a key": lambda x: x * {0: 1.0, 1: 2.0}[random.randint(0, 1)],
    "an index of a list": lambda x: x * [1.0, 2.0][random.randint(0, 1)],
    "a number of rows": lambda x: x.repeat(random.randint(1, 4), 1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SAME)
def test_numbers_are_drawn_at_each_call(name: str, way: str) -> None:
    if name in ("of an object", "seeded in the model") and not DRAWS_FROM_OBJECTS:
        with pytest.raises(highwater.torch.GraphBreak):
            losses(lambda: Model(SAME[name]), way)
        return
    expected = losses(lambda: Model(SAME[name]), "eager")
    assert losses(lambda: Model(SAME[name]), way) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_is_refused(name: str, way: str) -> None:
    with pytest.raises((highwater.torch.GraphBreak, highwater.torch.CannotPlan)) as raised:
        losses(lambda: Model(REFUSED[name]), way)
    assert "test_torch_python_draws.py" in str(raised.value)
    assert "should not be traced" not in str(raised.value) and ".)" not in str(raised.value)


AS_A_SIZE: dict[str, Callable[[Tensor], Tensor]] = {
    "a share": lambda x: torch.nn.functional.dropout(x, random.random()),
    "a start": lambda x: x[random.randint(1, 3) :],
    "a row": lambda x: x[random.randint(0, 3)],
    "a shift": lambda x: x.roll(random.randrange(4)),
    "a size": lambda x: torch.cat([x, torch.zeros(random.randint(1, 3), 8)]),
    "a count": lambda x: [x := x.sin() for _ in range(random.randint(1, 3))][-1],
    "a part": lambda x: x[int(random.random() * 3) :],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", AS_A_SIZE)
def test_what_is_refused_is_said_to_be_of_pythons_random(name: str, way: str) -> None:
    with pytest.raises(highwater.torch.GraphBreak, match=r"test_torch_python_draws.py:\d+ follows from a number that Python's random draws"):
        losses(lambda: Model(AS_A_SIZE[name]), way)


@pytest.mark.parametrize("way", WAYS)
def test_an_item_is_not_said_to_be_drawn(way: str) -> None:
    model = Model(lambda x: x[int(x.sum().abs().item()) % 3 :] * random.random())
    with pytest.raises((highwater.torch.GraphBreak, highwater.torch.CannotPlan), match=r"a number that the model computes|size depends on data") as raised:
        losses(lambda: model, way)
    assert "Python's random" not in str(raised.value)


class Counting(Model):
    """Draws by a number that changes."""

    def __init__(self, draw: Callable[[int, Tensor], Tensor]) -> None:
        super().__init__(lambda x: draw(self.count, x))
        self.count = -1

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return super().forward(x)


BY_COUNTER: dict[str, Callable[[int, Tensor], Tensor]] = {
    "a seed of an object": lambda count, x: x * 2 if random.Random(count).random() < 0.5 else x,
    "a seed": lambda count, x: (random.seed(count), x * random.random())[1],
    "a bound": lambda count, x: x * random.uniform(0, count / 10),
    "a bound of an object": lambda count, x: x * random.Random(3).randint(0, count),
    "a text": lambda count, x: x * len(f"{count:03d}{count / 7:.2f}"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BY_COUNTER)
def test_draws_by_a_number_that_changes(name: str, way: str) -> None:
    if name == "a seed" and not DRAWS_FROM_OBJECTS:
        pytest.skip("refused by PyTorch 2.14")
    expected = losses(lambda: Counting(BY_COUNTER[name]), "eager")
    assert losses(lambda: Counting(BY_COUNTER[name]), way) == expected


class Lazy(Model):
    def __init__(self) -> None:
        super().__init__(lambda x: x)
        self.generator: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(3)
        return (self.first(x) * torch.rand(8, generator=self.generator)).mean()


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_that_outlives_the_call_is_refused(way: str) -> None:
    with pytest.raises(highwater.torch.GraphBreak, match="Make it before the call, as in __init__"):
        losses(Lazy, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wide", [False, True])
def test_a_tensor_of_a_number_has_its_dtype(wide: bool, way: str, recwarn: pytest.WarningsRecorder) -> None:
    make = lambda: Model(lambda x: x.double() * torch.tensor(random.random()) if wide else x * torch.tensor(random.random()))  # noqa: E731
    assert losses(make, way, steps=2) == losses(make, "eager", steps=2)
    assert not [warning for warning in recwarn if "copy construct" in str(warning.message)]


def test_nothing_is_logged_before_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "torch._dynamo"), pytest.raises(highwater.torch.GraphBreak):
        losses(lambda: Model(lambda x: F.dropout(x, random.random())), "backend")
    assert not [record for record in caplog.records if "item()" in record.getMessage()]


BY_DRAWS: dict[str, Draw] = {
    "a number below": lambda x: random.random() < 0.5,
    "a number above": lambda x: 0.5 < random.uniform(0, 1),
    "a whole number": lambda x: random.randint(0, 1),
    "of an object": lambda x: OWN.random() < 0.5,
    "one of two": lambda x: random.random() < 0.3 or random.random() < 0.3,
    "torch's": lambda x: torch.rand(1) < 0.5,
    "not torch's": lambda x: not (torch.rand([]) < 0.5),
    "torch's item": lambda x: (torch.rand(1) < 0.5).item(),
    "torch's as a truth": lambda x: bool(torch.rand(1) < 0.5),
    "torch's overload": lambda x: torch.ops.aten.randint.low(0, 2, [1]) > 0,
    "both kinds": lambda x: torch.rand(1) < 0.7 and random.random() < 0.7,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BY_DRAWS)
def test_branches_by_random_numbers(name: str, way: str) -> None:
    if name == "of an object" and not DRAWS_FROM_OBJECTS:
        pytest.skip("refused by PyTorch 2.14")
    expected = losses(lambda: Branches(BY_DRAWS[name]), "eager")
    assert losses(lambda: Branches(BY_DRAWS[name]), way) == expected


def both(x: Tensor) -> Any:
    first, second = torch.rand(1), torch.rand(1)
    return first < 0.5 and second < 0.5


# Some of these numbers are not looked at: they are drawn all the same.
NOT_LOOKED_AT: dict[str, Draw] = {
    "the second of two": both,
    "any of a list": lambda x: any([torch.rand(1) < 0.3, torch.rand(1) < 0.3]),
    "dropout": lambda x: F.dropout(x) is not None and torch.rand(1) < 0.5,
    "a generator's": lambda x: [torch.rand(1) for _ in range(3)][0] < 0.5,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NOT_LOOKED_AT)
def test_draws_that_no_branch_looks_at(name: str, way: str) -> None:
    expected = losses(lambda: Branches(NOT_LOOKED_AT[name]), "eager", steps=8)
    assert losses(lambda: Branches(NOT_LOOKED_AT[name]), way, steps=8) == expected


class Dropped(Branches):
    def forward(self, x: Tensor) -> Tensor:
        deep = F.dropout(self.second(self.first(x)))
        return (self.first(x) if torch.rand(1) < 0.5 else deep).square().mean()


@pytest.mark.parametrize("way", WAYS)
def test_dropout_before_a_branch_in_batches_of_any_size(way: str) -> None:
    def run(way: str) -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(1)
        model, found = Dropped(BY_DRAWS["torch's"]), []
        optimizer = optim.SGD(model.parameters(), 0.1)
        train = highwater.torch.step(model, None, optimizer, memory="1GiB") if way == "step" else None
        call = torch.compile(model, backend=highwater.torch.backend("1GiB")) if way == "backend" else model
        for size in (4, 6, 5, 6, 4, 7):
            x = torch.randn(size, 8)
            if train:
                found.append(train(x).item())
                continue
            loss = call(x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return [*found, torch.rand(()).item()]

    assert run(way) == run("eager")


# What is made of a tensor and a number that is drawn, and whether that is refused: Dynamo has a tensor for the number, which may
# give the result its dtype.
NUMBERS: dict[str, tuple[Draw, bool]] = {
    "a row": (lambda x: x * random.random(), False),
    "a row in bfloat16": (lambda x: x.bfloat16() * random.random(), False),
    "a row of integers": (lambda x: x.to(torch.int8) * random.randint(1, 9), False),
    "integers by a fraction": (lambda x: x.to(torch.int8) * random.random(), True),
    "truths by a fraction": (lambda x: (x > 0) * random.random(), True),
    "truths by an integer": (lambda x: (x > 0).any() * random.randint(1, 9), False),
    "a mean": (lambda x: x.mean() * random.random(), True),
    "a mean in bfloat16": (lambda x: x.bfloat16().mean() * random.random(), True),
    "a mean by an integer": (lambda x: x.bfloat16().mean() * random.randint(1, 9), False),
    "the largest of integers": (lambda x: x.to(torch.int8).max() + random.randint(1, 9), True),
    "the larger": (lambda x: torch.maximum(x.mean(), torch.tensor(random.random())), False),
    "bounded": (lambda x: x.clamp(max=random.random()), False),
    "a bounded mean": (lambda x: x.mean().clamp(max=random.random()), True),
    "one of two": (lambda x: torch.where(x > 0, x.to(torch.int8), random.randint(1, 9)), False),
    "one of two means": (lambda x: torch.where(x.mean() > 0, x.mean(), random.random()), True),
    "compared": (lambda x: x.mean() > random.random(), False),
    "filled": (lambda x: torch.full((3,), random.random()), False),
    "filled with integers": (lambda x: torch.full((3,), random.randint(1, 9)), False),
    "filled with integers as told": (lambda x: torch.full((3,), fill_value=random.randint(1, 9), dtype=torch.float64), False),
    "filled like": (lambda x: torch.full_like(x.to(torch.int16), random.randint(1, 9)), False),
    "filled like, by name": (lambda x: torch.full_like(input=x, fill_value=random.random(), dtype=torch.bfloat16), False),
    "filled in place": (lambda x: x.to(torch.int16).fill_(random.randint(1, 9)), False),
    "added to a row": (lambda x: x.bfloat16().add_(random.random()), False),
    "added to a mean": (lambda x: x.bfloat16().mean().add_(random.random()), True),
    "a mean plus": (lambda x: operator.iadd(x.bfloat16().mean(), random.random()), True),
    "written to a mean": (lambda x: torch.mul(x.mean(), random.random(), out=torch.empty(())), True),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_drawn_gives_no_tensor_its_dtype(name: str) -> None:
    use, is_refused = NUMBERS[name]

    def run(use: Draw) -> list[Any]:
        random.seed(1)
        return [use(X), use(X), random.random()]

    ours: Draw = torch.compile(use, backend=highwater.torch.backend("1GiB"))
    if is_refused:
        with pytest.raises(highwater.torch.CannotPlan, match=r"test_torch_python_draws.py:\d+ would be computed in (float64|int64) instead of "):
            run(ours)
        return
    *expected, after = run(use)
    *found, since = run(ours)
    for theirs, mine in zip(expected, found, strict=True):
        assert theirs.dtype == mine.dtype and torch.equal(theirs, mine)
    assert after == since


class Annealed(Model):
    def __init__(self) -> None:
        super().__init__(lambda x: x)
        self.keep = 0.9

    def forward(self, x: Tensor) -> Tensor:
        self.keep *= 0.9
        deep = self.first(x)
        if torch.rand(1) < self.keep:
            deep = self.second(deep)
        if random.random() < self.keep:
            deep = deep.tanh()
        return deep.mean()


@pytest.mark.parametrize("way", WAYS)
def test_branches_by_a_number_that_is_annealed(way: str) -> None:
    assert losses(Annealed, way, steps=10) == losses(Annealed, "eager", steps=10)


@torch.library.custom_op("test_draws::bump", mutates_args={"count"})
def bump(x: Tensor, count: Tensor) -> None:
    count.add_(1)


@bump.register_fake
def _(x: Tensor, count: Tensor) -> None:
    return None


@torch.library.custom_op("test_draws::coin", mutates_args=())
def coin(x: Tensor) -> Tensor:
    return torch.rand(1) < 0.5


@coin.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(1, dtype=torch.bool)


class Warmed(nn.Module):
    def __init__(self, is_warm: Callable[[Warmed, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.is_warm = nn.Linear(8, 8), nn.Linear(8, 8), is_warm
        self.register_buffer("ids", torch.arange(4))
        self.register_buffer("steps", torch.zeros(2, dtype=torch.long))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.part = self.steps[0]

    def forward(self, x: Tensor) -> Tensor:
        warm = self.is_warm(self, x)
        return self.second(self.first(x)).tanh().mean() if warm else (self.first(x) + self.second(x)).square().mean()


def in_place(model: Any, x: Tensor) -> Any:
    model.count |= model.ids[1]
    return model.count > 0


def unbound(model: Any, x: Tensor) -> Any:
    first, _ = model.steps.unbind()
    first += 1
    return model.part > 2


STALE: dict[str, Callable[[Any, Tensor], Any]] = {
    "counter": lambda model, x: model.count.add_(1) > 2,
    "in place": in_place,
    "a part of what is written": lambda model, x: (model.steps.add_(1), model.part > 2)[1],
    "what a part of is written": lambda model, x: (model.part.add_(1), model.steps.sum() > 2)[1],
    "unbound": unbound,
    "several at once": lambda model, x: (torch._foreach_add_([model.steps, model.count], 1), model.count > 2)[1],
    "a custom operation writes": lambda model, x: (bump(x, model.count), model.count > 2)[1],
    "out": lambda model, x: (torch.add(model.ids[1], model.count, out=model.count), model.count > 2)[1],
    "a custom operation draws": lambda model, x: coin(model.ids),
    "nothing is written": lambda model, x: model.ids.sum() > 5,
    "something else is written": lambda model, x: (model.steps.add_(1), model.count > 2)[1],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STALE)
def test_branches_by_what_was_just_written(name: str, way: str) -> None:
    """They are taken by the value that there is then, or refused."""
    expected = losses(lambda: Warmed(STALE[name]), "eager")
    if "something" in name or "nothing" in name:
        assert losses(lambda: Warmed(STALE[name]), way) == expected
        return
    with pytest.raises(highwater.torch.GraphBreak, match="test_torch_python_draws.py"):
        losses(lambda: Warmed(STALE[name]), way)


class Noisy(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * (1 + coin(x)))


def test_a_custom_operation_that_draws_before_a_branch_is_told_of() -> None:
    with pytest.raises(RuntimeError, match="an operation of your own draws before that branch"):
        losses(lambda: Noisy(BY_DRAWS["torch's"]), "step", steps=8)


def test_a_branch_runs_no_custom_operation() -> None:
    use = lambda x: torch.rand(1) + coin(torch.zeros(1)) < 0.5  # noqa: E731
    with pytest.raises(highwater.torch.GraphBreak, match="test_torch_python_draws.py"):
        losses(lambda: Branches(use), "step")
