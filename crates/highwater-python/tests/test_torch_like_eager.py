"""Operations that AOTAutograd traces as others: ours run the kernels that eager PyTorch does."""

from __future__ import annotations

import copy
from collections.abc import Callable

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._autograd import like_eager
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def larger(mode: str, antialias: bool = False) -> Callable[[Tensor], Tensor]:
    corners = {"align_corners": False, "antialias": antialias} if mode in ("bilinear", "bicubic") else {}
    return lambda x: F.interpolate(x, scale_factor=1.7 if antialias else 2.0, mode=mode, **corners)


def margins(x: Tensor) -> Tensor:
    rows = x.mean((2, 3))
    targets = torch.arange(len(rows)) % rows.shape[1]
    return x * F.multi_margin_loss(rows, targets) * F.multilabel_margin_loss(rows, F.one_hot(targets, rows.shape[1]) - 1)


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{mode: larger(mode) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")},
    **{f"{mode}, antialias": larger(mode, True) for mode in ("bilinear", "bicubic")},
    "hardshrink": lambda x: F.hardshrink(x, 0.1),
    "softshrink": lambda x: F.softshrink(x, 0.1),
    "margins": margins,
    # Dynamo writes these out as other operations.
    "addcdiv": lambda x: torch.addcdiv(x, x.sin(), x.cos(), value=1.7),
    "addcdiv_": lambda x: x.sin().addcdiv_(x, x.cos(), value=1.7),
    "addcmul_": lambda x: x.sin().addcmul_(x, x.cos(), value=1.7),
    "add_ of a tensor's share": lambda x: x.sin().add_(x, alpha=torch.tensor(1.7)),
    "matmul": lambda x: x @ torch.linspace(-1, 1, x.shape[-1] ** 2).view(x.shape[-1], -1),
}


class Around(nn.Module):
    """Convolutions around an operation. `last`: how what it reads and answers lies in memory."""

    def __init__(self, operation: Callable[[Tensor], Tensor], last: bool) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.operation, self.last = operation, last

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        y = self.operation(y.contiguous(memory_format=torch.channels_last) if self.last else y)
        return self.after(y).square().mean()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("last", [False, True])
def test_bits_are_those_of_eagers_kernels(name: str, last: bool) -> None:
    torch.manual_seed(0)
    model = Around(OPERATIONS[name], last)
    ours, x = copy.deepcopy(model), torch.randn(8, 3, 12, 12)
    plenty = highwater.torch.backend("1GiB")
    torch.compile(ours, backend=plenty)(x).backward()
    torch._dynamo.reset()
    tight = copy.deepcopy(model)
    torch.compile(tight, backend=highwater.torch.backend(plenty.reports[0].floor_bytes))(x).backward()
    model(x).backward()
    for mine in (ours, tight):
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), mine.parameters(), strict=True))  # type: ignore[arg-type]


def enlarged(mode: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: F.interpolate(x.sin(), size=[7] * (x.dim() - 2), mode=mode) * y


# A function of two tensors, and their sizes.
SIZES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "linear": (enlarged("linear"), (2, 3, 6), (7,)),
    "trilinear": (enlarged("trilinear"), (2, 3, 6, 6, 6), (7,)),
    "nearest of three": (enlarged("nearest"), (2, 3, 6, 6, 6), (7,)),
    "exact of one": (enlarged("nearest-exact"), (2, 3, 6), (7,)),
    "dot": (torch.matmul, (5,), (5,)),
    "matrix and vector": (torch.matmul, (2, 3, 5), (5,)),
    "folded": (torch.matmul, (2, 3, 5), (5, 4)),
    "expanded": (torch.matmul, (2, 1, 3, 5), (4, 5, 6)),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("half", [False, True])
def test_sizes(name: str, half: bool) -> None:
    function, *sizes = SIZES[name]
    torch.manual_seed(0)
    pair = [torch.randn(size, requires_grad=True) for size in sizes]

    def loss(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return function(x, y).float().square().mean()

    expected = torch.autograd.grad(loss(*pair), pair)
    found = torch.autograd.grad(torch.compile(loss, backend=highwater.torch.backend("1GiB"))(*pair), pair)
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("whole", [True, False])
def test_attention_kernels_may_change_between_steps(whole: bool) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inward, self.outward = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.inward(x).view(2, 12, 3, 4, 8).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.outward(mixed.transpose(1, 2).reshape(2, 12, 32))

    torch.manual_seed(0)
    model, x, y = Attention(), torch.randn(2, 12, 32) * 4, torch.randn(2, 12, 32)
    ours = copy.deepcopy(model)
    theirs, mine = (torch.optim.SGD(one.parameters(), 0.1) for one in (model, ours))
    step = highwater.torch.step(ours, F.mse_loss, mine, memory="1GiB")
    call = torch.compile(ours, backend=highwater.torch.backend("1GiB"))
    for kernels in ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], [SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION]):
        with sdpa_kernel(kernels):
            F.mse_loss(model(x), y).backward()
            if whole:
                step(x, y)
            else:
                F.mse_loss(call(x), y).backward()
                mine.step()
                mine.zero_grad()
        theirs.step()
        theirs.zero_grad()
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), ours.parameters(), strict=True))


def test_others_trace_as_before() -> None:
    operation = torch.ops.aten.upsample_nearest2d.vec
    before = dict(operation.py_kernels)
    with pytest.raises(KeyboardInterrupt), like_eager.own_kernels():
        assert operation.py_kernels.keys() < before.keys()
        raise KeyboardInterrupt
    assert operation.py_kernels == before


@pytest.mark.parametrize("operation", [torch.linalg.eigvals, lambda x: torch.linalg.solve(x, x.mT), torch.linalg.inv, torch.linalg.det], ids=["eigvals", "solve", "inv", "det"])
def test_what_checks_its_results_in_a_backward(operation: Callable[[Tensor], Tensor]) -> None:
    """Such a check takes a token, which is an input of the backward."""
    torch.manual_seed(0)
    x = torch.randn(3, 4, 4, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        return operation(x * 1.5).abs().sum()

    (expected,) = torch.autograd.grad(loss(x), x)
    plenty = highwater.torch.backend("1GiB")
    for backend in (plenty, None):
        torch._dynamo.reset()
        backend = backend or highwater.torch.backend(plenty.reports[0].floor_bytes)
        (found,) = torch.autograd.grad(torch.compile(loss, backend=backend)(x), x)
        assert torch.equal(found, expected)
