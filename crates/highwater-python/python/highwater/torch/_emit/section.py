"""One of the two graphs of a plan, while it is written."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .._autograd.inlined import OwnResults
from .._device.device import device_of_node
from .._graph.joint import JointGraph, Kernel
from .._graph.nested import is_hidden, is_nested
from .._graph.nodes import OVERWRITTEN, item_of, tensors

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
                # The caller holds it: the run was for another output. Others are freed before it.
                continue
            if first is kernel.node:
                self.hold(storage, first, made)
            else:
                item = made
                for place in item_of(first)[1]:
                    item = self.graph.call_function(operator.getitem, (item, place))
                self.hold(storage, first, self.put(first, item))
