"""Inputs and buffers that share memory, of which some are written in place: eager PyTorch's numbers, or a refusal.

``python tests/test_torch_aliases.py --programs 500`` tries many, ``--first 17 --programs 1`` one of them again.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import pytest
import torch
from torch import Tensor, nn

ROWS, WIDTH = 6, 6

# Parts of a matrix, some of which overlap.
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda y: y,
    "again": lambda y: y[:],
    "after the first": lambda y: y[1:],
    "before the last": lambda y: y[:-1],
    "upper": lambda y: y[:3],
    "lower": lambda y: y[3:],
    "left": lambda y: y[:, :3],
    "right": lambda y: y[:, 3:],
    "transposed": lambda y: y.t(),
    "every other": lambda y: y[::2],
    "the rest": lambda y: y[1::2],
    "row": lambda y: y[2],
    "column": lambda y: y[:, 1],
    "flat": lambda y: y.view(-1)[4:19],
    "nothing": lambda y: y[:0],
    "detached": lambda y: y.detach()[1:],
    "data": lambda y: y.data,
    "apart": lambda y: y.clone(),
}

WRITES: list[Callable[[Tensor], Any]] = [
    lambda a: a.add_(1.0),
    lambda a: a[:1].mul_(0.5),
    lambda a: a.copy_(a.flip(0)),
    lambda a: a.__setitem__(slice(0, 2), 0.25),
    lambda a: torch.mul(a.clone(), 2.0, out=a),
    lambda a: a.data.sub_(0.1),
    lambda a: a.detach().neg_(),
    lambda a: a.clamp_(-0.5, 0.5),
]

ANSWERS: list[Callable[[Tensor], Tensor]] = [lambda a: a, lambda a: a[1:], lambda a: a[:1], lambda a: a.unsqueeze(0), lambda a: a * 2.0]


class Program(nn.Module):
    """Reads and writes what it is given, and two buffers, in an order of chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        numbers = random.Random(seed)
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(ROWS * WIDTH) * 0.3)
        self.register_buffer("whole", torch.randn(ROWS, WIDTH))
        self.register_buffer("part", PARTS[numbers.choice(list(PARTS)[:-1])](self.whole))
        self.inputs = numbers.choice([2, 2, 3])
        names = list(range(self.inputs + 2))
        self.steps = [(numbers.choice(["write", "read", "read"]), numbers.choice(names), numbers.randrange(99)) for _ in range(numbers.randint(3, 6))]
        self.answers = [(numbers.choice(names), numbers.randrange(99)) for _ in range(numbers.randint(0, 2))]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = [*inputs, self.whole, self.part]
        loss = self.weight.square().sum()
        for kind, at, number in self.steps:
            value = values[at]
            if kind == "write":
                WRITES[number % len(WRITES)](value)
            else:
                loss = loss + (value.reshape(-1).clone() * self.weight[: value.numel()]).tanh().sum()
        return (loss, *(ANSWERS[number % len(ANSWERS)](values[at]) for at, number in self.answers))


def train(model: Program, call: Callable[..., Any], seed: int) -> list[Tensor]:
    """All that some steps leave behind. Sizes stay, and what shares memory does not always: nothing does at first, maybe."""
    numbers = random.Random(seed)
    names = [numbers.choice(list(PARTS)) for _ in range(model.inputs)]
    seen: list[Tensor] = []
    for step in range(3):
        torch.manual_seed(step)
        ys = [torch.randn(ROWS, WIDTH) for _ in names]
        together = step > 0 or seed % 2 == 0
        inputs = [PARTS[name](ys[0] if together else y) for name, y in zip(names, ys)]
        model.weight.grad = None
        loss, *answers = call(*inputs)
        loss.backward()
        assert model.weight.grad is not None
        seen += [loss.detach().clone(), model.weight.grad.clone(), *(answer.clone() for answer in answers)]
        if answers and answers[0].numel():
            answers[0].mul_(0.5)  # which shows in what it is a view of
        seen += [value.clone() for value in [*ys, *inputs, model.whole, model.part]]
    return seen


def trial(seed: int) -> str:
    """Eager PyTorch's numbers with plenty and at the floor, or why not."""
    torch._dynamo.reset()
    eager = Program(seed)
    expected = train(eager, eager, seed)
    memory: int | str = "1GiB"
    for where in ("plenty", "floor"):
        torch._dynamo.reset()
        model = Program(seed)
        backend = highwater.torch.backend(memory)
        found = train(model, torch.compile(model, backend=backend, dynamic=False), seed)
        different = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not torch.equal(a, b)]
        if different:
            return f"{where}: {different}"
        memory = max(report.floor_bytes for report in backend.reports)
    return ""


