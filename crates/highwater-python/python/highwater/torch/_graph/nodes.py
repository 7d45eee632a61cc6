"""Nodes of a joint graph: what is said of them in their meta, and what their results are."""

from __future__ import annotations

import operator
from typing import Any, TypeGuard

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from .._device.held import storage_key
from .._messages.locations import CannotPlan, where

COPY = torch.ops.aten.copy_.default

# What is said of a node in its meta: that it runs once, the inputs that it writes over, the seconds and scratch
# bytes of it, and that somebody holds what it reads from then on.
ONCE, WRITES, COST, HELD = "highwater_once", "highwater_writes", "highwater_cost", "highwater_held"
# The bytes of an optimizer's state that it overwrites; of an input of a backward, that it is written over; of an
# input, that others may write to it before the backward.
CELL, OVERWRITTEN, PASSING = "highwater_cell", "highwater_overwritten", "highwater_passing"


def is_node(value: Any) -> TypeGuard[fx.Node]:
    return isinstance(value, fx.Node)


def tensors(node: fx.Node) -> list[torch.Tensor]:
    """The tensors that a node results in."""
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def refuse_sizeless(graph: fx.Graph) -> None:
    """Sparse tensors have no storage that could be planned, and those whose size follows from data have one of any size."""
    for node in graph.nodes:
        if any(leaf.layout is not torch.strided for leaf in tensors(node)):
            raise CannotPlan(f"{where(node)} has a sparse result. Sparse tensors and gradients cannot be planned: use dense ones")
        if any(free_unbacked_symbols(leaf.shape) for leaf in tensors(node)):
            raise CannotPlan(f"{where(node)} has a result whose size depends on data. A plan needs fixed sizes: pad the result, move this out of the model, or pass a size as a Python number: int(n)")


def storage_of(node: fx.Node) -> int | None:
    """The storage that a node's result is a view of, if it is one tensor."""
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, torch.Tensor) else None


def remake(view: fx.Node) -> None:
    """Describes a view anew, by the tensor that it now views."""
    args, kwargs = fx.map_arg((view.args, view.kwargs), lambda node: node.meta["val"])
    with tensors(view)[0].fake_mode:  # type: ignore[attr-defined]
        view.meta = {**view.meta, "val": view.target(*args, **kwargs)}  # type: ignore[operator]


def nbytes(tensor: torch.Tensor) -> int:
    # A size that is a symbol becomes the number that it is now: another one is another plan.
    return int(tensor.untyped_storage().nbytes())


def item_of(node: fx.Node) -> tuple[fx.Node, tuple[Any, ...]]:
    """The call that a node takes an item of, and the positions that lead to it: results may be lists in a tuple."""
    path: tuple[Any, ...] = ()
    while node.target is operator.getitem and is_node(node.args[0]):
        node, path = node.args[0], (node.args[1], *path)
    return node, path


def is_tangent(node: fx.Node) -> bool:
    """Whether a node is a gradient that comes in."""
    return node.op == "placeholder" and node.name.startswith("tangents")


def is_symbolic(node: fx.Node) -> bool:
    """Whether a node results in a number of shapes, which is no work."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))
