"""Calls that a plan could not take as they are: regions are written out, and results get storages of their own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from ._graph import remake, storage_key, storage_of, tensors
from ._nested import graphs_of, graphs_within, is_nested, is_pure

# What says in a node's meta where it comes of, and what policies of checkpoints say of it.
INHERITED = ("stack_trace", "nn_module_stack", "fwd_nn_module_stack", "recompute", "ac_graph_id")


class OwnResults:
    """Calls an operation, and copies results that are views of its arguments or of each other.

    A plan frees and overwrites each result as its own storage. Branches may return an argument, and custom
    operations may do so without saying it."""

    def __init__(self, target: Callable[..., Any]) -> None:
        self.target = target
        self.__name__ = getattr(target, "__name__", str(target))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.target(*args, **kwargs)
        taken = {storage_key(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}

        def own(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if storage_key(leaf) in taken:
                leaf = copied(leaf)
            taken.add(storage_key(leaf))
            return leaf

        return pytree.tree_map(own, result)


def copied(tensor: Tensor) -> Tensor:
    """A tensor of the same layout in a storage of its own."""
    if tensor.numel() == 0:
        return tensor.clone()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((extent,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def settle_calls(module: fx.GraphModule) -> None:
    """Writes out the regions of a graph, and of the graphs that it calls, and has results be their own."""
    for inner in graphs_within(module.graph):
        if write_out_regions(inner):
            inner.recompile()
    write_out_regions(module)
    for node in module.graph.nodes:
        if node.op == "call_function" and (is_nested(node) or not is_pure(node)):
            separate(node)


def write_out_regions(module: fx.GraphModule) -> bool:
    """Writes the calls of `torch.compiler.nested_compile_region`, which are one graph called several times, where
    they are called. Returns whether there were any."""
    written = False
    while calls := module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph):
        for call in calls:
            write_out(module, call)
        written = True
    return written


def write_out(module: fx.GraphModule, call: fx.Node) -> None:
    """Writes the nodes of a region in place of its call."""
    graph, (region,) = module.graph, graphs_of(call)
    places = iter(call.args[2:])
    names: dict[fx.Node, Any] = {}
    results: Any = ()
    inherited = {key: call.meta[key] for key in INHERITED if key in call.meta}
    with graph.inserting_before(call):
        for node in region.graph.nodes:
            if node.op == "placeholder":
                names[node] = next(places)
            elif node.op == "get_attr":
                name = attribute(module, operator.attrgetter(str(node.target))(region), str(node.target).replace(".", "_"))
                names[node] = graph.get_attr(name)
                names[node].meta = dict(node.meta)
            elif node.op == "output":
                results = fx.map_arg(node.args[0], names.__getitem__)
            else:
                made = names[node] = graph.node_copy(node, names.__getitem__)
                made.meta = {**inherited, **node.meta}
                describe(made)
    for item in list(call.users):
        assert item.target is operator.getitem, item
        replace(item, results[item.args[1]])
    graph.erase_node(call)


def describe(node: fx.Node) -> None:
    """Describes the results of a copied call: a region's own description is shared by all its calls."""
    if is_nested(node):
        with fake_mode(node):
            node.meta["val"] = pytree.tree_map(lambda leaf: copied(leaf) if isinstance(leaf, Tensor) else leaf, node.meta["val"])
    elif tensors(node):
        remake(node)


def fake_mode(node: fx.Node) -> Any:
    return tensors(node)[0].fake_mode if tensors(node) else nullcontext()  # type: ignore[attr-defined]


def attribute(module: fx.GraphModule, value: Any, name: str) -> str:
    """The name of an attribute that a module has, or gets."""
    known = next((known for known, found in [*module.named_modules(), *vars(module).items()] if found is value and known), None)
    if known is not None:
        return known
    while hasattr(module, name):
        name += "_"
    setattr(module, name, value)
    return name


def replace(node: fx.Node, by: Any) -> None:
    """Replaces a node, and describes the views of it anew."""
    before, readers = storage_of(node), list(node.users)
    for reader in readers:
        reader.args, reader.kwargs = fx.map_arg((reader.args, reader.kwargs), lambda source: by if source is node else source)
    node.graph.erase_node(node)
    if before is not None:
        follow(readers, before)


def follow(nodes: list[fx.Node], before: int) -> None:
    """Describes views anew whose storage was another one before, and views of them."""
    while nodes:
        node = nodes.pop(0)
        if node.op == "call_function" and any(storage_key(leaf) == before for leaf in tensors(node)):
            remake(node)
            nodes += node.users


def separate(node: fx.Node) -> None:
    """Describes results that are views of arguments, or of each other, as storages of their own: see `OwnResults`."""
    taken = {storage_key(leaf) for source in node.all_input_nodes for leaf in tensors(source)}
    moved: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if storage_key(leaf) in taken:
            moved.add(storage_key(leaf))
            with fake_mode(node):
                leaf = copied(leaf)
        taken.add(storage_key(leaf))
        return leaf

    node.meta["val"] = pytree.tree_map(own, node.meta.get("val"))
    for before in moved:
        follow(list(node.users), before)
