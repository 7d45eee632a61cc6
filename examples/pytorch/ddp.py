"""Two processes with `DistributedDataParallel`: each plans its own graph, and gradients are averaged as ever."""

import tempfile
from pathlib import Path

import highwater.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from beside import Run, check, peak_bytes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MEMORY = 8 << 20


def run(rank: int, memory: int | None) -> Run:
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(256, 1))
    if memory is not None:
        # One graph, one plan: else Dynamo cuts it where a bucket of gradients is full, however it is compiled.
        torch._dynamo.config.optimize_ddp = False
        model.compile(backend=highwater.torch.backend(memory), dynamic=False, fullgraph=True)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters())
    torch.manual_seed(2 + rank)
    losses = []
    for x in torch.randn(5, 512, 256):
        optimizer.zero_grad()
        loss = parallel(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = [p.detach().clone() for p in model.parameters()]
    return losses, weights, peak_bytes(model, lambda: parallel(x).square().mean().backward())


def work(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    plain, ours = run(rank, None), run(rank, MEMORY)
    if rank == 0:
        check(plain, ours, MEMORY)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (folder,), nprocs=2)
