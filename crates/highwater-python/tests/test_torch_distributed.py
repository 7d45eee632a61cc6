"""Models that several processes train: what would cut their graphs is refused. `examples/pytorch/ddp.py` has
what works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import highwater.torch
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


def shard() -> nn.Module:
    model = nn.Sequential(Block(), Block())
    for module in [*model, model]:
        fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    return model


def test_fully_shard_is_refused() -> None:
    model = shard()
    with pytest.raises(NotImplementedError, match="FSDPBlock is sharded by fully_shard"):
        torch.compile(model, backend=highwater.torch.backend("1GiB"))


def test_fully_shard_is_refused_where_it_comes_later() -> None:
    model = nn.Sequential(Block(), Block())
    model[0].forward = torch.compile(model[0].forward, backend=highwater.torch.backend("1GiB"))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(NotImplementedError, match="is sharded by fully_shard"):
        model(torch.randn(4, 8))


def test_what_is_no_longer_sharded_is_not_in_the_way() -> None:
    model = shard()
    del model
    call = torch.compile(nn.Linear(8, 8), backend=highwater.torch.backend("1GiB"))
    call(torch.randn(4, 8)).sum().backward()


def test_graphs_cut_at_buckets_are_refused() -> None:
    model = Block()
    model.compile(backend=highwater.torch.backend("1GiB"), dynamic=False)
    with pytest.raises(RuntimeError, match="optimize_ddp = False"):
        DistributedDataParallel(model)(torch.randn(4, 8))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(optimize_ddp=False):
        DistributedDataParallel(model)(torch.randn(4, 8)).sum().backward()
