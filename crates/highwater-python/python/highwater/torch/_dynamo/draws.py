"""Which operations of a graph draw on the CPU, how many numbers where that follows from sizes alone, and how a draw stays
in a graph that would leave it out."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._ops import HigherOrderOperator

from .effects import Effects, Unknown, call, graphs_of, leaves
from .generators import DREW, OURS

# How many numbers these draw follows from the sizes of what they read, and from numbers of Python's.
BY_SIZE: set[Any] = {
    F.dropout, torch.dropout, torch.dropout_, F.dropout1d, F.dropout2d, F.dropout3d, torch.feature_dropout, torch.feature_dropout_, torch.native_dropout,
    F.alpha_dropout, torch.alpha_dropout, torch.alpha_dropout_, F.feature_alpha_dropout, torch.feature_alpha_dropout, torch.feature_alpha_dropout_,
    torch.rand_like, torch.randn_like, torch.randint_like, torch.bernoulli, F.scaled_dot_product_attention,
    "bernoulli", "bernoulli_", "uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "geometric_", "random_",
}  # fmt: skip

# These look at what they read: whether it is a probability.
OF_PROBABILITIES = (torch.bernoulli, "bernoulli", "bernoulli_")


def is_draw(node: fx.Node) -> bool:
    """Whether a node draws on the CPU, or changes a generator. Raises `Unknown`."""
    if node.op not in ("call_function", "call_method"):
        return False
    if node.target in OURS:
        return True
    if node.target is F.scaled_dot_product_attention and share_of(node) == 0:
        return False
    made = leaves(node)
    if made and all(leaf.device.type != "cpu" for leaf in made):
        return False
    return Effects.of(node).draws


def is_by_size(node: fx.Node) -> bool:
    return node.target in BY_SIZE


def share_of(attention: fx.Node) -> Any:
    """What share of its scores an attention drops."""
    return attention.kwargs.get("dropout_p") or (attention.args[4] if len(attention.args) > 4 else 0)


def scores_of(attention: fx.Node) -> tuple[int, ...]:
    """The shape of its scores, which are what is dropped."""
    given = dict(zip(("query", "key"), attention.args)) | attention.kwargs
    query, key = (given[name].meta["example_value"].shape for name in ("query", "key"))  # type: ignore[union-attr]
    sizes = tuple(map(int, query[-2:-1] + key[-2:-1]))
    if attention.kwargs.get("enable_gqa"):
        return (*map(int, query[:-2]), *sizes)
    return (*map(int, torch.broadcast_shapes(query[:-2], key[:-2])), *sizes)  # type: ignore[no-untyped-call]


def blank(source: fx.Node, draw: fx.Node) -> Callable[[], Any]:
    """Makes something of the size of what is not known. Where that is a symbol, the graph is for the size that there is now."""
    value = source.meta["example_value"]
    if not isinstance(value, Tensor):
        return lambda: value
    shape, strides = [int(size) for size in value.shape], [int(step) for step in value.stride()]
    make = functools.partial(torch.empty_strided, shape, strides, dtype=value.dtype, device=value.device)
    return (lambda: make().zero_()) if draw.target in OF_PROBABILITIES else make


def alone(node: fx.Node) -> Callable[[Any, Any], Any]:
    """Draws the numbers of a node that draws by size, and computes no more than that needs."""
    if node.target is not F.scaled_dot_product_attention:
        return functools.partial(call, node)
    shape, dtype = scores_of(node), leaves(node)[0].dtype
    return lambda args, kwargs: F.dropout(torch.empty(shape, dtype=dtype), kwargs.get("dropout_p") or args[4])


def bytes_of(node: fx.Node) -> int:
    """What a node makes while it draws."""
    made = [int(leaf.numel()) * leaf.element_size() for leaf in leaves(node)]
    if node.target is F.scaled_dot_product_attention:
        made.append(torch.Size(scores_of(node)).numel() * leaves(node)[0].element_size())
    return max(made, default=0)


def keep(graph: fx.Graph) -> None:
    """Has the draws of a graph so far stay in it, also where nothing looks at their numbers."""
    for node in list(graph.nodes):
        with suppress(Unknown):
            if KEPT not in node.meta and is_draw(node):
                keep_one(node)
                for inner in graphs_of(node) if isinstance(node.target, HigherOrderOperator) else ():
                    keep(inner)
                    inner.owning_module.recompile()  # type: ignore[union-attr]


KEPT = "highwater_kept"


def keep_one(draw: fx.Node) -> None:
    draw.meta[KEPT] = True
    graph, at, value = draw.graph, draw, draw.meta.get("example_value")
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Tensor):
        with graph.inserting_after(at):
            at = graph.call_function(operator.getitem, (at, 0))
        at.meta["example_value"] = value = value[0]
    if not isinstance(value, Tensor):
        return
    with graph.inserting_after(at):
        looked_at = graph.call_method("detach", (at,))
    with graph.inserting_after(looked_at):
        graph.call_function(DREW, (looked_at,))
    looked_at.meta["example_value"] = value.detach()
