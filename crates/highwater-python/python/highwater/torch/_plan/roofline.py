"""What kernels take on a device that is not at hand: the slower of its arithmetic and its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from highwater import Link
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from .._device.device import Device
from .._graph.joint import Kernel
from .._graph.nested import graphs_of
from .._graph.nodes import COST, is_node, tensors
from .._messages.arguments import is_number
from .._optim.updates import Updates
from .nested_costs import most_within, rounds


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device does in a second, as its data sheet has it, and which share of that programs reach."""

    flops: float
    """Multiplications and additions of matrix products in 32 bits."""
    half_flops: float
    """Those of 16 bits, without sparsity."""
    bandwidth: float
    """Bytes that its memory reads or writes."""
    host: float = 25e9
    """Bytes that go to the host's memory or come from it, each way at once."""
    share: float = 0.6
    """What of all that is reached."""
    launch: float = 5e-6
    """Seconds that a kernel takes at least."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not is_number(value):
                raise TypeError(f"Rates: {name}={value!r} must be a number")
            if not (0 < value < math.inf or name == "launch" and value == 0):
                raise ValueError(f"Rates: {name}={value!r} must be above 0 and finite")
        if self.share > 1:
            raise ValueError(f"Rates: share={self.share!r} must be at most 1")


DEVICES = {
    "H200": Rates(67e12, 989e12, 4.8e12, 55e9),
    "H100": Rates(67e12, 989e12, 3.35e12, 55e9),
    "A100": Rates(19.5e12, 312e12, 2.0e12),
    "L4": Rates(30.3e12, 121e12, 0.3e12),
    "T4": Rates(8.1e12, 65e12, 0.32e12, 12e9),
    "RTX 4090": Rates(82.6e12, 165e12, 1.0e12),
    "RTX 3090": Rates(35.6e12, 71e12, 0.936e12),
    "cpu": Rates(0.5e12, 1e12, 0.05e12, 10e9),
}
"""Some, by name. The last is a desk's."""


class Roofline:
    """Seconds of kernels by rates; no scratch bytes, as only kernels know them."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates

    def held(self, kernel: Kernel) -> int:
        """Nothing runs here: what their sizes say, or more."""
        return 0

    def of(self, kernel: Kernel) -> tuple[float, int]:
        said: tuple[float, int] | None = kernel.node.meta.get(COST)
        return said or (self.seconds(kernel.node), most_within(kernel.node, lambda inner: 0))

    def seconds(self, node: fx.Node) -> float:
        """The slower of a kernel's arithmetic and its memory."""
        rates = self.rates
        if graphs := graphs_of(node):
            return rounds(node) * max(sum(self.seconds(inner) for inner in graph.graph.nodes if "val" in inner.meta) for graph in graphs)
        half = any(leaf.dtype.itemsize == 2 for leaf in tensors(node))
        work = operations(node) / (rates.half_flops if half else rates.flops)
        return max(work, moved(node) / rates.bandwidth) / rates.share + rates.launch

    def update(self, updates: Updates, parameter: torch.Tensor) -> float:
        """Seconds of an update: all that is known of the parameter is read and written."""
        moved = 3 * parameter.nbytes + 2 * updates.needs(parameter).state
        return moved / self.rates.bandwidth / self.rates.share + self.rates.launch

    def link(self, device: Device, bytes: int) -> Link:
        """The way to host memory."""
        return Link(bytes, self.rates.host, self.rates.host)

    def save(self) -> None: ...


def moved(node: fx.Node) -> int:
    """Bytes that a kernel reads and writes."""
    return sum(int(leaf.numel()) * leaf.dtype.itemsize for other in (node, *node.all_input_nodes) for leaf in tensors(other))


def guess(node: fx.Node, device: Device) -> tuple[float, int, int]:
    """What a kernel takes that cannot be measured: seconds, and no bytes beside its results."""
    if not device.name:
        return moved(node) / 2e9 + 1e-6, 0, 0
    rates = next((rates for name, rates in DEVICES.items() if name in device.name), DEVICES["A100"])
    return Roofline(rates).seconds(node), 0, 0


def operations(node: fx.Node) -> int:
    """Multiplications and additions of a matrix product, a convolution or attention; of others none."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in flop_registry:
        return 0

    def value(leaf: Any) -> Any:
        return leaf.meta["val"] if is_node(leaf) else leaf

    args, kwargs = pytree.tree_map(value, (node.args, dict(node.kwargs)), is_leaf=is_node)
    return int(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))
