"""Random numbers that nobody looks at, and those that a backward draws again: generators are as after eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch.utils.checkpoint import checkpoint


def unused(x: Tensor) -> Tensor:
    torch.rand(3)
    F.dropout(x)
    return x * 2


def branch(form: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cond(x.sum() > -1e9, form, lambda x: x * 2, (x,))  # type: ignore[no-any-return]


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "unused": unused,
    "unused before a checkpoint": lambda x: checkpoint(lambda x: x.sin() + torch.randn_like(x), F.dropout(x) * 0 + x, use_reentrant=False),
    "noise in a branch": branch(lambda x: x.sin() + torch.randn_like(x)),
    "noise and a mask": branch(lambda x: torch.bernoulli(torch.sigmoid(x)) * x + torch.randn_like(x)),
    "noise and dropout": branch(lambda x: F.dropout(x) + torch.randn_like(x)),
    "a factor in a branch": branch(lambda x: x * torch.randn_like(x)),
    "two factors": branch(lambda x: (x * torch.rand_like(x)).sin() * torch.rand_like(x)),
    "noise in a map": lambda x: map_rows(lambda row: row.sin() + torch.randn_like(row), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_generators_are_as_after_eager(name: str) -> None:
    def run(memory: int | None) -> tuple[list[Tensor], list[highwater.torch.Report]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        x = torch.randn(4, 8, requires_grad=True)
        backend = highwater.torch.backend(memory or 0)
        call = PROGRAMS[name] if memory is None else torch.compile(PROGRAMS[name], backend=backend)
        found = []
        for _ in range(2):
            out = call(x)
            found += [out.detach(), torch.get_rng_state()]
            out.sum().backward()
            found.append(torch.get_rng_state())
        assert x.grad is not None
        return [*found, x.grad], backend.reports

    expected, _ = run(None)
    plenty, reports = run(1 << 30)
    least, _ = run(max(report.floor_bytes for report in reports))
    for theirs, ours, tight in zip(expected, plenty, least, strict=True):
        assert torch.equal(theirs, ours) and torch.equal(theirs, tight)
