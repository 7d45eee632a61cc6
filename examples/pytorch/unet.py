"""A U-Net as diffusion models have it, with skips, attention and dropout, in half of what it takes above its weights."""

import sys
from pathlib import Path

import highwater.torch
import torch
from beside import Run, check, peak_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches/pytorch"))
from zoo import DiffusionUNet, noisy

MEMORY = 16 << 20
DATA = [noisy(batch=8, size=32) for _ in range(5)]


def run(memory: int | None) -> Run:
    torch.manual_seed(1)
    model = DiffusionUNet(channels=16, levels=3)
    if memory is not None:
        model.compile(backend=highwater.torch.backend(memory), dynamic=False, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for images, noise, when in DATA:
        loss = model(images, noise, when)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = [p.detach().clone() for p in model.parameters()]
    return losses, weights, peak_bytes(model, lambda: model(*DATA[0]).backward())


check(run(None), run(MEMORY), MEMORY, share=0.5)
