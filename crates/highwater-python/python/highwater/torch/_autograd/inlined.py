"""Calls that a plan could not take as they are: regions are written out, and results get storages of their own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from .._device.held import storage_key
from .._graph.nested import graphs_of, is_nested, is_pure, is_random
from .._graph.nodes import remake, tensors


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


def open_regions(module: fx.GraphModule) -> None:
    """Writes regions of Dynamo's graph out where they are called.

    These are the calls of `torch.compiler.nested_compile_region`, whose nodes are a plan's like others, and checkpoints
    without a policy around higher-order operations, which AOTAutograd does not trace: such a checkpoint changes no plan.
    Within branches and loops regions stay: eager PyTorch calls them there as higher-order operations, too."""
    written = False
    while regions := [node for node in module.graph.nodes if is_region(node)]:
        for region in regions:
            write_out(module, region)
        written = True
    if written:
        module.recompile()


def is_region(node: fx.Node) -> bool:
    if node.target is torch.ops.higher_order.invoke_subgraph:
        return True
    if node.target is not torch.ops.higher_order.tag_activation_checkpoint:
        return False
    (region,) = graphs_of(node)
    return "_checkpoint_context_fn" not in region.meta and any(map(is_nested, region.graph.nodes))


def write_out(module: fx.GraphModule, call: fx.Node) -> None:
    """Writes the nodes of a region in place of its call."""
    graph, (region,) = module.graph, graphs_of(call)
    # An identifier stands behind the graph of a region.
    places = (place for place in call.args[1:] if not isinstance(place, str))
    names: dict[fx.Node, Any] = {}
    results: Any = ()
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
                names[node] = graph.node_copy(node, names.__getitem__)
    for item in list(call.users):
        assert item.target is operator.getitem, item
        replace(item, results[item.args[1]])
    graph.erase_node(call)


def attribute(module: fx.GraphModule, value: Any, name: str) -> str:
    """The name of an attribute that a module has, or gets."""
    for known, found in module.named_modules():
        if found is value and known:
            return str(known)
    while hasattr(module, name):
        name += "_"
    setattr(module, name, value)
    return name


def replace(node: fx.Node, by: Any) -> None:
    """Replaces a node by another one, or by what is no node."""
    for reader in list(node.users):
        reader.args, reader.kwargs = fx.map_arg((reader.args, reader.kwargs), lambda source: by if source is node else source)
    node.graph.erase_node(node)


def separate_results(graph: fx.Graph) -> None:
    """Describes results that are views of arguments, or of each other, as storages of their own: see `OwnResults`.
    What draws is not a view either, whatever is traced of it: with p=0 dropout is described as its input."""
    for node in graph.nodes:
        if node.op == "call_function" and (is_nested(node) or is_random(node) or not is_pure(node)):
            separate(node)


def follow(nodes: list[fx.Node], before: int) -> None:
    """Describes views anew whose storage was another one before, and views of them."""
    while nodes:
        node = nodes.pop(0)
        if node.op == "call_function" and any(storage_key(leaf) == before for leaf in tensors(node)):
            remake(node)
            nodes += node.users


def separate(node: fx.Node) -> None:
    taken = {storage_key(leaf) for source in node.all_input_nodes for leaf in tensors(source)}
    moved: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if storage_key(leaf) in taken:
            moved.add(storage_key(leaf))
            with leaf.fake_mode:  # type: ignore[attr-defined]
                leaf = copied(leaf)
        taken.add(storage_key(leaf))
        return leaf

    node.meta["val"] = pytree.tree_map(own, node.meta.get("val"))
    for before in moved:
        follow(list(node.users), before)
