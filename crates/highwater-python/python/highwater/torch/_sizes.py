"""Graphs whose sizes are symbols: a plan is good for one size, so each that comes has its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def for_each_size(module: fx.GraphModule, compile: Compile) -> Callable[..., Any]:
    """A function that compiles a graph for each size of its inputs, when it first comes."""
    places = module.graph.find_nodes(op="placeholder")
    # Numbers that are not whole come in as tensors, and leave them at once.
    items = [[user for user in place.users if user.op == "call_method" and user.target == "item"] for place in places]
    known: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def key(value: Any, taken: list[fx.Node]) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.item() if taken else tuple(value.shape)

    def run(*values: Any) -> Any:
        sizes = tuple(map(key, values, items))
        if sizes not in known:
            numbers = {node: value.item() for value, taken in zip(values, items, strict=True) for node in taken}
            known[sizes] = compile(with_numbers(module, numbers), values)
        return known[sizes](*values)

    return run


def with_numbers(module: fx.GraphModule, numbers: dict[fx.Node, float]) -> fx.GraphModule:
    """A graph with numbers in place of some nodes."""
    graph = fx.Graph()
    names: dict[fx.Node, Any] = dict(numbers)
    for node in module.graph.nodes:
        if node.op == "output":
            graph.output(fx.map_arg(node.args[0], names.__getitem__))
        elif node not in numbers:
            names[node] = graph.node_copy(node, names.__getitem__)
    return fx.GraphModule(module, graph)
