"""Random modules of graphs within graphs, and the state of a training step to compare."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

ROWS, WIDTH = 48, 24
Piece = Callable[[Tensor], Tensor]

calls = [0]
"""How often custom operations were called."""


@torch.library.custom_op("nested_tests::fill", mutates_args={"out"})
def fill(out: Tensor) -> None:
    calls[0] += 1
    out.uniform_()


@torch.library.custom_op("nested_tests::noise", mutates_args=())
def noise(like: Tensor) -> Tensor:
    calls[0] += 1
    return torch.rand_like(like)


@noise.register_fake
def _(like: Tensor) -> Tensor:
    return torch.empty_like(like)


class Program(nn.Module):
    """Pieces that call each other as graphs within graphs, drawn by a seed or given by names."""

    def __init__(self, seed: int, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) * WIDTH**-0.5 for _ in range(3))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("seen", torch.zeros(WIDTH))
        self.numbers = random.Random(seed)
        self.words: list[str] = []
        self.pieces: list[Piece] = [self.piece(name, 3, ROWS) for name in names or (None,) * self.numbers.randint(2, 4)]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for piece in self.pieces:
            x = x + piece(x @ self.weights[0]).tanh()
            self.seen.mul_(0.9).add_(x.detach().mean(0))
        return F.mse_loss(x, y)

    def piece(self, name: str | None, depth: int, rows: int) -> Piece:
        """A piece by its name, or any: "cond(wide, map(dropout))" has its parts in brackets."""
        if name is None:
            known = [*PLAIN, *(key for key, (of, _) in NESTED.items() if depth and rows % of == 0)]
            name = self.numbers.choice(known)
            parts: list[str | None] = [None] * 2
        else:
            name, _, inner = name.partition("(")
            parts = [*split(inner.removesuffix(")")), None, None]
        if name in PLAIN:
            self.words.append(name)
            i = self.numbers.randrange(3)
            return lambda h: PLAIN[name](self, h, i)
        of, make = NESTED[name]
        self.words.append(f"{name}(")
        made = make(self, [lambda part=part: self.piece(part, depth - 1, rows // of) for part in parts])
        self.words.append(")")
        return made


def split(text: str) -> list[str]:
    """Parts between the commas that are in no brackets."""
    parts, open = [""], 0
    for letter in text:
        open += (letter == "(") - (letter == ")")
        if letter == "," and not open:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def filled(h: Tensor) -> Tensor:
    made = torch.empty_like(h)
    fill(made)
    return h * made.sin()


PLAIN: dict[str, Callable[[Program, Tensor, int], Tensor]] = {
    "wide": lambda m, h, i: (torch.cat([h, h, h, h], 1).sin() * 2).exp()[:, :WIDTH] * h,
    "linear": lambda m, h, i: F.linear(h, m.weights[i], m.bias).sin(),
    "chain": lambda m, h, i: (h.sin().cos() * h.tanh()).sigmoid() - h.square().sin(),
    "dropout": lambda m, h, i: F.dropout(h.sin(), (0.3, 0.5, 0.9)[i]) * h,
    "noise": lambda m, h, i: h * noise(h.detach()),
    "fill": lambda m, h, i: filled(h),
    "norm": lambda m, h, i: F.layer_norm(h, (WIDTH,), m.bias),
    "same": lambda m, h, i: h.clone() if i else h.sum(0, keepdim=True).expand_as(h) * 1,
}

Parts = list[Callable[[], Piece]]


def branches(m: Program, parts: Parts) -> Piece:
    yes, no = parts[0](), parts[1]()
    return lambda h: torch.cond(h.mean() > 0, yes, no, (h,))


def mapped(m: Program, parts: Parts) -> Piece:
    part = parts[0]()
    return lambda h: map_rows(part, h.view(3, -1, WIDTH)).view(-1, WIDTH)


def scanned(m: Program, parts: Parts) -> Piece:
    part = parts[0]()

    def body(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        made = part(carry.tanh() + row)
        return made * 0.5, made.sin()

    return lambda h: scan(body, torch.zeros_like(h[: h.shape[0] // 4]), h.view(4, -1, WIDTH))[1].view(-1, WIDTH)


def sums(m: Program, parts: Parts) -> Piece:
    return lambda h: associative_scan(lambda a, b: a * 0.9 + b, h.view(4, -1, WIDTH), 0, combine_mode="generic").view(-1, WIDTH)


def again(m: Program, parts: Parts) -> Piece:
    part = parts[0]()
    return lambda h: checkpoint(part, h, use_reentrant=False)


def region(m: Program, parts: Parts) -> Piece:
    called = torch.compiler.nested_compile_region(parts[0]())
    return lambda h: called(called(h))


def looped(m: Program, parts: Parts) -> Piece:
    part = parts[0]()

    def loop(h: Tensor) -> Tensor:
        with torch.no_grad():
            _, out = while_loop(lambda i, t: i < 4, lambda i, t: (i + 1, part(t) * 0.5), (torch.zeros((), dtype=torch.int64), h.detach()))
        return h * out

    return loop


# By how much rows have to be divisible, and what makes a piece of its parts.
NESTED: dict[str, tuple[int, Callable[[Program, Parts], Piece]]] = {
    "cond": (1, branches),
    "map": (3, mapped),
    "scan": (4, scanned),
    "sums": (4, sums),
    "checkpoint": (1, again),
    "region": (1, region),
    "while": (1, looped),
}
