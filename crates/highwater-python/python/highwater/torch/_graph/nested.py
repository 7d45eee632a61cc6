"""Graphs within graphs: what a node calls, at any depth.

A higher-order operation (`torch.cond`, `scan`, the functional form of a custom operation that mutates its arguments)
is judged by the operations it calls, never by its own name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

# These order effects between the outside world and the graph, whatever they call.
EFFECTS = (torch.ops.higher_order.with_effects,)


def is_nested(node: fx.Node) -> bool:
    """Whether a node is a call of a higher-order operation."""
    return isinstance(node.target, HigherOrderOperator)


def graph_at(node: fx.Node) -> fx.GraphModule | None:
    """The graph that an attribute of the module is."""
    if node.op != "get_attr":
        return None
    found: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, fx.GraphModule) else None


def graphs_of(node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that a higher-order operation calls."""
    if not is_nested(node):
        return []
    found = (graph_at(source) for source in node.all_input_nodes)
    return [graph for graph in found if graph is not None]


def graphs_within(graph: fx.Graph) -> list[fx.GraphModule]:
    """All graphs that the nodes of a graph call, at any depth, each once."""
    found: dict[int, fx.GraphModule] = {}

    def look(graph: fx.Graph) -> None:
        for node in graph.nodes:
            for inner in graphs_of(node):
                if id(inner) not in found:
                    found[id(inner)] = inner
                    look(inner.graph)

    look(graph)
    return list(found.values())


def calls(node: fx.Node) -> Iterator[fx.Node]:
    """A call, and the calls in the graphs that it calls."""
    yield node
    for graph in graphs_of(node):
        for inner in graph.graph.nodes:
            if inner.op == "call_function":
                yield from calls(inner)


def operations(node: fx.Node) -> list[Callable[..., Any]]:
    """The operations that a call ends in. A higher-order operation is one itself if what it calls cannot be seen."""
    target: Any = node.target
    if not is_nested(node):
        return [target]
    graphs = graphs_of(node)
    found: list[Callable[..., Any]] = [leaf for leaf in pytree.tree_leaves((node.args, dict(node.kwargs))) if isinstance(leaf, OpOverload)]
    found += [op for graph in graphs for inner in graph.graph.nodes if inner.op == "call_function" for op in operations(inner)]
    return found if (graphs or found) and target not in EFFECTS else [*found, target]


def is_random(node: fx.Node) -> bool:
    """Whether a call draws from PyTorch's generators."""
    return any(isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags for target in operations(node))


def is_pure(node: fx.Node) -> bool:
    """Whether a call returns the same each time, but for random numbers that PyTorch knows of. Custom operations
    may draw numbers of their own, or count their calls."""
    return not any(is_hidden(target) for target in operations(node))


def is_hidden(target: Callable[..., Any]) -> bool:
    """Whether an operation may do what nobody knows: it is not PyTorch's own, or hides what it calls."""
    return isinstance(target, HigherOrderOperator) or isinstance(target, OpOverload) and target.namespace not in ("aten", "prims")


def fingerprint(module: fx.GraphModule, describe: Callable[[fx.Node], str]) -> str:
    """A name that graphs of the same calls on the same sizes share. `describe`: of one call."""
    lines = []
    for node in module.graph.nodes:
        named = fx.map_arg((node.args, dict(node.kwargs)), lambda source: source.name)
        lines.append(f"{node.op} {node.name} {named} {describe(node)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
