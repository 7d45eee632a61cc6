"""Calls whose effects on tensors and random numbers are undone."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .._device.held import storage_key
from .effects import written


class Kept(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Copies what operations are about to write, unless they have made it themselves."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self._made: dict[int, Tensor] = {}
        """Held, so that no other storage is at the same place."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in written(func, args, kwargs or {}):
            key = storage_key(tensor)
            if key not in self._made and key not in self.before:
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
                self.before[key] = whole, whole.clone()
        answer = func(*args, **kwargs or {})
        inputs = {storage_key(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in pytree.tree_leaves(answer):
            if isinstance(leaf, Tensor) and (key := storage_key(leaf)) not in inputs:
                self._made[key] = leaf
        return answer


def without_kept(error: BaseException) -> None:
    """Has an exception end where the user's code, or PyTorch's, called the operation that raised it, as it does without `Kept`."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_next is not None and trace.tb_next.tb_frame.f_code is Kept.__torch_dispatch__.__code__:
            trace.tb_next = None
        trace = trace.tb_next


@contextmanager
def undone_if_returned() -> Iterator[None]:
    """Puts tensors and random numbers back to what they were, unless an exception is raised within. Of the rest, what
    Python itself remembers is as the call left it."""
    devices: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    states = torch.get_rng_state(), torch.cuda.get_rng_state_all() if devices else [], random.getstate()
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy else None
    with (kept := Kept()):
        yield
    with torch.no_grad():
        for tensor, before in kept.before.values():
            tensor.copy_(before)
    torch.set_rng_state(states[0])
    if devices:
        torch.cuda.set_rng_state_all(states[1])
    random.setstate(states[2])
    if numpy:
        numpy.random.set_state(drawn)
