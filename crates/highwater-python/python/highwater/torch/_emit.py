"""A plan as two graphs: what the forward runs, and what the backward does, in the plan's order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

from ._alive import Move, actions, replays
from ._boxed import Constant
from ._device import device_of_node
from ._graph import OVERWRITTEN, JointGraph, Kernel, is_tangent, item_of, tensors
from ._inlined import OwnResults
from ._moves import Moves
from ._nested import is_hidden, is_nested
from ._transfers import Transfers

if TYPE_CHECKING:
    from ._choices import Choice

ITEM = torch.ops.aten._local_scalar_dense.default

Names = dict[fx.Node, fx.Node]
"""Nodes of the joint graph, and what stands for them in a graph that is written."""


class Section:
    """One of the two graphs, while it is written."""

    def __init__(self, joint: JointGraph, replayed: set[fx.Node], compiled: bool) -> None:
        self.joint, self._compiled = joint, compiled
        self.graph = fx.Graph()
        self.present: dict[int, Names] = {}
        """Of each storage that is there: it, and the views of it that were made."""
        self.symbols: Names = {}
        self.states: Names = {}
        """Of random kernels that run again: the generator's state before they ran."""
        self._replayed = replayed

    def hold(self, storage: int, node: fx.Node, name: fx.Node) -> None:
        self.present[storage] = {node: name}

    def put(self, like: fx.Node, name: fx.Node) -> fx.Node:
        name.meta = dict(like.meta)
        return name

    def get(self, node: fx.Node) -> Any:
        """What stands for a node, whose storage is there: itself, or a view made now."""
        node = self.joint.same.get(node, node)
        if isinstance(node.meta.get("val"), torch.SymInt) and node.target is not ITEM and any(map(tensors, node.all_input_nodes)):
            # A size of what may be gone. As a plan is for sizes as they are, it is a number.
            return int(node.meta["val"])
        storage = self.joint.of.get(node)
        if storage is None:
            found = tensors(node)
            names = self.symbols if not found else self.present[min(self.joint.reads(node))]
        else:
            names = self.present[storage]
        if node not in names:
            names[node] = self.put(node, self.graph.node_copy(node, self.get))
        return names[node]

    def overwrite(self, storage: int) -> None:
        """Says of what the forward saved that this overwrites it."""
        name = self.present[storage].get(self.joint.storages[storage].first)
        if name is not None and name.op == "placeholder":
            name.meta[OVERWRITTEN] = torch.clone

    def run(self, kernel: Kernel, in_place: bool) -> None:
        node, target = kernel.node, self._call(kernel.node)
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.get)
        if in_place and kernel.in_place:
            if kernel.in_place.out:
                kwargs = {**kwargs, kernel.in_place.out: args[0]}
            made = self.graph.call_function(kernel.in_place.target, args, kwargs)
            if kernel.outputs[0] in self.joint.given_by_forward:
                # It may be a view, and who called could not write to it.
                made = self.graph.call_function(torch.ops.aten.detach.default, (made,))
        elif node in self._replayed:
            made = self._run_random(node, args, kwargs)
        else:
            made = self.graph.call_function(target, args, kwargs)
        self.put(node, made)
        self._name_outputs(kernel, made)

    def _run_random(self, node: fx.Node, args: Any, kwargs: Any) -> fx.Node:
        device = device_of_node(node)
        if node in self.states:
            with_state: Any = (self.states[node], self._call(node), *args)
            return self.graph.call_function(device.run_again, with_state, kwargs)
        without: Any = (self._call(node), *args)
        both = self.graph.call_function(device.run_and_save, without, kwargs)
        state = self.graph.call_function(operator.getitem, (both, 0))
        with tensors(node)[0].fake_mode as mode:  # type: ignore[attr-defined]
            state.meta["val"] = mode.from_tensor(device.blank_state())
        self.states[node] = state
        return self.graph.call_function(operator.getitem, (both, 1))

    def _call(self, node: fx.Node) -> Callable[..., Any]:
        """What to call for a kernel. A compiler knows operations by what they are."""
        assert callable(node.target), node
        apart = not self._compiled and (is_nested(node) or is_hidden(node.target))
        return OwnResults(node.target) if apart else node.target

    def _name_outputs(self, kernel: Kernel, made: fx.Node) -> None:
        for storage in kernel.outputs:
            first = self.joint.storages[storage].first
            if storage in self.present and storage in self.joint.given_by_forward:
                # The caller holds it: the run was for another output. Others are let go of before it.
                continue
            if first is kernel.node:
                self.hold(storage, first, made)
            else:
                item = made
                for place in item_of(first)[1]:
                    item = self.graph.call_function(operator.getitem, (item, place))
                self.hold(storage, first, self.put(first, item))


