"""A joint graph of AOTAutograd's as the planner sees it: storages, and the kernels that fill them.

Views share their base's storage and are no work: they are made again beside each use. So a value of the
planner's is a storage, and a node is a call that fills storages of its own.
"""

from __future__ import annotations

import operator
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .._device.device import Device, device_of_graph
from .._device.held import storage_key
from .._device.in_place import FORMS, InPlace, is_alike
from .._messages.locations import CannotPlan, line_of, shortened
from .nested import calls, is_pure, is_random
from .nodes import CELL, COPY, COST, HELD, ONCE, PASSING, WRITES, is_symbolic, is_tangent, item_of, nbytes, remake, storage_of, tensors

aten = torch.ops.aten

# Whose result is a copy of all that their first argument is a view of. (Where a fake tensor's answer is one that
# was remembered, it has only the bytes from its first element to its last.)
COPIES_BASE = (aten.copy, aten.slice_scatter, aten.select_scatter, aten.diagonal_scatter, aten.as_strided_scatter)

Pin = Literal["free", "keep", "recompute", "prefer_keep", "prefer_recompute"]


@dataclass(slots=True)
class Storage:
    """Bytes that one tensor or several views of them have."""

    bytes: int
    first: fx.Node
    """The node whose result they are; of a result of several tensors, the node that takes it out."""
    external: bool
    """Whether somebody else holds them: parameters, inputs, gradients that come in."""
    late: bool = False
    """Whether they come in when the forward is over, and are let go of when they have been read."""
    passing: bool = False
    """Whether others may write to them when the forward is over."""

    @property
    def always(self) -> bool:
        """Whether they are there all the time, whatever is planned."""
        return self.external and not self.late


@dataclass(slots=True)
class Kernel:
    """A call that fills storages, or writes to an input."""

    node: fx.Node
    inputs: list[int]
    outputs: list[int]
    in_place: InPlace | None = None
    once: bool = False
    random: bool = False
    ordered: bool = False
    """Whether it draws random numbers, or may do something else that others notice: these keep their order."""
    cell_bytes: int = 0
    """Of an update, the bytes of a state that it overwrites, which may wait on the host."""
    writes: list[int] = field(default_factory=list)
    """Storages from outside that it writes over: who reads them, reads them before."""
    scratch: int = 0
    """Bytes that it takes for a while, once that is known."""


