"""Small models of many kinds, each with inputs and a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Case:
    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    loss: Callable[..., Tensor] = lambda out: out.square().mean()


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        drop = self.dropout if self.training else 0.0
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        x = x + F.dropout(self.out(a.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class Gpt(nn.Module):
    """Tied embeddings, causal attention, dropout; the loss is within."""

    def __init__(self, layers: int = 3, width: int = 64, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(97, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(h)) + x, inplace=True)


class UNet(nn.Module):
    """Batch norm, skips, concatenation, pooling."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.down, self.middle, self.up = Residual(channels), Residual(channels), Residual(2 * channels)
        self.last = nn.Conv2d(2 * channels, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.first(x))
        low = self.middle(F.max_pool2d(x, 2))
        return self.last(self.up(torch.cat([x, F.interpolate(low, scale_factor=2)], 1)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = c = x.new_zeros(x.shape[0], 16)
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
        return self.out(h), c


CASES = {
    "mlp": Case(
        lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.3), nn.Linear(64, 4)),
        lambda: (torch.randn(32, 16),),
    ),
    "gpt": Case(Gpt, lambda: (torch.randint(0, 97, (4, 32)),), lambda loss: loss),
    "unet": Case(UNet, lambda: (torch.randn(2, 3, 16, 16),)),
    "lstm": Case(Lstm, lambda: (torch.randn(4, 6, 8),), lambda out, c: out.square().mean() + c.mean()),
}


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


class Lora(nn.Module):
    """A frozen layer and an update of low rank beside it."""

    def __init__(self, base: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x)) * 2.0


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.head, self.groups = width // heads, groups
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (-1, self.head)).transpose(1, 2)

        def rotate(y: Tensor) -> Tensor:
            a, b = y.chunk(2, -1)
            return y * cos + torch.cat([-b, a], -1) * sin

        h = self.norm1(x)
        q, k, v = rotate(split(self.q(h))), rotate(split(self.k(h))), split(self.v(h))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """A Llama's shape; the loss is within."""

    def __init__(self, tokens: int, width: int, layers: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, groups, inner) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, tokens, bias=False)
        self.angles = width // heads

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        rates = 1e4 ** (-torch.arange(0, self.angles, 2, device=ids.device) / self.angles)
        angles = torch.outer(torch.arange(ids.shape[1], device=ids.device), rates).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def add_lora(model: Llama) -> None:
    """Freezes a model but for updates of low rank of its attention."""
    model.requires_grad_(False)
    for layer in model.layers:
        for name in ("q", "v"):
            setattr(layer, name, Lora(getattr(layer, name)))
