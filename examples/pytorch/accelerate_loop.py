"""A loop of Accelerate's, with gradients accumulated over two micro-batches."""

import highwater.torch
import torch
from accelerate import Accelerator
from beside import Run, check, peak_bytes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MEMORY = 9 << 20
DATA = TensorDataset(torch.randn(2048, 256), torch.randn(2048, 1))


def run(memory: int | None) -> Run:
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(256, 1))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, batches = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters()), DataLoader(DATA, batch_size=512)
    )
    # Beside it: `Accelerator(dynamo_backend=...)` knows none but its own list.
    call = model
    if memory is not None:
        call = torch.compile(model, backend=highwater.torch.backend(memory), dynamic=False, fullgraph=True)

    losses = []
    for x, y in batches:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(call(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    weights = [p.detach().clone() for p in model.parameters()]
    x, y = DATA[:512]
    return losses, weights, peak_bytes(model, lambda: nn.functional.mse_loss(call(x), y).backward())


check(run(None), run(MEMORY), MEMORY)
