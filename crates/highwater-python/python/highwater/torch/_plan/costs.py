"""What kernels take: seconds and scratch bytes, measured once for each signature."""

from __future__ import annotations

import json
import operator
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from highwater import Link

from .._device.allocated import Within
from .._device.device import Device, device_of_node
from .._device.in_place import named
from .._device.link import measure_link
from .._device.timing import watched
from .._graph.joint import Kernel
from .._graph.nested import fingerprint, graph_at, is_nested, is_pure, is_random
from .._graph.nodes import COST, is_node, tensors
from .._optim.updates import Updates
from .nested_costs import most_within, prepared, ways
from .roofline import guess, moved

# The number of the way in which kernels are measured: what was kept by another one is not read.
MEASURED = 5
# A kernel is run so often, or for so many seconds, and more where runs do not agree.
RUNS, SECONDS = 5, 0.2


# What whole numbers switch on and off.
SWITCHED = {torch.ops.aten._fused_moving_avg_obs_fq_helper.default, torch.ops.aten._fused_moving_avg_obs_fq_helper_functional.default}

# What takes more where fewer elements are equal.
BY_EQUALS = set(named("isin.Tensor_Tensor isin.Tensor_Scalar isin.Scalar_Tensor"))


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
        self.known, self.busy = self._kept()
        """What is known by signature; and the signatures of what a busy machine measured."""
        self._again = set(self.busy)
        self._measured = 0
        self._alike: dict[str, dict[str, tuple[Any, ...]]] = {}
        """Of a user's operation, what it takes by signature, for sizes and layouts that are the same."""
        self._used: dict[torch.device, Device] = {}

    def _kept(self) -> tuple[dict[str, tuple[Any, ...]], set[str]]:
        """What was measured in other runs, and what of it a busy machine measured."""
        try:
            kept = json.loads(self.path.read_text())
            return {key: tuple(value) for key, value in kept["known"].items()}, set(kept["busy"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, set()

    def of(self, kernel: Kernel) -> tuple[float, int]:
        """Seconds and scratch bytes of a kernel."""
        seconds, scratch, *_ = kernel.node.meta.get(COST) or self._known(kernel)
        return seconds, scratch

    def update(self, updates: Updates, parameter: torch.Tensor) -> float:
        """Seconds of an optimizer's update of a parameter."""
        return updates.seconds(parameter, self.known_or)

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
        # Guesses are not kept, because there may be more memory another time. A PyTorch operation that results in
        # nothing checks what it reads, and would stop the device at made-up numbers.
        if signature not in self.known and (is_check(kernel.node) or 2 * moved(kernel.node) > device.room()):
            return guess(kernel.node, device)
        alike = self._alike.setdefault(describe(kernel.node, with_numbers=False), {}) if OWN in signature else {}
        if signature not in alike and len(alike) >= ALIKE and len({figures[1:] for figures in alike.values()}) == 1:
            return next(iter(alike.values()))
        try:
            found = alike[signature] = self.known_or(signature, lambda: self._measure(kernel.node, device))
            return found
        except torch.OutOfMemoryError:
            device.tidy()
            return guess(kernel.node, device)

    def known_or(self, signature: str, measure: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What was measured before by that name, or is now."""
        if signature not in self.known:
            self.known[signature], settled = watched(measure)
            self._measured += 1
            if not settled:
                self.busy.add(signature)
        elif signature in self._again:
            self._correct(signature, measure)
        return self.known[signature]

    def _correct(self, signature: str, measure: Callable[[], tuple[Any, ...]]) -> None:
        """Measures again what a busy machine measured before."""
        self._again.discard(signature)
        try:
            found, settled = watched(measure)
        except (torch.OutOfMemoryError, Within):
            return
        if not settled:
            self._again.clear()  # It is still busy.
            return
        self.known[signature] = with_seconds(self.known[signature], found)
        self.busy.discard(signature)
        self._measured += 1

    def save(self) -> None:
        """Keeps what was measured; where the cache cannot be written, for this process alone."""
        for device in self._used.values():
            device.tidy()
        self._used.clear()
        if not self._measured:
            return
        self._merge(*self._kept())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as file:
                known = {signature: figures for signature, figures in self.known.items() if OWN not in signature}
                json.dump({"known": known, "busy": sorted(self.busy & known.keys())}, file)
            os.replace(file.name, self.path)
            self._measured = 0
        except OSError:
            pass

    def _merge(self, kept: dict[str, tuple[Any, ...]], busy: set[str]) -> None:
        """Takes over measurements of other processes. Kept bytes never change, so that floors stay where they
        are. Seconds that a busy machine measured are replaced."""
        for signature, figures in kept.items():
            if signature in busy and signature in self.known and signature not in self.busy:
                figures = with_seconds(figures, self.known[signature])
            elif signature in busy:
                self.busy.add(signature)
            else:
                self.busy.discard(signature)
            self.known[signature] = figures

    def _measure(self, node: fx.Node, device: Device) -> tuple[float, int, int]:
        self._used[device.device] = device
        try:
            return self._measure_nested(node, device) if is_nested(node) else measure(node, device)
        except (torch.OutOfMemoryError, Within):
            raise
        except Exception:  # The kernel refuses made-up inputs, so its scratch memory is unknown: most kernels copy their inputs at most.
            seconds, _, results = guess(node, device)
            return seconds, most_within(node, lambda inner: self._known(Kernel(inner, [], []))[1]) if is_nested(node) else moved(node), results

    def _measure_nested(self, node: fx.Node, device: Device) -> tuple[float, int, int]:
        """What a call of graphs takes at most, whatever is in its tensors."""

        def cost(inner: fx.Node) -> tuple[float, int, int]:
            seconds, scratch, results = self._known(Kernel(inner, [], []))
            return seconds, scratch, results

        found = {source: graph_at(source) for source in node.all_input_nodes}
        graphs = {source: prepared(graph, cost, lambda leaf: made_up(leaf, 0)) for source, graph in found.items() if graph}
        seconds, scratch, results = zip(*(measure(node, device, way, graphs) for way in ways(node)))
        return max(seconds), max(scratch), max(results)


def is_check(node: fx.Node) -> bool:
    """Whether a call returns no tensor and writes to none."""
    schema = getattr(node.target, "_schema", None)
    return not tensors(node) and is_pure(node) and not (schema and schema.is_mutable)


def with_seconds(figures: tuple[Any, ...], found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Figures with the seconds, or rates, of others. Their bytes stay."""
    return tuple(new if isinstance(new, float) else old for old, new in zip(figures, found, strict=True))


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "highwater"


# Namespaces of operations that change with PyTorch's release alone.
PYTORCHS = ("aten", "prims", "highwater", "quantized", "quantized_decomposed", "mkldnn", "mkl", "onednn", "_c10d_functional", "c10d", "inductor", "rngprims")
OWN = "own:"
# Where so many numbers made no difference to the bytes that a user's operation takes (a count of steps, a rate), others make none.
ALIKE = 8


def describe(node: fx.Node, with_numbers: bool = True) -> str:
    """What a kernel's cost depends on: the operation, sizes, layouts, dtypes and devices, and numbers that it is told."""

    def show(value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return str(value) if with_numbers or isinstance(value, bool) or not isinstance(value, (int, float)) else "number"
        if graph := graph_at(value):
            return fingerprint(graph, describe)
        def one(leaf: Any) -> str:
            if not isinstance(leaf, torch.Tensor):
                return str(leaf)
            lazily = f"{leaf.is_conj()}:{leaf.is_neg()}"
            return f"{leaf.device.type}:{leaf.dtype}:{tuple(leaf.shape)}:{tuple(leaf.stride())}:{lazily}"
        return pytree.tree_map(one, value.meta.get("val"))

    # What was measured of a user's operation is not kept: its code may be another in the next run, under the same name.
    namespace = getattr(node.target, "namespace", PYTORCHS[0])
    own = "" if namespace in PYTORCHS else f"{OWN}{id(node.target)} "
    return f"{own}{node.target}{pytree.tree_map(show, (node.args, dict(node.kwargs)), is_leaf=is_node)}"


Graphs = Mapping[fx.Node, fx.GraphModule]


def measure(node: fx.Node, device: Device, target: Callable[..., Any] | None = None, graphs: Graphs = MappingProxyType({})) -> tuple[float, int, int]:
    """Runs a kernel on made-up tensors: the least seconds of some runs, the most bytes that it takes for a while
    beside its results, and those of the results. `target`: what to call for it; `graphs`: the graphs that it calls."""
    counts = {int(size) for other in node.all_input_nodes for leaf in tensors(other) for size in leaf.shape}
    whole = any(map(is_whole, node.all_input_nodes))
    found = measured(node, device, 0, target, graphs)
    # What masks leave out, or bags have nothing of, takes nothing. A place 1 has to be there, where places are.
    if node.target in BY_EQUALS:
        _, scratch, results = measured(node, device, None, target, graphs, timed=False)
        found = found[0], max(found[1], scratch), max(found[2], results)
    if whole and device.device.type == "cpu" and (not counts & {0, 1} or node.target in SWITCHED):
        try:
            _, scratch, results = measured(node, device, 1, target, graphs, timed=False)
        except Exception:  # It is no place, but an amount.
            return found
        return found[0], max(found[1], scratch), max(found[2], results)
    return found


def is_whole(node: fx.Node) -> bool:
    """Whether a result is of whole numbers, or truths."""
    return any(not leaf.dtype.is_floating_point and not leaf.dtype.is_complex for leaf in tensors(node))


def fill_by_chance(stored: torch.Tensor) -> None:
    """Fills a tensor with random numbers from 0.1 to 1."""
    if stored.itemsize > 1:
        stored.uniform_(0.1, 1.0)
    elif stored.dtype == torch.float4_e2m1fn_x2:
        stored.view(torch.uint8).fill_(0x22)  # two ones
    else:  # PyTorch draws none in 8 bits.
        stored.copy_(torch.empty(stored.shape, device=stored.device).uniform_(0.1, 1.0))


def fill_with_others(stored: torch.Tensor) -> None:
    """Fills a vector with numbers that differ, as far as its dtype has so many."""
    count = torch.arange(stored.numel(), device=stored.device)
    if stored.dtype in (torch.float16, torch.bfloat16):
        stored.view(torch.int16).copy_(count % 0x7C00)
    else:
        stored.copy_(count)


def made_up(leaf: Any, number: int | None) -> Any:
    """A tensor like one that was traced, of whole numbers that are all of one number, or of numbers that differ."""
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return leaf.node.hint if leaf.node.has_hint() else leaf.node.pytype(1)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    sizes, strides = [int(size) for size in leaf.shape], [int(stride) for stride in leaf.stride()]
    # What is expanded stands for many elements, and cannot be filled in itself.
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if 0 not in sizes else 0
    stored = torch.empty(count, dtype=leaf.dtype, device=leaf.device)
    if number is None:
        fill_with_others(stored)
    elif leaf.dtype.is_floating_point or leaf.dtype.is_complex:
        fill_by_chance(torch.view_as_real(stored) if leaf.dtype.is_complex else stored)
    else:
        stored.fill_(number)
    made = stored.as_strided(sizes, strides)
    made = made.conj() if leaf.is_conj() else made
    return torch._neg_view(made) if leaf.is_neg() else made


def measured(node: fx.Node, device: Device, number: int | None, target: Callable[..., Any] | None, graphs: Graphs, timed: bool = True) -> tuple[float, int, int]:
    """The same for tensors of whole numbers that are all of one number, or of numbers that differ."""
    made: dict[fx.Node, Any] = {}

    def argument(value: Any, number: int | None) -> Any:
        if not is_node(value) or value in graphs:
            return graphs[value] if is_node(value) else value
        source = value.args[0] if value.target is operator.getitem else None
        if is_node(source) and not is_nested(source) and (is_random(source) or is_pure(source) and is_whole(value)):
            # Only the kernel knows: what a backward of attention is told of random numbers may lie on another
            # device than its description says, and is read there; a bag may have fewer places.
            if source not in made:
                made[source] = called(source, 0, source.target)()
            item = made[source][value.args[1]]
            return torch.full_like(item, number) if number and not is_random(source) else item
        return pytree.tree_map(lambda leaf: made_up(leaf, number), value.meta["val"])

    def called(node: fx.Node, number: int | None, target: Any) -> Callable[[], Any]:
        args, kwargs = pytree.tree_map(lambda value: argument(value, number), (node.args, dict(node.kwargs)), is_leaf=is_node)
        return lambda: target(*args, **kwargs)

    with _disable_current_modes(), torch.no_grad(), Device(torch.device("cpu")).same_numbers_after(), device.same_numbers_after():
        run = called(node, number, target or node.target)
        seconds = device.seconds(run, RUNS, SECONDS) if timed else 0.0
        # Its results are held until they are counted.
        _, most, now = device.allocated(run)
    now = max(now, 0)
    return max(seconds, 1e-7), most - now, now
