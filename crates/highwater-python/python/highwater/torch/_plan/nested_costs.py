"""What calls of graphs within graphs take.

They are run on made-up tensors, as other kernels are. Made-up tensors cannot tell which branch a step takes, nor how
often a loop goes round. So each branch is run, a loop goes round a few times, and within other graphs they are
replaced by stand-ins that take as much.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from .._device.held import storage_key
from .._graph.nested import calls, graph_at, graphs_of, is_nested
from .._graph.nodes import is_node, tensors

Cost = tuple[float, int, int]
"""Seconds, the most bytes beside the results, and bytes of the results."""

# A loop whose end depends on data goes round so often: old values, new ones, and those before are there by then.
ROUNDS = 3

# Those that call a graph for each row of what they are given.
BY_ROW = ("scan", "map_impl", "associative_scan")


def name_of(node: fx.Node) -> str:
    return str(node.target) if is_nested(node) else ""


def ways(node: fx.Node) -> list[Callable[..., Any]]:
    """What a call may come to, whatever is in its tensors: functions of the same arguments."""
    target: Any = node.target
    if name_of(node) == "cond":
        return [lambda _, yes, no, operands: yes(*operands), lambda _, yes, no, operands: no(*operands)]
    if name_of(node) == "switch":
        count = len(node.args[1])  # type: ignore[arg-type]
        return [lambda _, branches, operands, i=i: branches[i](*operands) for i in range(count)]
    if name_of(node) == "while_loop":
        return [lambda goes_on, *others, **kwargs: target(Rounds(goes_on), *others, **kwargs)]
    return [target]


class Rounds:
    """The condition of a loop that goes round a few times."""

    def __init__(self, condition: Callable[..., Any]) -> None:
        self.condition, self.left = condition, ROUNDS
        self.answer: Any = None

    def __call__(self, *args: Any) -> bool:
        self.answer = self.condition(*args)  # which the loop holds
        self.left -= 1
        return self.left >= 0


class StandIn:
    """Takes the time and the memory of a call, and computes nothing."""

    def __init__(self, node: fx.Node, cost: Cost, make: Callable[[Any], Any]) -> None:
        self.__name__ = name_of(node)
        self._like, self._make = node.meta["val"], make
        self._seconds, self._scratch, held = cost
        self._more = max(0, held - sum({storage_key(leaf): leaf.untyped_storage().nbytes() for leaf in tensors(node)}.values()))

    def __call__(self, *_: Any) -> Any:
        time.sleep(self._seconds)
        results = pytree.tree_map(self._make, self._like)
        first = next((leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, Tensor)), None)
        if first is not None:
            first.beside = torch.empty(self._more, dtype=torch.uint8, device=first.device)  # type: ignore[attr-defined]
            torch.empty(self._scratch, dtype=torch.uint8, device=first.device)
        return results


def is_choice(node: fx.Node) -> bool:
    """Whether data say what a call does."""
    return name_of(node) in ("cond", "switch", "while_loop")


def prepared(module: fx.GraphModule, cost: Callable[[fx.Node], Cost], make: Callable[[Any], Any]) -> fx.GraphModule:
    """A graph that takes at least as much as it would with any data. `cost`: of a call; `make`: a tensor like one."""
    if not any(is_choice(inner) for node in module.graph.nodes for inner in calls(node)):
        return module
    twin = fx.GraphModule(module, copy.deepcopy(module.graph))
    for node in list(twin.graph.nodes):
        if is_choice(node):
            with twin.graph.inserting_before(node):
                given = tuple(source for source in node.all_input_nodes if graph_at(source) is None)
                stand_in = twin.graph.call_function(StandIn(node, cost(node), make), given)
            stand_in.meta = dict(node.meta)
            node.replace_all_uses_with(stand_in)
            twin.graph.erase_node(node)
        elif graphs_of(node):
            for source in node.all_input_nodes:
                if inner := graph_at(source):
                    setattr(twin, str(source.target), prepared(inner, cost, make))
    twin.recompile()
    return twin


def most_within(node: fx.Node, scratch: Callable[[fx.Node], int]) -> int:
    """Bytes that a call's graphs hold beside its results at most, by the sizes in them. `scratch`: of a kernel."""
    graphs = graphs_of(node)
    if not graphs:
        return 0 if is_nested(node) else scratch(node)
    # What is called for each row keeps its rows until they are put together.
    rows = sum(leaf.untyped_storage().nbytes() for leaf in tensors(node)) if name_of(node) in BY_ROW else 0
    return rows + max(held_by(graph, scratch) for graph in graphs)


def held_by(module: fx.GraphModule, scratch: Callable[[fx.Node], int]) -> int:
    """Bytes that a graph holds at most beside its results, each tensor until its last use."""
    nodes = [node for node in module.graph.nodes if "val" in node.meta]
    given = {storage_key(leaf) for node in nodes if node.op != "call_function" for leaf in tensors(node)}
    output = module.graph.output_node()
    results = {storage_key(leaf) for node in output.all_input_nodes for leaf in tensors(node)}
    sizes = {storage_key(leaf): int(leaf.untyped_storage().nbytes()) for node in nodes for leaf in tensors(node)}
    last = {storage_key(leaf): node for node in nodes for source in (node, *node.all_input_nodes) for leaf in tensors(source)}
    alive: set[int] = set()
    most = 0
    for node in nodes:
        if node.op == "call_function":
            alive |= {storage_key(leaf) for leaf in tensors(node)} - given
            most = max(most, sum(sizes[key] for key in alive) + most_within(node, scratch))
            alive -= {key for key in alive - results if last[key] is node}
    return max(0, most - sum(sizes[key] for key in results - given))


def rounds(node: fx.Node) -> int:
    """How often a call calls its graphs."""
    if name_of(node) not in BY_ROW:
        return 1
    xs: Any = node.args[2] if name_of(node) == "scan" else node.args[1]
    first = next(iter(xs), None)
    return int(tensors(first)[0].shape[0]) if is_node(first) else 1
