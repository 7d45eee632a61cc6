#!/usr/bin/env python3
"""What PyTorch's plain training step of `crates/highwater/examples/densenet.rs` takes: live bytes at once.

    python benches/pytorch/densenet_example.py

The same network, batch and optimizer; weights, gradients, moments and inputs count. Needs torch and the
package `highwater` (crates/highwater-python), whose counter of PyTorch's allocations this uses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from highwater.torch import allocated
from torch import Tensor, nn

FIRST, GROWTH, BLOCKS, BATCH, SIDE, CLASSES = 24, 12, (6, 6, 6), 16, 32, 4


def layer(inputs: int, outputs: int, kernel: int) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), conv)


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, FIRST, 3, padding=1, bias=False)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        channels = FIRST
        for count in BLOCKS:
            layers = nn.ModuleList()
            for _ in range(count):
                between = 4 * GROWTH
                layers.append(nn.Sequential(layer(channels, between, 1), layer(between, GROWTH, 3)))
                channels += GROWTH
            self.blocks.append(layers)
            self.transitions.append(layer(channels, channels // 2, 1))
            channels //= 2
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layers, transition in zip(self.blocks, self.transitions, strict=True):
            made = [x]
            for dense in layers:
                made.append(dense(torch.cat(made, 1)))
            x = F.avg_pool2d(transition(torch.cat(made, 1)), 2)
        return self.head(x.mean((2, 3)))


def main() -> None:
    torch.manual_seed(0)
    model = DenseNet()
    optimizer = torch.optim.AdamW(model.parameters())
    images, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    _, most, _ = allocated(step)
    state = [t for held in optimizer.state.values() for t in held.values() if t is not None]
    held = [*model.parameters(), *model.buffers(), *state, images, labels]
    print(f"{(most + sum(t.nbytes for t in held)) / (1 << 20):.1f} MiB")


if __name__ == "__main__":
    main()
