"""Every kind of dropout, for every share, dtype and layout, compared with eager PyTorch: results, gradients, and the
random numbers that are drawn."""

from __future__ import annotations

from collections.abc import Callable

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def attention(x: Tensor, p: float, train: bool) -> Tensor:
    return F.scaled_dot_product_attention(x, x * 0.5, x + 1, dropout_p=p if train else 0.0, is_causal=True)


def decomposed(x: Tensor, p: float, train: bool) -> Tensor:
    """Called as it is, it has numbers of its own. With p=0 its result is traced as its input, and it draws."""
    return torch.native_dropout(x, p, train)[0]


KINDS: dict[str, Callable[[Tensor, float, bool], Tensor]] = {
    "dropout": F.dropout,
    "dropout in place": lambda x, p, train: F.dropout(x, p, train, inplace=True),
    "dropout1d": lambda x, p, train: F.dropout1d(x.flatten(0, 1), p, train),
    "dropout2d": F.dropout2d,
    "dropout3d": lambda x, p, train: F.dropout3d(x[None], p, train),
    "dropout2d in place": lambda x, p, train: F.dropout2d(x, p, train, inplace=True),
    "alpha_dropout": F.alpha_dropout,
    "alpha_dropout in place": lambda x, p, train: F.alpha_dropout(x, p, train, inplace=True),
    "feature_alpha_dropout": F.feature_alpha_dropout,
    "feature_dropout": torch.feature_dropout,
    "native_dropout": decomposed,
    "attention": attention,
}  # fmt: skip

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x * 1,
    "channels_last": lambda x: (x * 1).contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: (x * 1).transpose(1, 3),
    "with gaps": lambda x: (x * 1)[..., ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 4, -1, -1),
    "empty": lambda x: x[:0] * 1,
}


class Sum(nn.Module):
    """One kind of dropout with all shares."""

    def __init__(self, kind: Callable[[Tensor, float, bool], Tensor], layout: Callable[[Tensor], Tensor], in_place: bool) -> None:
        super().__init__()
        self.kind, self.layout, self.in_place = kind, layout, in_place

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        found = []
        for p in SHARES:
            given = self.layout(x)
            given = given.clone() if self.in_place else given
            found.append(self.kind(given, p, self.training))
        terms = [(part * part).sum().float() for part in found]
        return torch.stack(terms).sum(), [part.detach().clone() for part in found]


def run(call: Callable[[Tensor], tuple[Tensor, list[Tensor]]], x: Tensor) -> list[Tensor]:
    torch.manual_seed(7)
    loss, found = call(x)
    return [loss.detach(), *found, *torch.autograd.grad(loss, x), torch.get_rng_state()]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KINDS)
def test_dropouts_are_eagers(name: str, layout: str) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64] if layout == "contiguous" else [torch.bfloat16]
    for dtype in dtypes:
        torch.manual_seed(0)
        x = torch.randn(2, 4, 3, 6)
        x[0, 0, 0, :4] = torch.tensor([torch.inf, -torch.inf, 6e4, -0.0])
        x = (x if name != "attention" else x.nan_to_num(1, 1, 1)).to(dtype).requires_grad_()
        model = Sum(KINDS[name], LAYOUTS[layout], "in place" in name)
        expected = run(model, x)
        plenty = highwater.torch.backend("1GiB")
        torch._dynamo.reset()
        same(run(torch.compile(model, backend=plenty), x), expected)
        torch._dynamo.reset()
        same(run(torch.compile(model, backend=highwater.torch.backend(plenty.reports[0].floor_bytes)), x), expected)


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(mine.signbit() & ~mine.isnan(), theirs.signbit() & ~theirs.isnan())


@pytest.mark.parametrize("p", SHARES)
def test_a_step_drops_as_eager_does(p: float) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop, self.cell = nn.Linear(16, 64), nn.Dropout(p), nn.GRUCell(64, 64)
            self.alpha, self.attention = nn.AlphaDropout(p), nn.MultiheadAttention(64, 2, dropout=p)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            h = self.cell(self.drop(h), self.alpha(h)) + h
            return h + self.attention(h, h, h)[0]

    def trained(whole: bool) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(0)
        model, x, y = Net(), torch.randn(8, 16), torch.randn(8, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if whole:
            loss = highwater.torch.step(model, nn.MSELoss(), optimizer, memory="1GiB")(x, y)
        else:
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.detach(), [parameter.detach() for parameter in model.parameters()]

    (loss, mine), (expected, theirs) = trained(True), trained(False)
    same([loss, *mine], [expected, *theirs])


def test_shares_that_are_none_are_refused() -> None:
    model = torch.compile(lambda x: F.dropout(x, 0.5).sum(), backend=highwater.torch.backend("1GiB"))
    assert model(torch.ones(())).shape == ()
    for dtype in (torch.complex64, torch.int64):
        x = torch.ones(4, dtype=dtype)
        outcome: list[object] = []
        for call in (lambda x: F.dropout(x, 0.5), torch.compile(lambda x: F.dropout(x, 0.5), backend=highwater.torch.backend("1GiB"))):
            torch.manual_seed(1)
            try:
                outcome.append(call(x).tolist())
            except Exception:
                outcome.append(Exception)
        assert outcome[0] == outcome[1], dtype
