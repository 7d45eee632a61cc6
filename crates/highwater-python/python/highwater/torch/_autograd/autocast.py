"""Weights that autocast casts more than once, cast once.

Eager PyTorch keeps the casts of leaves that need gradients until the outermost `torch.autocast` is left, so that
what a weight's uses give to its gradient is summed in the lower dtype. AOTAutograd traces without that cache: a
cast for each use, and a sum in the weight's dtype, which is another number. Here the shared cast is spelled out
before anything is traced. Parts of a checkpoint's own graph are left as they are.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

# What autocast runs in the lower dtype on every device, as Dynamo writes it.
LOWER: set[Callable[..., Any]] = {
    F.linear, torch.matmul, operator.matmul, torch.mm, torch.bmm, torch.addmm, torch.addbmm, torch.baddbmm,
    torch.conv1d, torch.conv2d, torch.conv3d, F.conv1d, F.conv2d, F.conv3d,
    torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
}  # fmt: skip
METHODS = {"matmul", "__matmul__", "mm", "bmm", "addmm", "addbmm", "baddbmm"}
# Of these the products with weights, which come behind the input and the state.
CELLS = {torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell}


def share_casts(module: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Changes Dynamo's graph of these inputs."""
    graph = module.graph
    leaves = {node: value for node, value in zip(graph.find_nodes(op="placeholder"), inputs, strict=True) if is_cached(value)}
    shared = [(cast, uses) for cast, uses in casts(graph, leaves) if len(uses) > 1]
    for (leaf, dtype), uses in shared:
        with graph.inserting_before(uses[0]):
            cast = graph.call_method("to", (leaf, dtype))
        cast.meta = {key: value for key, value in uses[0].meta.items() if key != "example_value"}
        for use in uses:
            use.replace_input_with(leaf, cast)
    if shared:
        module.recompile()


def is_cached(value: Any) -> bool:
    """Whether eager autocast keeps the cast of a tensor."""
    return isinstance(value, Tensor) and value.dtype == torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()


def casts(graph: fx.Graph, leaves: dict[fx.Node, Tensor]) -> Iterator[tuple[tuple[fx.Node, torch.dtype], list[fx.Node]]]:
    """Of leaves, each by the uses that it is for."""
    devices = {value.device.type for value in leaves.values()}
    # By device: the dtype that autocast has there, if it is on.
    now = {device: torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None for device in devices}
    around, keeps, grad = is_within_autocast(), torch.is_autocast_cache_enabled(), torch.is_grad_enabled()
    entered: dict[fx.Node, tuple[dict[str, torch.dtype | None], bool]] = {}
    regions = 0
    found = defaultdict[tuple[fx.Node, torch.dtype, int, bool], list[fx.Node]](list)
    for node in graph.nodes:
        if node.target is _enter_autocast:
            entered[node] = now, keeps
            device, dtype, enabled, cache = node.args
            now = {**now, device: (dtype or torch.get_autocast_dtype(device)) if enabled else None}
            keeps = keeps if cache is None else cache
        elif node.target is _exit_autocast:
            now, keeps = entered.pop(node.args[0])
            regions += not entered and not around
        elif node.target is torch._C._set_grad_enabled:
            (grad,) = node.args
        elif keeps:
            for leaf in lowered(node):
                if leaf in leaves and (dtype := now[leaves[leaf].device.type]):
                    # What is cast without gradients is not for uses with them.
                    found[leaf, dtype, regions, grad].append(node)
    return (((leaf, dtype), uses) for (leaf, dtype, *_), uses in found.items())


def is_within_autocast() -> bool:
    """Whether a `torch.autocast` is entered, be it one that is not enabled."""
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return depth > 1


def lowered(node: fx.Node) -> list[fx.Node]:
    """What autocast casts for a node, one of them maybe several times."""
    found: list[fx.Node] = []
    if node.target in LOWER or node.op == "call_method" and node.target in METHODS:
        fx.map_arg((node.args, node.kwargs), found.append)
    elif node.target in CELLS:
        fx.map_arg(node.args[2:], found.append)
    return found
