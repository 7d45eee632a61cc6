"""Copies between a device's memory and the host's, beside kernels.

What waits on the host lies in a *room*: bytes of an exact size, of which each copy has a stretch. A copy goes
in a lane of its direction, in which one comes after the other. It starts when the kernels that were asked for
before it have ended; whoever reads what it answers, or gives back the memory that it reads, waits for it.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .._messages.amounts import show

Token = Any
"""What a lane knows a copy by."""

Pairs = Sequence[tuple[Tensor, Tensor]]
"""Tensors that are written to, and those that are read for that."""


class Lanes(Protocol):
    """What carries out copies."""

    page_locked: bool
    """Whether rooms have to be."""

    def copy(self, to_host: bool, pairs: Pairs, after: tuple[Token, ...] = ()) -> Token:
        """Has tensors copied, once all kernels that were asked for and some other copies have ended."""

    def wait(self, token: Token) -> None:
        """Has kernels that are asked for later start after a copy's end."""

    def finish(self, token: Token) -> None:
        """Waits until a copy has ended, so that the host may read what it made."""


class ThreadLanes:
    """For the CPU: a device is pretended, whose memory is the host's too. A thread for each direction."""

    page_locked = False

    def __init__(self) -> None:
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix="highwater-copies") for _ in range(2)]

    def copy(self, to_host: bool, pairs: Pairs, after: tuple[Token, ...] = ()) -> Token:
        left = list(reversed(pairs))

        def run() -> None:
            for token in after:
                token.result()
            # Nothing is held any more when it is over. Whose tensors they are is the thread's that asked for it.
            with torch.inference_mode():
                while left:
                    copy(*left.pop())

        return self._threads[to_host].submit(run)

    def wait(self, token: Future[None]) -> None:
        token.result()

    finish = wait


def copy(target: Tensor, source: Tensor) -> None:
    target.copy_(source)


class CudaLanes:
    """A stream for each direction; nobody but the device waits."""

    page_locked = True

    def __init__(self, device: torch.device) -> None:
        self._streams = [torch.cuda.Stream(device) for _ in range(2)]  # type: ignore[no-untyped-call]

    def copy(self, to_host: bool, pairs: Pairs, after: tuple[Token, ...] = ()) -> Token:
        stream = self._streams[to_host]
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        for token in after:
            stream.wait_event(token)
        with torch.cuda.stream(stream):
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
        return stream.record_event()

    def wait(self, token: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self._streams[0].device).wait_event(token)

    def finish(self, token: torch.cuda.Event) -> None:
        token.synchronize()


class HostMemoryError(RuntimeError):
    """More has to be offloaded at once than host_memory allows."""


class Rooms:
    """Host memory of at most so many bytes, in pieces that are used again once nobody has them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pieces: list[Piece] = []
        self._one = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        """What there is, in use or not."""
        return sum(len(piece.memory) for piece in self._pieces)

    def take(self, count: int, page_locked: bool, most: int = 0) -> Tensor:
        """Bytes for as long as the tensor, or a view of it, is there: of a piece of that size, or one of up to `most`."""
        with self._one:
            free = sorted((piece for piece in self._pieces if piece.is_free), key=lambda piece: len(piece.memory))
            piece = next((piece for piece in free if count <= len(piece.memory) <= max(count, most)), None)
            if piece is None:
                while free and self.taken_bytes + count > self.limit:
                    self._pieces.remove(free.pop())
                if self.taken_bytes + count > self.limit:
                    raise HostMemoryError(
                        f"host_memory is {show(self.limit)}, and {show(count)} must be offloaded next to {show(self.taken_bytes)} that other "
                        "backward passes still need. State more host_memory, or call each backward before the next forward."
                    )
                piece = Piece(count, page_locked)
                self._pieces.append(piece)
            return piece.take()[:count]


class Piece:
    """Memory of an exact size, which PyTorch's allocator for locked pages would round up to a power of two."""

    def __init__(self, count: int, page_locked: bool) -> None:
        self.memory = Memory(-1, count)
        self._user: StorageWeakRef | None = None
        if page_locked:
            address = self.take().data_ptr()
            torch.cuda.check_error(int(cuda_runtime().cudaHostRegister(address, count, 0)))
            self.memory.locked_at = address

    @property
    def is_free(self) -> bool:
        return self._user is None or self._user.expired()  # type: ignore[no-untyped-call]

    def take(self) -> Tensor:
        room = torch.frombuffer(self.memory, dtype=torch.uint8)
        self._user = StorageWeakRef(room.untyped_storage())  # type: ignore[no-untyped-call]
        return room


class Memory(mmap.mmap):
    """Pages that are unlocked before they go, which is when the last tensor in them does: others that get their
    address later could not be locked otherwise."""

    locked_at = 0

    def __del__(self) -> None:
        if self.locked_at and not sys.is_finalizing():
            torch.cuda.synchronize()  # A device may still be reading them.
            cuda_runtime().cudaHostUnregister(self.locked_at)


def cuda_runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