@dataclass
class JointGraph:
    """A forward and its backward in one graph."""

    module: fx.GraphModule
    forward_outputs: int
    """How many of the graph's outputs are the forward's."""
    storages: list[Storage] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    of: dict[fx.Node, int] = field(default_factory=dict)
    """The storage of a node that results in one tensor."""
    backward: set[fx.Node] = field(default_factory=set)
    """What needs a gradient that comes in."""

    cells: dict[int, Kernel] = field(default_factory=dict)
    """Values of the planner's that are states of an optimizer, with the update that overwrites each."""

    given_is: str = "parameters and inputs"
    """What is there from outside, in words."""

    same: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """Second names of a tensor that was taken out of a result."""

    wishes: dict[int, Pin] = field(default_factory=dict)
    """What is to be kept or recomputed besides what policies in the model say."""

    foretold: InitVar[Device | None] = None
    """The device that it will run on, if not where it was traced."""
    device: Device = field(init=False)
    """Whose memory the plans are for: what is elsewhere takes none of it."""

    def __post_init__(self, foretold: Device | None) -> None:
        self.device = foretold or device_of_graph(self.module.graph)
        self._ids: dict[int, int] = {}
        self._held: set[int] = set()
        self._arrived = False
        (self.output,) = self.module.graph.find_nodes(op="output")
        self._copy_what_is_overwritten()
        # Tokens of what checks its results in a backward are inputs too, and stand where they are first used.
        for node in sorted(self.module.graph.nodes, key=lambda node: node.op != "placeholder"):
            self._read(node)
        self._arrive()
        self._refuse_writes_of_backward()
        self._end_forward_with_copies()

    @property
    def outputs(self) -> list[Any]:
        """What the graph answers: the forward's outputs, then the gradients."""
        return list(self.output.args[0])

    @property
    def given(self) -> set[int]:
        """Storages that somebody holds when all is done: outputs of the forward, and gradients."""
        return self._storages(self.outputs) | self._held

    @property
    def given_by_forward(self) -> set[int]:
        """Those that somebody holds from the forward on."""
        return self._storages(self.outputs[: self.forward_outputs])

    @property
    def given_for_a_while(self) -> set[int]:
        """Of those, what is copied to the forward's inputs when it ends, and let go of then."""
        names = self.output.meta.get("desc") or [None] * len(self.outputs)
        copied = [type(name).__name__ == "InputMutationAOTOutput" for name in names]
        parts = [[node for node, of in zip(self.outputs, copied) if of == wanted] for wanted in (True, False)]
        return (self._storages(parts[0]) - self._storages(parts[1]) - self._held) & self.given_by_forward

    def _storages(self, nodes: list[Any]) -> set[int]:
        return {self.of[node] for node in nodes if isinstance(node, fx.Node) and node in self.of}

    def size_of(self, value: int) -> int:
        """The bytes of a value of the planner's."""
        return self.cells[value].cell_bytes if value in self.cells else self.storages[value].bytes

    @property
    def late_beside_loss(self) -> set[int]:
        """Gradients that come in for larger tensors, where there is a loss too."""
        late = {i: storage.first.meta["val"].dim() for i, storage in enumerate(self.storages) if storage.late}
        return {i for i, dims in late.items() if dims} if 0 in late.values() else set()

    def reads(self, node: fx.Node) -> set[int]:
        """The storages that who reads a node's result reads."""
        return {self._ids[storage_key(tensor)] for tensor in tensors(node)}

    def _read(self, node: fx.Node) -> None:
        if node.op == "output":
            return
        if node.op in ("placeholder", "get_attr"):
            if is_tangent(node):
                self.backward.add(node)
            for tensor in tensors(node):
                self.of[node] = self._storage(tensor, node, external=True)
                self.storages[self.of[node]].late = is_tangent(node)
                self.storages[self.of[node]].passing |= PASSING in node.meta
            return
        if WRITES in node.meta or any(source in self.backward for source in node.all_input_nodes):
            self.backward.add(node)
            self._arrive()
        if node.target is operator.getitem:
            self._read_item(node)
            return
        found = tensors(node)
        fresh = [self._storage(tensor, node, external=False) for tensor in found if storage_key(tensor) not in self._ids]
        if len(found) == 1 and isinstance(node.meta["val"], torch.Tensor):
            self.of[node] = self._ids[storage_key(found[0])]
        if fresh or node.target is COPY or not (found or is_symbolic(node)):
            inputs = set().union(*(self.reads(source) for source in node.all_input_nodes))
            kernel = Kernel(node, sorted(inputs), fresh, random=is_random(node))
            hidden = not is_pure(node)
            kernel.ordered = kernel.random or hidden
            kernel.once = node.target is COPY or not fresh or ONCE in node.meta or hidden or not all(map(self.device.repeats, calls(node)))
            kernel.once |= any(self.storages[storage].passing for storage in inputs)
            kernel.in_place = find_in_place(self, kernel)
            kernel.cell_bytes = node.meta.get(CELL, 0)
            kernel.writes = [self.of[place] for place in node.meta.get(WRITES, [])]
            if node.meta.get(HELD):
                self._held |= {storage for storage in inputs if not self.storages[storage].external}
            self.kernels.append(kernel)

    def _arrive(self) -> None:
        """Gradients come in before the first kernel of the backward: no call, but bytes that are there from then on."""
        late = [i for i, storage in enumerate(self.storages) if storage.late]
        if late and not self._arrived:
            first = self.storages[late[0]].first
            first.meta[COST] = (0.0, 0)
            self.kernels.append(Kernel(first, [], late, once=True))
            # That of a loss is held by the call of `backward` that made it.
            self._held |= {i for i in late if self.storages[i].first.meta["val"].numel() == 1}
        self._arrived = True

    def _read_item(self, node: fx.Node) -> None:
        """An item of a result of several tensors: the first to take a fresh one out is its first name."""
        found = tensors(node)
        if len(found) != 1:
            return
        self.of[node] = self._ids[storage_key(found[0])]
        storage = self.storages[self.of[node]]
        call, path = item_of(node)
        if storage.first is call:
            storage.first = node
        elif item_of(storage.first) == (call, path):
            self.same[node] = storage.first

    def _storage(self, tensor: torch.Tensor, node: fx.Node, *, external: bool) -> int:
        key = storage_key(tensor)
        if key not in self._ids:
            size = self._bytes(tensor, node) if self.device.counts(tensor) else 0
            self._ids[key] = len(self.storages)
            self.storages.append(Storage(size, node, external))
        return self._ids[key]

    def _bytes(self, tensor: torch.Tensor, node: fx.Node) -> int:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target.overloadpacket in COPIES_BASE:
            base = self.of[node.all_input_nodes[0]]
            return self.storages[base].bytes or nbytes(tensor)
        return nbytes(tensor)

    def _copies(self) -> list[fx.Node]:
        nodes = self.module.graph.find_nodes(op="call_function", target=COPY)
        return [node for node in nodes if not node.users]

    def _copy_what_is_overwritten(self) -> None:
        """Inputs that the forward overwrites in the end (running statistics) are read through a copy that
        is made once: what is made again in the backward reads what they were."""
        graph = self.module.graph
        copies = self._copies()
        overwritten = {copy.args[0] for copy in copies}
        descriptions = self.output.meta.get("desc") or []
        names = {desc.mutated_input for desc in descriptions if type(desc).__name__ == "InputMutationAOTOutput"}
        for node in graph.find_nodes(op="placeholder"):
            if node not in overwritten and node.meta.get("desc") not in names:
                continue
            users = [user for user in node.users if user not in copies and user.op != "output"]
            if not users:
                continue
            first = next(other for other in graph.nodes if other in users)
            with graph.inserting_before(first):
                copy = graph.call_function(aten.clone.default, (node,))
            with node.meta["val"].fake_mode:
                copy.meta = {"val": node.meta["val"].clone(), ONCE: True}
            for user in users:
                user.replace_input_with(node, copy)
            views = {copy}
            for other in graph.nodes:
                if storage_of(other) == storage_of(node) and not views.isdisjoint(other.all_input_nodes):
                    remake(other)
                    views.add(other)

    def _refuse_writes_of_backward(self) -> None:
        """What a backward writes to an input of the graph would be written when the forward ends."""
        if not self.backward:
            return
        cut = next((i for i, kernel in enumerate(self.kernels) if kernel.node in self.backward), len(self.kernels))
        late = {storage for kernel in self.kernels[cut:] for storage in kernel.outputs}
        copies = [node for node in self._copies() if node in self.backward or "backward" in str(node.meta.get("partitioner_tag"))]
        # What the forward writes too is an output of it.
        for node in [*copies, *self.outputs[: self.forward_outputs]]:
            if node in copies or self.of.get(node) in late:
                line = next((f" at {shortened(line)}" for of in (node, *node.all_input_nodes[::-1]) if (line := line_of(of))), "")
                raise CannotPlan(
                    f"the backward of a custom function{line} writes to a tensor that the model has or is given. A plan cannot say when: write to it "
                    "in the forward, or in a hook outside the model"
                )

    def _end_forward_with_copies(self) -> None:
        """What the forward writes to its inputs is written when nothing reads them any more."""
        copies = [kernel for kernel in self.kernels if kernel.node.target is COPY]
        if not copies:
            return
        others = [kernel for kernel in self.kernels if kernel.node.target is not COPY]
        cut = next((i for i, kernel in enumerate(others) if kernel.node in self.backward), len(others))
        self.kernels = others[:cut] + copies + others[cut:]


