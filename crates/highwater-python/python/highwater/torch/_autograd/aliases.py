"""Inputs of a graph that share memory, of which one is written in place.

AOTAutograd gives what is a view of such an input back at another offset, refuses some that eager PyTorch takes,
and compiles a graph for the memory that inputs shared when it was traced, whatever they share later. Here inputs
that share memory with one that is written go into the graph as one tensor, of which they are views inside: for
each way of sharing that comes, another graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.collect_metadata_analysis import run_functionalized_fw_and_collect_metadata
from torch._functorch._aot_autograd.descriptors import PlainAOTInput
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .._dynamo.effects import is_write
from .._dynamo.refusals import refuse_functions
from .._dynamo.threads import tracing
from .._messages.locations import CannotPlan, input_name, line_of, shortened

PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class View:
    """An input as a part of what it shares with others."""

    position: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In elements, from where the memory begins: AOTAutograd knows an `as_strided` only as the first of views."""

    @property
    def end(self) -> int:
        return self.offset + extent(self.size, self.stride)


Sharing = tuple[tuple[View, ...], ...]
"""Inputs that share memory, in groups."""


def apart(compile: Compile, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a graph so that it is right for inputs that share memory, too."""
    compiled: dict[Sharing, Callable[..., Any]] = {}

    refuse_others(module, inputs)
    refuse_folded(module, inputs)

    def compiled_for(inputs: Sequence[Any], shared: Sharing) -> Callable[..., Any]:
        if shared not in compiled:
            with tracing:
                add(inputs, shared)
        return compiled[shared]

    def add(inputs: Sequence[Any], shared: Sharing) -> None:
        if shared not in compiled:  # by another thread
            merged = to_merge(module, inputs, shared) if shared else ()
            run = compile(merged_graph(module, merged), known(merge(inputs, merged), inputs)) if merged else compile(module, inputs)
            compiled[shared] = (lambda *values: run(*merge(values, merged))) if merged else run

    run = compiled_for(inputs, sharing(inputs))
    if not may_write():
        return run
    return lambda *values: compiled_for(values, sharing(values))(*values)


def may_write() -> bool:
    """Whether what has just been compiled writes to its inputs, as far as that is known."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    return metadata is None or any(info.mutates_data for info in metadata.input_info)


def sharing(inputs: Sequence[Any]) -> Sharing:
    """Which inputs share memory, and how."""
    groups = defaultdict[int, list[int]](list)
    for i, value in enumerate(inputs):
        if is_plain(value):
            groups[value.untyped_storage()._cdata].append(i)
    return tuple(tuple(view(i, inputs[i]) for i in group) for group in groups.values() if len(group) > 1)


def is_plain(value: Any) -> bool:
    return type(value) in PLAIN and value.layout is torch.strided


def view(position: int, value: Tensor) -> View:
    return View(position, value.dtype, tuple(value.shape), tuple(value.stride()), int(value.storage_offset()))


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements lie between the first and the last one, both counted."""
    return 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride))


def overlap(a: View, b: View) -> bool:
    """Whether two inputs may have elements in common: those of columns side by side may, too."""
    return a.offset < b.end and b.offset < a.end or a.dtype != b.dtype


def refuse_others(module: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Refuses inputs that no plan is for."""
    places = module.graph.find_nodes(op="placeholder")
    refuse_functions(inputs[: len(places)], lambda i: input_name(places[i]))
    for place, value in zip(places, inputs):
        if isinstance(value, Tensor) and value.is_nested:
            raise CannotPlan(
                f"{input_name(place)} is a nested tensor, whose sizes are unknown to a plan: pass its values() and offsets(), and build it in the "
                "model with torch.nested.nested_tensor_from_jagged(values, offsets)"
            )
        if isinstance(value, Tensor) and value.device.type == "meta" and not isinstance(value, FakeTensor):
            raise CannotPlan(f"{input_name(place)} is on the device meta, which holds no numbers: load the weights first. plan() needs none of them")
        if isinstance(value, (DTensor, DeviceMesh)):
            raise CannotPlan(f"the model computes with a {type(value).__name__}: tensors split over several processes cannot be planned. Use DistributedDataParallel")
        if not isinstance(value, (Tensor, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool, type(None))):
            raise CannotPlan(f"{input_name(place)} is a {type(value).__name__}, which the model computes with: only tensors and numbers can be planned")


def is_folded(view: View) -> bool:
    """Whether several elements of an input are one in memory."""
    reach = 1
    for step, length in sorted((step, length) for step, length in zip(view.stride, view.size) if length != 1):
        if step < reach:
            return 0 not in view.size
        reach += (length - 1) * step
    return False


def refuse_folded(module: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Refuses writes to a tensor whose elements are several times in it: what AOTAutograd traces writes to one of them."""
    folded = {i for i, value in enumerate(inputs) if is_plain(value) and is_folded(view(i, value))}
    for i in sorted(folded & written(module, inputs) if folded else ()):
        place = module.graph.find_nodes(op="placeholder")[i]
        raise CannotPlan(
            f"{input_name(place)} is written in place{write_line(module, place)}, and several of its elements share memory (it comes from "
            "expand or as_strided), which a plan cannot preserve. Pass a copy: clone()"
        )


def to_merge(module: fx.GraphModule, inputs: Sequence[Any], shared: Sharing) -> Sharing:
    """Those groups that go into the graph as one tensor. Raises `CannotPlan` where that cannot be, and is needed."""
    writes = written(module, inputs)
    merged = []
    for group in shared:
        ours = [view for view in group if view.position in writes]
        if ours and is_one_kind([inputs[view.position] for view in group]):
            merged.append(group)
            continue
        for one in ours:
            other = next((view for view in group if view is not one and overlap(view, one)), None)
            if other:
                raise CannotPlan(refusal(module, one.position, other.position))
    return tuple(merged)


def is_one_kind(values: Sequence[Tensor]) -> bool:
    """Whether tensors that share memory can be views of one."""
    plain = not any(value.requires_grad or value.is_conj() or value.is_neg() for value in values)
    return plain and len({value.dtype for value in values}) == 1


def refusal(module: fx.GraphModule, written: int, other: int) -> str:
    places = module.graph.find_nodes(op="placeholder")
    return (
        f"{input_name(places[written])} is written in place{write_line(module, places[written])}, and shares memory with {input_name(places[other])}: a plan cannot "
        "preserve that if one of them requires a gradient or is a view with another dtype. Pass a copy of one of them: clone()"
    )


def write_line(module: fx.GraphModule, place: fx.Node) -> str:
    """Where an input is written, in words, if that is known."""
    seen = {place}
    for node in module.graph.nodes:
        if node.all_input_nodes and node.all_input_nodes[0] in seen:
            if is_write(node):
                return f" at {shortened(line_of(node))}" if line_of(node) else ""
            seen.add(node)
    return ""


def written(module: fx.GraphModule, inputs: Sequence[Any]) -> set[int]:
    """The positions of inputs that a graph writes to."""
    with analysing(inputs) as mode:
        fakes = [mode.from_tensor(value, static_shapes=True) if isinstance(value, Tensor) and not isinstance(value, FakeTensor) else value for value in inputs]
        analyse = run_functionalized_fw_and_collect_metadata(
            lambda *values: module(*values),
            flat_args_descs=[PlainAOTInput(i) for i in range(len(fakes))],
            keep_input_mutations=False,
        )
        return {i for i, info in enumerate(analyse(*fakes).input_info) if info.mutates_data}


@contextmanager
def analysing(inputs: Sequence[Any]) -> Iterator[FakeTensorMode]:
    context = TracingContext.try_get()
    given = next((value.fake_mode for value in inputs if isinstance(value, FakeTensor)), None)
    mode = given or (context.fake_mode if context else None) or FakeTensorMode(allow_non_fake_inputs=True)
    with mode, enable_python_dispatcher():
        yield mode


def merge(inputs: Sequence[Any], merged: Sharing) -> list[Any]:
    """Inputs as the graph takes them that has views inside: of each group the first is all of it, and others are nothing."""
    values = list(inputs)
    for group in merged:
        source = inputs[group[0].position].detach()
        for view in group:
            values[view.position] = source.new_empty(0)
        values[group[0].position] = source.as_strided((max(view.end for view in group),), (1,), 0)
    return values


def known(values: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Inputs for a compilation, of which Dynamo does not know all: those are of the size that they are."""
    context = TracingContext.try_get()
    mode = context.fake_mode if context else None
    if mode is None:
        return list(values)
    return [value if value is given or isinstance(value, FakeTensor) else mode.from_tensor(value, static_shapes=True) for value, given in zip(values, inputs)]


def merged_graph(module: fx.GraphModule, merged: Sharing) -> fx.GraphModule:
    """A graph that takes inputs so."""
    graph = fx.Graph()
    names: dict[fx.Node, Any] = {}
    places = module.graph.find_nodes(op="placeholder")
    of = {places[view.position]: (places[group[0].position], view) for group in merged for view in group}
    body = next((node for node in module.graph.nodes if node.op != "placeholder"), None)
    for node in module.graph.nodes:
        if node is body:
            bases = {place: names[place] for place in places}
            for place, (base, view) in of.items():
                names[place] = graph.call_function(torch.as_strided, (bases[base], view.size, view.stride, view.offset))
        if node.op == "output":
            graph.output(fx.map_arg(node.args[0], names.__getitem__))
        else:
            names[node] = graph.node_copy(node, names.__getitem__)
    return fx.GraphModule(module, graph)
