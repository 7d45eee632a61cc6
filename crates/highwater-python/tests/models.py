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