def emit(joint: JointGraph, choice: Choice, transfers: Transfers, overwrites: bool = True) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward's and the backward's module of a plan. `transfers`: what moves bytes, if the plan does.
    `overwrites`: whether kernels write over their inputs where the plan has them do it; or else they answer
    results of their own, as a compiler expects it."""
    replayed = {joint.kernels[i].node for i in replays(joint, choice.plan)}
    forward, backward = (Section(joint, replayed, compiled=not overwrites) for _ in range(2))
    _enter(joint, forward, lambda node: not is_tangent(node))
    section = forward
    moves = Moves(joint, choice, transfers, forward.graph)
    moves.begin()
    entered: Names = {}
    for run in actions(joint, choice.plan):
        moves.wait_before(run.at)
        if isinstance(run, Move):
            moves.carry_out(run, section)
            continue
        if section is forward and run.kernel.node in joint.backward:
            entered = _cross(joint, forward, backward, moves)
            section = backward
        if run.kernel.node.op == "placeholder":
            continue  # it has come in
        taken = run.taken if overwrites else None
        if taken is not None:
            section.overwrite(taken)
        section.run(run.kernel, taken is not None)
    if section is forward:
        entered = _cross(joint, forward, backward, moves)
    moves.end()
    return _finish(joint, forward, backward, entered)


def _enter(joint: JointGraph, section: Section, wanted: Callable[[fx.Node], bool]) -> None:
    """The graph's inputs of a kind, and what it holds as attributes."""
    for node in joint.module.graph.nodes:
        if node.op in ("placeholder", "get_attr") and wanted(node):
            _input(joint, section, node)


def _input(joint: JointGraph, section: Section, node: fx.Node) -> fx.Node:
    if node.op == "get_attr":
        name = section.graph.get_attr(str(node.target))
    else:
        name = section.graph.placeholder(node.name)
    section.put(node, name)
    if node in joint.of:
        # Several inputs may be views of one tensor.
        section.present.setdefault(joint.of[node], {})[node] = name
    else:
        section.symbols[node] = name
    return name


def _cross(joint: JointGraph, forward: Section, backward: Section, moves: Moves) -> Names:
    """What is there when the forward ends goes into the backward: answers its inputs, and what of the
    forward they are."""
    entered: Names = {}
    for node, name in forward.symbols.items():
        if node.op == "placeholder":
            entered[_input(joint, backward, node)] = name
    for storage, names in forward.present.items():
        inputs = [node for node in names if node.op != "call_function"]
        for node in inputs or [joint.storages[storage].first]:
            made = _input(joint, backward, node)
            if node.op != "get_attr":
                entered[made] = names[node]
    for node, state in forward.states.items():
        made = backward.graph.placeholder(f"rng_state_{node.name}")
        backward.states[node] = backward.put(state, made)
        entered[made] = state
    moves.wait_for_all()
    entered |= moves.go_on_in(backward.graph)
    _enter(joint, backward, is_tangent)
    return entered


def _finish(
    joint: JointGraph, forward: Section, backward: Section, entered: Names
) -> tuple[fx.GraphModule, fx.GraphModule]:
    count = joint.forward_outputs
    descriptions = joint.output.meta.get("desc") or [None] * len(joint.outputs)

    def answer(section: Section, nodes: list[Any]) -> list[Any]:
        return [section.get(node) if isinstance(node, fx.Node) else node for node in nodes]

    gradients = answer(backward, joint.outputs[count:])
    backward.graph.output(tuple(gradients)).meta["desc"] = descriptions[count:]
    saved = []
    for made, name in entered.items():
        if made.users:
            saved.append(name)
        else:
            backward.graph.erase_node(made)
    # Numbers of shapes come last.
    saved.sort(key=lambda name: not tensors(name))
    results = answer(forward, joint.outputs[:count])
    output = forward.graph.output((*results, *saved))
    names = [SavedForBackwardsAOTOutput(i) for i in range(len(saved))]
    output.meta["desc"] = [*descriptions[:count], *names]
    for section in (forward, backward):
        for node in section.graph.find_nodes(op="get_attr"):
            if not node.users:
                section.graph.erase_node(node)
        section.graph.lint()
    make = torch.fx._lazy_graph_module._make_graph_module
    return make(joint.module, forward.graph), with_one_copy(make(joint.module, backward.graph))


def with_one_copy(module: fx.GraphModule) -> fx.GraphModule:
    """Has PyTorch's copy of a backward, made when that first runs, share the constants."""
    for node in module.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        if (value := module._buffers.pop(name, None)) is not None:
            setattr(module, name, Constant(value))
    return module
