"""What kernels take: seconds and scratch bytes, measured once for each signature."""

from __future__ import annotations

import json
import operator
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from highwater import Link

from ._allocated import Within
from ._device import Device, device_of_node
from ._graph import COST, Kernel, is_node, is_pure, is_random, tensors
from ._host import measure_link
from ._roofline import guess, moved

if TYPE_CHECKING:
    from ._updates import Updates

# The number of the way in which kernels are measured: what was kept by another one is not read.
MEASURED = 3
# A kernel is run so often at most, or for so many seconds.
RUNS, SECONDS = 5, 0.2


class Prices(Protocol):
    """Who knows what kernels take."""

    def of(self, kernel: Kernel) -> tuple[float, int]:
        """Seconds and scratch bytes of a kernel."""

    def held(self, kernel: Kernel) -> int:
        """Bytes that a kernel's results hold."""

    def update(self, updates: Updates, parameter: torch.Tensor) -> float:
        """Seconds of an optimizer's update of a parameter."""

    def link(self, device: Device, bytes: int) -> Link:
        """The way to so many bytes of host memory."""

    def save(self) -> None:
        """Keeps what was learnt."""


class Costs:
    """Seconds and scratch bytes of kernels by signature, kept in the user's cache from run to run."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / f"kernels-{MEASURED}-{torch.__version__}-{platform.machine()}-{torch.get_num_threads()}.json"
        self.known = self._kept()
        self._measured = 0
        self._used: dict[torch.device, Device] = {}

    def _kept(self) -> dict[str, tuple[Any, ...]]:
        """What was measured in other runs."""
        try:
            return {key: tuple(value) for key, value in json.loads(self.path.read_text()).items()}
        except (OSError, ValueError):
            return {}

    def of(self, kernel: Kernel) -> tuple[float, int]:
        """Seconds and scratch bytes of a kernel."""
        seconds, scratch, *_ = kernel.node.meta.get(COST) or self._known(kernel)
        return seconds, scratch

    def update(self, updates: Updates, parameter: torch.Tensor) -> float:
        """Seconds of an optimizer's update of a parameter."""
        return updates.seconds(parameter, self)

    def link(self, device: Device, bytes: int) -> Link:
        """The way to so many bytes of host memory."""
        name = f"copies {device.device.type} {device.name}"
        read, write, reading, writing = self.known_or(name, lambda: measure_link(device.device))
        # Kernels miss the threads that copy.
        lost = 1 / read if device.device.type == "cpu" else 0.0
        return Link(bytes, read, write, read_while_writing=reading, write_while_reading=writing, lost=lost)

    def held(self, kernel: Kernel) -> int:
        """Bytes that a kernel's results hold. They may be more than their sizes say: `mse_loss` answers a
        number in a storage of many."""
        held: int = 0 if COST in kernel.node.meta else self._known(kernel)[2]
        return held

    def _known(self, kernel: Kernel) -> tuple[Any, ...]:
        device = device_of_node(kernel.node)
        signature = f"{device.name} {describe(kernel.node)}".lstrip()
        # What is guessed is not kept: there may be more room another time. An operation of PyTorch's that results in
        # nothing checks what it reads, and would stop the device at made-up numbers.
        if signature not in self.known and (not tensors(kernel.node) and is_pure(kernel.node) or 2 * moved(kernel.node) > device.room()):
            return guess(kernel.node, device)
        try:
            return self.known_or(signature, lambda: self._measure(kernel.node, device))
        except torch.OutOfMemoryError:
            device.tidy()
            return guess(kernel.node, device)

    def known_or(self, signature: str, measure: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What was measured before by that name, or is now."""
        if signature not in self.known:
            self.known[signature] = measure()
            self._measured += 1
        return self.known[signature]

    def save(self) -> None:
        """Keeps what was measured; where the cache cannot be written, for this process alone."""
        for device in self._used.values():
            device.tidy()
        self._used.clear()
        if not self._measured:
            return
        # Other processes may have measured as well: what is kept is kept, so that floors stay where they are.
        self.known |= self._kept()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as file:
                json.dump(self.known, file)
            os.replace(file.name, self.path)
            self._measured = 0
        except OSError:
            pass

    def _measure(self, node: fx.Node, device: Device) -> tuple[float, int, int]:
        self._used[device.device] = device
        try:
            return measure(node, device)
        except (torch.OutOfMemoryError, Within):
            raise
        except Exception:  # What a kernel thinks of made-up inputs is its own affair.
            return guess(node, device)


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "highwater"


def describe(node: fx.Node) -> str:
    """What a kernel's cost depends on: the operation, sizes, layouts, dtypes and devices."""

    def show(value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return str(value)
        def one(leaf: Any) -> str:
            if not isinstance(leaf, torch.Tensor):
                return str(leaf)
            lazily = f"{leaf.is_conj()}:{leaf.is_neg()}"
            return f"{leaf.device.type}:{leaf.dtype}:{tuple(leaf.shape)}:{tuple(leaf.stride())}:{lazily}"
        return pytree.tree_map(one, value.meta.get("val"))

    return f"{node.target}{pytree.tree_map(show, (node.args, dict(node.kwargs)), is_leaf=is_node)}"


def measure(node: fx.Node, device: Device) -> tuple[float, int, int]:
    """Runs a kernel on made-up tensors: the least seconds of some runs, the most bytes that it takes for a while
    beside its results, and those of the results."""
    counts = {int(size) for other in node.all_input_nodes for leaf in tensors(other) for size in leaf.shape}
    whole = any(map(is_whole, node.all_input_nodes))
    found = measured(node, device, 0)
    # What masks leave out, or bags have nothing of, takes nothing. A place 1 has to be there, where places are.
    if whole and device.device.type == "cpu" and not counts & {0, 1}:
        try:
            _, scratch, results = measured(node, device, 1, timed=False)
        except Exception:  # It is no place, but an amount.
            return found
        return found[0], max(found[1], scratch), max(found[2], results)
    return found


def is_whole(node: fx.Node) -> bool:
    """Whether a result is of whole numbers, or truths."""
    return any(not leaf.dtype.is_floating_point and not leaf.dtype.is_complex for leaf in tensors(node))


def measured(node: fx.Node, device: Device, number: int, timed: bool = True) -> tuple[float, int, int]:
    """The same for tensors of whole numbers that are all of one number."""

    def make(leaf: Any, number: int) -> Any:
        if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return leaf.node.hint
        if not isinstance(leaf, torch.Tensor):
            return leaf
        sizes, strides = [int(size) for size in leaf.shape], [int(stride) for stride in leaf.stride()]
        # What is expanded stands for many elements, and cannot be filled in itself.
        count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if 0 not in sizes else 0
        stored = torch.empty(count, dtype=leaf.dtype, device=leaf.device)
        stored = stored.uniform_(0.1, 1.0) if leaf.dtype.is_floating_point else stored.fill_(number)
        made = stored.as_strided(sizes, strides)
        made = made.conj() if leaf.is_conj() else made
        return torch._neg_view(made) if leaf.is_neg() else made

    made: dict[fx.Node, Any] = {}

    def argument(value: Any, number: int) -> Any:
        if not is_node(value):
            return value
        source = value.args[0] if value.target is operator.getitem else None
        if is_node(source) and (is_random(source) or is_pure(source) and is_whole(value)):
            # Only the kernel knows: what a backward of attention is told of random numbers may lie on another
            # device than its description says, and is read there; a bag may have fewer places.
            if source not in made:
                made[source] = called(source, 0)()
            item = made[source][value.args[1]]
            return torch.full_like(item, number) if number and not is_random(source) else item
        return pytree.tree_map(lambda leaf: make(leaf, number), value.meta["val"])

    def called(node: fx.Node, number: int) -> Callable[[], Any]:
        args, kwargs = pytree.tree_map(lambda value: argument(value, number), (node.args, dict(node.kwargs)), is_leaf=is_node)
        return lambda: node.target(*args, **kwargs)  # type: ignore[operator]

    with _disable_current_modes(), torch.no_grad(), Device(torch.device("cpu")).same_numbers_after(), device.same_numbers_after():
        run = called(node, number)
        seconds = device.seconds(run, RUNS, SECONDS) if timed else 0.0
        # Its results are held until they are counted.
        _, most, now = device.allocated(run)
    now = max(now, 0)
    return max(seconds, 1e-7), most - now, now
