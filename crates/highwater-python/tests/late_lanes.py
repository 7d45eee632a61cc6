"""Copies that are as late as they may be: each is made when somebody waits for it, of what is there then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from highwater.torch._device.transfers import Pairs
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class Seen:
    """A tensor that nobody is kept from letting go of."""

    def __init__(self, tensor: Tensor) -> None:
        self._storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._form = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def get(self) -> Tensor:
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)
        assert storage is not None, "what is being copied was let go of"
        dtype, offset, shape, stride = self._form
        return torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)


@dataclass
class Copy:
    to_host: bool
    pairs: list[tuple[Seen, Seen]]
    after: tuple[Copy, ...]
    done: bool = False


@dataclass
class LateLanes:
    """For tests: a device is pretended whose copies take for ever."""

    page_locked = False
    lanes: dict[bool, list[Copy]] = field(default_factory=lambda: {False: [], True: []})
    copied: int = 0

    def copy(self, to_host: bool, pairs: Pairs, after: tuple[Copy, ...] = ()) -> Copy:
        made = Copy(to_host, [(Seen(target), Seen(source)) for target, source in pairs], after)
        self.lanes[to_host].append(made)
        if not to_host:
            # What is not there yet is poison.
            for target, _ in pairs:
                torch.empty(0, dtype=torch.uint8).set_(target.untyped_storage()).fill_(0xFF)
        return made

    def wait(self, token: Copy) -> None:
        lane = self.lanes[token.to_host]
        while not token.done:
            self._carry_out(lane.pop(0))

    finish = wait

    def _carry_out(self, copy: Copy) -> None:
        for token in copy.after:
            self.wait(token)
        for target, source in copy.pairs:
            target.get().copy_(source.get())
            self.copied += 1
        copy.done = True