def find_in_place(joint: JointGraph, kernel: Kernel) -> InPlace | None:
    """The form of a call that writes over its first argument, where that is of the result's kind and its
    storage is nobody else's."""
    node = kernel.node
    if kernel.random or len(kernel.outputs) != 1 or not node.args or not isinstance(node.target, torch._ops.OpOverload):
        return None
    first, result = node.args[0], node.meta["val"]
    if not isinstance(first, fx.Node) or not isinstance(first.meta.get("val"), torch.Tensor) or not isinstance(result, torch.Tensor):
        return None
    tensor, storage = first.meta["val"], joint.of.get(first)
    if storage is None or joint.storages[storage].external or not is_alike(tensor, result):
        return None
    if joint.storages[storage].bytes != joint.storages[kernel.outputs[0]].bytes:
        return None  # it is a part of more
    others = [leaf for leaf in pytree.tree_leaves((node.args[1:], node.kwargs)) if isinstance(leaf, fx.Node)]
    if any(storage in joint.reads(other) for other in others):
        return None
    if node.target is aten.cumsum.default and not tensor.dim():
        return None  # of a single number it makes a copy
    form = FORMS.get(node.target)
    if form is None or tensor.dtype not in form.dtypes or not joint.device.overwrites(node.target):
        return None
    return InPlace(form.target, kernel.inputs.index(storage), form.out)
