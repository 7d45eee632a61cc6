"""What kernels take for a while where that depends on the numbers that they read: never told too low."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._device.allocated import allocated
from highwater.torch._device.device import Device
from highwater.torch._plan.costs import made_up
from torch import Tensor, nn

ROWS, WIDTH, BAG = 200, 48, 12
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def bag(mode: str) -> Loss:
    return lambda w, x, ids: F.embedding_bag(ids.view(-1, BAG), w, mode=mode).square().mean()


# Of a matrix of rows, another one, and places of rows.
LOSSES: dict[str, Loss] = {
    "bag of the most": bag("max"),
    "bag of means": bag("mean"),
    "bag of sums": bag("sum"),
    "mask": lambda w, x, ids: torch.where(x > 0, w, x).masked_fill(x < -1, 0.5).square().mean(),
    "write by mask": lambda w, x, ids: w.index_put((x[:, 0] > 0,), torch.tensor(0.5)).square().mean(),
    "rows": lambda w, x, ids: (w[ids] * x[ids]).mean() + w.index_add(0, ids[:ROWS], x).square().mean(),
    "embedding": lambda w, x, ids: F.embedding(ids, w, padding_idx=3, scale_grad_by_freq=True).square().mean(),
    "sorted": lambda w, x, ids: w.sort(0).values.cumsum(0).square().mean() + w.topk(3, 0).values.mean(),
    "pooled": lambda w, x, ids: F.max_pool2d(w[None, None], 2).square().mean(),
    "bilinear": lambda w, x, ids: F.bilinear(x[:, :8], w[:, :8], w[:64].reshape(6, 8, -1)[..., :8]).square().mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_scratch_that_depends_on_numbers_is_told(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    w, x = nn.Parameter(torch.randn(ROWS, WIDTH)), torch.randn(ROWS, WIDTH)
    ids = torch.randint(0, ROWS, (ROWS * BAG,))
    backend = highwater.torch.backend("1GiB")
    call: Callable[..., Any] = torch.compile(LOSSES[name], backend=backend, dynamic=False, fullgraph=True)
    call(w, x, ids).backward()
    w.grad = None
    _, peak, _ = allocated(lambda: call(w, x, ids).backward())
    (report,) = backend.reports
    assert peak + report.given_bytes <= report.live_bytes


# Whole numbers of fewer bits than a byte have no kernels on CPUs.
DTYPES = sorted({dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.int", "torch.uint", "torch.bits"))}, key=str)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_to_measure_with_are_made_of_each_dtype(dtype: torch.dtype) -> None:
    made = made_up(torch.empty(3, 2, dtype=dtype), 0)
    assert made.dtype == dtype and made.shape == (3, 2)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_products_of_8_bits_take_what_is_told(dtype: torch.dtype) -> None:
    """On CPUs they are computed on wider copies of their factors."""
    torch._dynamo.reset()
    a, b, one = torch.randn(32, 48).to(dtype), torch.randn(64, 48).to(dtype), torch.ones(())

    def scaled(a: Tensor, b: Tensor) -> Tensor:
        return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16) * 2

    backend = highwater.torch.backend("1GiB")
    call: Callable[..., Any] = torch.compile(scaled, backend=backend, dynamic=False, fullgraph=True)
    call(a, b)
    _, peak, _ = allocated(lambda: call(a, b))
    (report,) = backend.reports
    assert peak + report.given_bytes <= report.live_bytes


@pytest.mark.skipif("glibc" not in platform.libc_ver()[0], reason="it is glibc that keeps it")
def test_what_measuring_took_is_given_back() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # Of these sizes all come from one heap, where what is last holds what is before.
    freed, kept = [], []
    for _ in range(2_000):
        freed.append(torch.ones(15_000))
        kept.append(torch.ones(100))
    before = resident()
    del freed
    Device(torch.device("cpu")).tidy()
    assert before - resident() > 60_000 * 1_000
    assert all(part[0] == 1 for part in kept)


@torch.library.custom_op("test_scratch::edited", mutates_args=())
def edited(x: Tensor) -> Tensor:
    copies = [x + 1 for _ in range(edits[-1])]
    return torch.stack(copies).mean(0)


@edited.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


edits = [2]


def test_an_operation_of_the_user_is_measured_in_each_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its code may have changed since, under the same name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    needed = []
    for many in (2, 32):
        edits.append(many)
        torch._dynamo.reset()
        backend = highwater.torch.backend("1GiB")
        torch.compile(lambda x: edited(x * 2) * 3, backend=backend, fullgraph=True)(torch.randn(1 << 14))
        needed.append(backend.reports[-1].live_bytes)
    assert needed[1] > needed[0] + (32 - 2) * 4 * (1 << 14)


@torch.library.custom_op("test_scratch::counted", mutates_args=())
def counted(x: Tensor, step: int) -> Tensor:
    return x * step


@counted.register_fake
def _(x: Tensor, step: int) -> Tensor:
    return torch.empty_like(x)


class Counting(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for parameter in group["params"]:
                parameter.grad.copy_(counted(parameter.grad, group["steps"]))
        return super().step(closure)


def test_an_operation_that_is_told_another_number_at_each_step_is_known_in_the_end() -> None:
    torch._dynamo.reset()
    model = nn.Linear(8, 8)
    step = highwater.torch.step(model, nn.MSELoss(), Counting(model.parameters(), 0.01), memory="1GiB")
    x, known = torch.randn(4, 8), []
    for _ in range(24):
        step(x, x)
        known.append(len(step.costs.known))
    assert known[-1] == known[12]
    allocated(lambda: step(x, x))  # which measures nothing
