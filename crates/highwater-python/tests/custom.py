"""Custom operations in all the forms that PyTorch has, each of which counts its calls, and draws random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

calls = [0]

# One of the operations returns its argument: deprecated, and an error where the variable `CI` is set.
torch._functorch.config.error_on_custom_op_aliasing = False


def drawn(like: Tensor) -> Tensor:
    calls[0] += 1
    return torch.rand_like(like)


@torch.library.custom_op("custom_tests::returns", mutates_args=())
def returns(x: Tensor) -> Tensor:
    return x * drawn(x)


@returns.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def keep_scale(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


def scaled_backward(ctx: Any, gradient: Tensor) -> Tensor:
    (output,) = ctx.saved_tensors
    return gradient * returns(output)


returns.register_autograd(scaled_backward, setup_context=keep_scale)


@torch.library.custom_op("custom_tests::several", mutates_args=())
def several(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return x * drawn(x), [drawn(x[:1]), drawn(x)]


@several.register_fake
def _(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    return torch.empty_like(x), [torch.empty_like(x[:1]), torch.empty_like(x)]


@torch.library.custom_op("custom_tests::two_", mutates_args={"a", "b"})
def two_(a: Tensor, x: Tensor, b: Tensor | None = None) -> None:
    a.copy_(x * drawn(x))
    if b is not None:
        b.add_(a)


@torch.library.custom_op("custom_tests::each_", mutates_args={"outs"})
def each_(outs: list[Tensor], by: float) -> None:
    for out in outs:
        out.mul_(by * drawn(out))


@torch.library.custom_op("custom_tests::both_", mutates_args={"out"})
def both_(out: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    out.copy_(x).mul_(drawn(x))
    return out + 1, drawn(x).sum()


@both_.register_fake
def _(out: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(out), x.new_empty(())


library = torch.library.Library("custom_tests", "FRAGMENT")
library.define("defined(Tensor x) -> Tensor")
library.define("written_(Tensor(a!) x, Tensor y) -> ()")
library.define("passed(Tensor x) -> Tensor")
library.define("announced(Tensor x) -> Tensor")
library.impl("defined", lambda x: x * drawn(x), "CompositeExplicitAutograd")
library.impl("written_", lambda x, y: [x.add_(y * drawn(y))].clear(), "CPU")
library.impl("passed", lambda x: (drawn(x), x)[1], "CompositeExplicitAutograd")
library.impl("announced", lambda x: x * drawn(x), "CompositeExplicitAutograd")
for name in ("defined", "passed", "announced"):
    torch.library.register_fake(f"custom_tests::{name}", torch.empty_like, lib=library)
ours = torch.ops.custom_tests
_register_effectful_op(ours.announced.default, _EffectType.ORDERED)


def by_two(h: Tensor, optional: bool) -> Tensor:
    a, b = torch.zeros_like(h), torch.ones_like(h)
    two_(a, h.detach(), b if optional else None)
    return a * h + b


def by_each(h: Tensor) -> Tensor:
    both = h.detach().repeat(2, 1)
    halves = [both[: h.shape[0]], both[h.shape[0] :]]
    each_(halves, 0.5)
    return h * halves[0] + both[h.shape[0] :]


def by_both(h: Tensor) -> Tensor:
    out = torch.empty_like(h)
    plus, number = both_(out, h.detach())
    return h * out + plus * number * 1e-3


def by_several(h: Tensor) -> Tensor:
    first, (row, all) = several(h.detach())
    return h * first + row * all


def written(h: Tensor) -> Tensor:
    out = h.detach() * 2
    ours.written_(out, h.detach())
    return out.tanh() * h


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "returns, with a backward": returns,
    "returns several": by_several,
    "mutates two": lambda h: by_two(h, True),
    "mutates one of two": lambda h: by_two(h, False),
    "mutates views in a list": by_each,
    "mutates and returns": by_both,
    "defined": lambda h: h * ours.defined(h.detach()),
    "defined, mutates": written,
    "returns its argument": lambda h: h * ours.passed(h.detach().sin()).cos(),
    "has effects": lambda h: h * ours.announced(h.detach()),
}