@pytest.mark.parametrize("seed", range(12))
def test_what_shares_memory_has_eagers_numbers(seed: int) -> None:
    assert not trial(seed)


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a[0].add_(1.0)
        return self.linear(b.view(torch.float32) if b.dtype != torch.float32 else b).square().mean(), b[0]


def with_gradient() -> tuple[Tensor, Tensor]:
    y = torch.randn(4, WIDTH, requires_grad=True) * 1.0
    return y, y[1:]


def of_other_dtype() -> tuple[Tensor, Tensor]:
    y = torch.randn(4, WIDTH)
    return y, y.view(torch.int32)


def expanded() -> tuple[Tensor, Tensor]:
    return torch.randn(1, WIDTH).expand(4, WIDTH), torch.randn(4, WIDTH)


def folded() -> tuple[Tensor, Tensor]:
    return torch.randn(30).as_strided((4, WIDTH), (3, 1)), torch.randn(4, WIDTH)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("inputs", [with_gradient, of_other_dtype, expanded, folded])
def test_what_cannot_be_one_tensor_is_refused_with_its_line(inputs: Callable[[], tuple[Tensor, Tensor]], whole: bool) -> None:
    torch._dynamo.reset()
    model, given = Reads(), inputs()
    before = [value.detach().clone() for value in given]
    shares = r"(a|args\[0\]) is written in place at .*test_torch_aliases.py:\d+, and (shares memory with (b|args\[1\])|several of its elements)"
    with pytest.raises(highwater.torch.CannotPlan, match=shares):
        if whole:
            step = highwater.torch.step(model, lambda out, _: out[0], torch.optim.SGD(model.parameters(), 0.1), memory="1GiB")
            step(*given, torch.zeros(1))
        else:
            torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=False)(*given)
    assert all(torch.equal(a, b) for a, b in zip(before, given))


class Flat(nn.Module):
    """Buffers that are parts of one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("flat", torch.zeros(12))
        self.register_buffer("mean", self.flat[:6])
        self.register_buffer("both", self.flat[3:9])

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a.add_(1.0)
        self.mean.add_(b.detach().mean(0))
        out: Tensor = self.linear(b + self.both)
        return out


def test_a_step_has_eagers_numbers_too() -> None:
    def train(memory: int | str | None) -> tuple[list[Tensor], int]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Flat()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = highwater.torch.step(model, nn.MSELoss(), optimizer, memory=memory) if memory else None
        seen: list[Tensor] = []
        for i in range(3):
            y, target = torch.randn(4, WIDTH), torch.randn(3, WIDTH)
            a, b = (y.clone(), y[1:]) if i == 0 else (y, y[1:])
            if step:
                loss = step(a, b, target)
            else:
                loss = nn.MSELoss()(model(a, b), target)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            seen += [loss.detach(), y, model.flat.clone(), *(p.detach().clone() for p in model.parameters())]
        return seen, max((report.floor_bytes for report in step.reports), default=0) if step else 0

    expected, _ = train(None)
    found, floor = train("1GiB")
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(expected, train(floor)[0], strict=True))


def test_tensors_of_inference_mode_are_not_kept_for_a_backward() -> None:
    with torch.inference_mode():
        y = torch.randn(64, WIDTH)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    torch._dynamo.reset()
    plenty = highwater.torch.backend("1GiB")
    torch.compile(lambda x: model(x.clone()).square().mean(), backend=plenty)(y).backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    torch._dynamo.reset()
    floor = highwater.torch.backend(plenty.reports[0].floor_bytes)
    torch.compile(lambda x: model(x.clone()).square().mean(), backend=floor)(y).backward()
    assert all(p.grad is not None and torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = refused = 0
    for seed in range(arguments.first, arguments.first + arguments.programs):
        try:
            answer = trial(seed)
        except highwater.torch.CannotPlan as error:
            answer, refused = "", refused + 1
            print(f"{seed}: refused: {str(error)[:200]}", flush=True)
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error)[:300]}"
        wrong += bool(answer)
        if answer:
            print(f"{seed}: {answer}", flush=True)
    print(f"{arguments.programs} programs, {wrong} wrong, {refused} refused")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