class Transfers:
    """What graphs have bytes moved by."""

    def __init__(self, limit: int, lanes: Callable[[torch.device], Lanes] | None = None) -> None:
        self.rooms = Rooms(limit)
        self._make = lanes or lanes_of
        self._lanes: dict[torch.device, Lanes] = {}
        self._one = threading.Lock()

    def lanes(self, device: torch.device) -> Lanes:
        with self._one:
            if device not in self._lanes:
                self._lanes[device] = self._make(device)
            return self._lanes[device]

    def take(self, count: int, device: torch.device, beside: int | None = None) -> Tensor:
        """Host memory that a device's copies go to and come from. `beside`: bytes that will be taken beside it;
        if that is known, it may be in a larger piece."""
        most = 0 if beside is None else self.rooms.limit - beside
        return self.rooms.take(count, self.lanes(device).page_locked, most)

    def settle(self) -> None:
        """Waits until nothing is under way."""
        for lanes in self._lanes.values():
            for to_host in (False, True):
                lanes.finish(lanes.copy(to_host, []))


@dataclass(frozen=True)
class Form:
    """How a tensor lies in its storage."""

    dtype: torch.dtype
    device: torch.device
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @staticmethod
    def of(tensor: Tensor) -> Form:
        size, stride = (tuple(map(int, numbers)) for numbers in (tensor.shape, tensor.stride()))
        return Form(tensor.dtype, tensor.device, size, stride, int(tensor.storage_offset()))

    @property
    def bytes(self) -> int:
        """How far it reaches into its storage."""
        if 0 in self.size:
            return 0
        return (self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.size, self.stride))) * self.dtype.itemsize

    def lie_in(self, storage: Tensor) -> Tensor:
        """The tensor, of a storage's bytes."""
        whole = storage.numel() // self.dtype.itemsize * self.dtype.itemsize
        typed = storage[:whole].view(self.dtype)
        return typed.as_strided(self.size, self.stride, int(typed.storage_offset()) + self.offset)


@dataclass(eq=False)
class Stay:
    """A tensor's stay on the host: where in a room the bytes of its storage are, and how it lay there. A kernel may
    answer another dtype or layout than was traced, the same in each step."""

    place: int
    count: int
    form: Form

    def of(self, room: Tensor) -> Tensor:
        return room[self.place : self.place + self.count]


# What stands in graphs: functions with what is known of them when they are written.


@dataclass(frozen=True, eq=False)
class TakeRoom:
    """Answers a room for all that a plan moves."""

    transfers: Transfers
    count: int
    homes: int
    """Bytes of states that the plan has on the host beside it."""
    device: torch.device
    __name__ = "take_room"

    def __call__(self) -> Tensor:
        return self.transfers.take(self.count, self.device, self.homes)


@dataclass(frozen=True, eq=False)
class CopyRoom:
    """Answers a room of the same bytes, once those are there: kernels may have waited, but not the host."""

    transfers: Transfers
    device: torch.device

    def __call__(self, room: Tensor) -> Tensor:
        lanes = self.transfers.lanes(self.device)
        lanes.finish(lanes.copy(True, []))
        return self.transfers.take(room.nbytes, self.device).copy_(room)


@dataclass(frozen=True, eq=False)
class Evict:
    """Starts to copy a tensor's storage into a room. The tensor stays until somebody has waited for that."""

    transfers: Transfers
    stay: Stay
    __name__ = "evict"

    def __call__(self, room: Tensor, tensor: Tensor, *after: Token) -> Token:
        storage, target, start = tensor.untyped_storage(), self.stay.of(room), 0
        form = Form.of(tensor)
        if form.bytes > len(target):
            # A gradient that comes in may be a part of something larger.
            form, start = replace(form, offset=0), form.offset * form.dtype.itemsize
        if form.bytes > len(target):
            raise RuntimeError(f"an operation returned {form.bytes} bytes instead of the predicted {len(target)}: do not use host_memory with this model")
        self.stay.form = form
        source = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        source.set_(storage, start, (min(len(target), storage.nbytes() - start),))  # type: ignore[call-overload]
        return self.transfers.lanes(tensor.device).copy(True, [(target[: source.numel()], source)], after)


@dataclass(frozen=True, eq=False)
class Fetch:
    """Makes a tensor to which its storage is being copied out of a room."""

    transfers: Transfers
    stay: Stay
    __name__ = "fetch"

    def __call__(self, room: Tensor, *after: Token) -> tuple[Tensor, Token]:
        form = self.stay.form
        storage = torch.empty(self.stay.count, dtype=torch.uint8, device=form.device)
        token = self.transfers.lanes(form.device).copy(False, [(storage, self.stay.of(room))], after)
        return form.lie_in(storage), token


@dataclass(frozen=True, eq=False)
class Wait:
    """Waits for copies. What is held until then may be let go of."""

    transfers: Transfers
    device: torch.device
    __name__ = "wait"

    def __call__(self, tokens: list[Token], held: list[Tensor]) -> None:
        lanes = self.transfers.lanes(self.device)
        for token in tokens:
            lanes.wait(token)


@dataclass(frozen=True, eq=False)
class Finish:
    """Waits until a copy has ended, so that the host may read what it made."""

    transfers: Transfers
    device: torch.device
    __name__ = "finish"

    def __call__(self, token: Token) -> None:
        self.transfers.lanes(self.device).finish(token)


def lanes_of(device: torch.device) -> Lanes:
    return CudaLanes(device) if device.type == "cuda" else ThreadLanes()
