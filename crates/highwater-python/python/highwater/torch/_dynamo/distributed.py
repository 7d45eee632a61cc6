"""What trains a model in several processes, where it cuts graphs behind a plan's back."""

from __future__ import annotations

import gc

from torch._dynamo.utils import get_optimize_ddp_mode
from torch.distributed._composable_state import _module_state_mapping
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from .._messages.errors import while_compiling


def sharded() -> str | None:
    """The class of a module that `fully_shard` manages, if there is one: which is compiled is not known."""
    return next((type(module).__name__ for module in _module_state_mapping if isinstance(module, FSDPModule)), None)


def refuse_cuts() -> None:
    """Refuses what cuts a model into pieces, each of which would take all of the memory for itself."""
    if sharded():
        gc.collect()  # a model that is gone may wait for that
    if name := sharded():
        raise while_compiling(
            NotImplementedError,
            f"{name} is sharded by fully_shard, whose hooks cut a model into pieces. Their total memory cannot be "
            "bounded. Use DistributedDataParallel, or train the model without this backend.",
        )
    # Dynamo says so while the model that it wraps runs for the first time.
    active = DistributedDataParallel._get_active_ddp_module()  # type: ignore[no-untyped-call]
    if active and get_optimize_ddp_mode() == "ddp_optimizer":
        raise while_compiling(
            RuntimeError,
            "torch.compile cuts a model in DistributedDataParallel at its gradient buckets, and each piece would use all "
            "of the memory. Set torch._dynamo.config.optimize_ddp = False before the first call.",
        )
