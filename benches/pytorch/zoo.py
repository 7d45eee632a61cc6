"""Six models as people train them, each at its full size and at a small one, with inputs and a loss."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torchvision.models import densenet, resnet, vision_transformer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crates/highwater-python/tests"))
from models import Block


@dataclass
class Case:
    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    """A micro-batch. The model answers its loss."""
    blocks: tuple[type[nn.Module], ...]
    """What is checkpointed one by one, where that is done by hand."""


class Gpt2(nn.Module):
    """Tied embeddings, causal attention, dropout."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, 0.1) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = F.dropout(self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)), 0.1, self.training)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Adapted(nn.Module):
    """A frozen linear layer, and what is learnt beside it."""

    def __init__(self, inputs: int, outputs: int, rank: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(F.dropout(x, 0.05, self.training)))


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, linear: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (linear(width, width) for _ in range(4))
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)
        self.heads = heads

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.norm1(x)
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (t * cos + torch.cat([-t.chunk(2, -1)[1], t.chunk(2, -1)[0]], -1) * sin for t in (q, k))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Rotary places, gated layers; adapters beside frozen weights, if it is `adapted`."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, adapted: bool = True) -> None:
        super().__init__()
        linear = Adapted if adapted else partial(nn.Linear, bias=False)
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, width * 8 // 3 // 64 * 64, linear) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.size = width // heads
        if adapted:
            self.requires_grad_(False)
            for module in self.modules():
                if isinstance(module, Adapted):
                    module.down.requires_grad_(True)
                    module.up.requires_grad_(True)

    def forward(self, ids: Tensor) -> Tensor:
        places, waves = (torch.arange(0, end, step, device=ids.device) for end, step in [(ids.shape[1], 1), (self.size, 2)])
        turns = torch.outer(places, 1e4 ** (-waves / self.size)).repeat(1, 2)
        x = self.tokens(ids)
        cos, sin = turns.cos().to(x.dtype), turns.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x))[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class ResBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(time, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.dropout(F.silu(self.norm2(h)), 0.1, self.training))


class Attention2d(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(8, channels), nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).flatten(2).unflatten(1, (3, 4, -1)).transpose(-1, -2).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(x.shape))


class DiffusionUNet(nn.Module):
    """As diffusion models have: time, group norm, attention where it is small, skips; it foretells noise."""

    def __init__(self, channels: int, levels: int) -> None:
        super().__init__()
        sizes = [channels * min(1 << i, 4) for i in range(levels)]
        time = 4 * channels
        self.time = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time))
        self.first, self.last = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, 3, 3, padding=1)
        self.down = nn.ModuleList(nn.ModuleList([ResBlock(a, b, time), ResBlock(b, b, time)]) for a, b in zip([channels, *sizes], sizes))
        self.middle = nn.ModuleList([ResBlock(sizes[-1], sizes[-1], time), Attention2d(sizes[-1])])
        outputs = [*sizes[:-1][::-1], channels]
        self.up = nn.ModuleList(nn.ModuleList([ResBlock(2 * a, a, time), ResBlock(a, b, time)]) for a, b in zip(sizes[::-1], outputs))
        self.channels = channels

    def forward(self, x: Tensor, noise: Tensor, when: Tensor) -> Tensor:
        waves = torch.arange(0, self.channels, 2, device=when.device)
        angles = when[:, None] * torch.exp(-waves / self.channels * 9.0)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        h, skips = self.first(x + noise * when[:, None, None, None]), []
        for one, two in self.down:
            h = two(one(h, time), time)
            skips.append(h)
            h = F.avg_pool2d(h, 2)
        block, attention = self.middle
        h = attention(block(h, time))
        for one, two in self.up:
            h = two(one(torch.cat([F.interpolate(h, scale_factor=2.0), skips.pop()], 1), time), time)
        return F.mse_loss(self.last(F.silu(h)), noise)


class Classifier(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(images), labels)


def texts(vocabulary: int, batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, vocabulary, (batch, length)),)


def pictures(batch: int, size: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))


def noisy(batch: int, size: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size), torch.rand(batch)


def classifier(make: Callable[..., nn.Module], **settings: Any) -> Callable[[], nn.Module]:
    return lambda: Classifier(make(num_classes=10, **settings))


def vit(**settings: Any) -> Callable[[], nn.Module]:
    return classifier(partial(vision_transformer.VisionTransformer, dropout=0.1, **settings))


CASES: dict[str, dict[str, Case]] = {
    "gpt2": {
        "full": Case(lambda: Gpt2(12, 768, 12, 50257, 512), partial(texts, 50257, 4, 512), (Block,)),
        "small": Case(lambda: Gpt2(4, 128, 4, 1000, 128), partial(texts, 1000, 4, 128), (Block,)),
    },
    "llama-lora": {
        "full": Case(lambda: Llama(16, 1024, 16, 32000), partial(texts, 32000, 2, 512), (LlamaBlock,)),
        "small": Case(lambda: Llama(4, 128, 4, 1000), partial(texts, 1000, 4, 128), (LlamaBlock,)),
    },
    "resnet50": {
        "full": Case(classifier(torchvision.models.resnet50), partial(pictures, 16, 224), (resnet.Bottleneck,)),
        "small": Case(classifier(torchvision.models.resnet50), partial(pictures, 4, 64), (resnet.Bottleneck,)),
    },
    "densenet121": {
        "full": Case(classifier(torchvision.models.densenet121), partial(pictures, 16, 224), (densenet._DenseBlock,)),
        "small": Case(classifier(densenet.DenseNet, growth_rate=16, block_config=(4, 6, 8, 6)), partial(pictures, 4, 64), (densenet._DenseBlock,)),
    },
    "unet": {
        "full": Case(lambda: DiffusionUNet(64, 4), partial(noisy, 8, 64), (ResBlock, Attention2d)),
        "small": Case(lambda: DiffusionUNet(16, 3), partial(noisy, 4, 32), (ResBlock, Attention2d)),
    },
    "vit": {
        "full": Case(
            vit(image_size=224, patch_size=16, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072),
            partial(pictures, 8, 224),
            (vision_transformer.EncoderBlock,),
        ),
        "small": Case(
            vit(image_size=64, patch_size=8, num_layers=4, num_heads=4, hidden_dim=128, mlp_dim=512),
            partial(pictures, 8, 64),
            (vision_transformer.EncoderBlock,),
        ),
    },
}


def checkpoint_blocks(model: nn.Module, blocks: tuple[type[nn.Module], ...]) -> None:
    """Has each block of a kind computed again in the backward, as people do by hand."""
    for module in model.modules():
        if isinstance(module, blocks):
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def save_memory(model: nn.Module) -> None:
    """What torchvision offers for DenseNets."""
    for module in model.modules():
        if isinstance(module, densenet._DenseLayer):
            module.memory_efficient = True
