"""Updates of a large parameter some rows at a time, so that what they take for a while is small.

An optimizer that goes number by number computes the same either way, if kernels compute a number in the same
way wherever it stands. On CPUs those of half precision and fused ones do not: the end of a tensor, which fills
no vector, is rounded otherwise. The others are tried out before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, optim
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

# Those that compute each number of a parameter by what they know of that number alone.
ELEMENTWISE = {
    optim.ASGD, optim.Adadelta, optim.Adagrad, optim.Adam, optim.AdamW, optim.Adamax,
    optim.NAdam, optim.RAdam, optim.RMSprop, optim.Rprop, optim.SGD,
}  # fmt: skip

# So many numbers at a time.
NUMBERS = 1 << 22


def rows_at_once(kind: type[optim.Optimizer], group: dict[str, Any], parameter: Tensor, device: torch.device) -> int | None:
    """How many rows of a parameter may be updated at a time, if their bits are the same; None for all at once."""
    if kind not in ELEMENTWISE or parameter.numel() <= NUMBERS or group.get("differentiable"):
        return None
    if device.type == "cpu" and (group.get("fused") or parameter.dtype not in (torch.float32, torch.float64)):
        return None
    rows = max(1, NUMBERS * len(parameter) // parameter.numel())
    return rows if rows < len(parameter) else None


def step_by_rows(optimizer: optim.Optimizer, rows: int | None) -> None:
    """A step of an optimizer that has one parameter for now."""
    (group,) = optimizer.param_groups
    (parameter,) = group["params"]
    if rows is None:
        optimizer.step()
        return
    whole: dict[str, Any] = optimizer.state[parameter]
    before = dict(whole)
    # Counts of steps go up once.
    numbers = {key: value.clone() for key, value in before.items() if isinstance(value, Tensor) and value.shape != parameter.shape}

    def of_rows(key: str, value: Any, some: slice) -> Any:
        if not isinstance(value, Tensor):
            return value
        return numbers[key].clone() if key in numbers else value[some]

    try:
        for start in range(0, len(parameter), rows):
            some = slice(start, start + rows)
            piece = parameter.detach()[some]
            piece.grad = parameter.grad[some]
            group["params"] = [piece]
            optimizer.state[piece] = {key: of_rows(key, value, some) for key, value in before.items()}
            try:
                optimizer.step()
                keep(whole, optimizer.state[piece], parameter, piece, some)
            finally:
                del optimizer.state[piece]
    finally:
        group["params"] = [parameter]


def keep(whole: dict[str, Any], found: dict[str, Any], parameter: Tensor, piece: Tensor, some: slice) -> None:
    """Has a parameter's state be what was found of some of its rows."""
    for key, value in found.items():
        held = whole.get(key)
        if not isinstance(value, Tensor):
            whole[key] = value
        elif value.shape != piece.shape:
            whole[key] = held.copy_(value) if isinstance(held, Tensor) else value
        else:
            if not isinstance(held, Tensor):
                held = whole[key] = torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False)
            if value._base is not held:
                held[some] = value


def same_bits(make: Callable[[Tensor], optim.Optimizer], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether an optimizer that is made of a parameter computes the same of some rows at a time as of all."""
    with _disable_current_modes(), torch.no_grad():
        drawn = torch.Generator(device).manual_seed(0)

        def numbers() -> Tensor:
            return torch.randn(256, 16, generator=drawn, dtype=torch.float32, device=device).to(dtype)

        first = numbers()
        ends = [make(first.clone()), make(first.clone())]
        for _ in range(3):
            gradient = numbers()
            for optimizer, rows in zip(ends, (None, 3), strict=True):
                optimizer.param_groups[0]["params"][0].grad = gradient.clone()
                step_by_rows(optimizer, rows)
        one, other = [[optimizer.param_groups[0]["params"][0].detach(), *states(optimizer)] for optimizer in ends]
        return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))


def states(optimizer: optim.Optimizer) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves([dict(state) for state in optimizer.state.values()]) if isinstance(leaf, Tensor)]
