"""Where results lie in memory, in what is traced: as kernels put them, which PyTorch's tracer does not always know.

What is traced behind them would be wrong: views that are not possible, and bytes that nobody counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._C import DispatchKey
from torch._prims_common import suggest_memory_format
from torch.utils import _pytree as pytree

from .._device.in_place import named

aten = torch.ops.aten

# Where an operation's kernels stand that are asked while it is traced.
TRACED_AS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)

# Operations of which PyTorch traces that results lie as inputs do, or as another input does, where kernels on CPUs
# answer row by row,
IN_ROWS = tuple(
    named(
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward nll_loss2d_forward log_sigmoid_forward glu_backward "
        "_log_softmax_backward_data native_layer_norm_backward"
    )
)
# or channels last if the inputs lie so, and else row by row,
IN_FORMAT = tuple(
    named("native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional")
)
# or, element by element, as the input does whose position this is.
AS_INPUT = {
    **dict.fromkeys(named("hardswish_backward hardtanh_backward binary_cross_entropy"), 0),
    **dict.fromkeys(named("binary_cross_entropy_backward"), 1),
}
# Operations whose results are traced in rows, and lie channels last where the input does whose position this is.
IN_FORMAT_OF = {
    **dict.fromkeys(named("reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d channel_shuffle"), 0),
    **dict.fromkeys(named("reflection_pad2d_backward reflection_pad3d_backward replication_pad2d_backward replication_pad3d_backward"), 1),
}
CHANNELS_LAST = (torch.channels_last, torch.channels_last_3d)


def in_rows(value: Tensor) -> Tensor:
    return value.contiguous()


def in_format(value: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = value.dim() in formats and value.is_contiguous(memory_format=formats[value.dim()])
    return value if last else value.contiguous()


def as_others_do(operation: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
    """Calls an operation without our kernel for it."""
    ours = {key: operation.py_kernels.pop(key) for key in TRACED_AS if key in operation.py_kernels}
    operation._dispatch_cache.clear()
    try:
        return operation(*args, **kwargs)
    finally:
        operation.py_kernels |= ours
        operation._dispatch_cache.clear()


def of_inputs(operation: torch._ops.OpOverload, laid: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """The operation as it is traced rightly: of inputs that lie so. `read_as_it_lies` takes these copies away again."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        if all(value.device.type == "cpu" for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)):
            args, kwargs = pytree.tree_map_only(Tensor, laid, (args, kwargs))
        return as_others_do(operation, args, kwargs)

    return traced


def as_input(operation: torch._ops.OpOverload, position: int) -> Callable[..., Any]:
    """The operation as it is traced rightly: of inputs that all lie as that one does, with its dimensions in their order."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        values = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        first = args[position]
        if all(value.shape == first.shape and value.device.type == "cpu" for value in values):
            order = memory_order(first)
            if any(memory_order(value) != order for value in values):
                args, kwargs = pytree.tree_map_only(Tensor, lambda value: value.permute(order).contiguous(), (args, kwargs))
                result = as_others_do(operation, args, kwargs)
                return result.permute(inverse(order)) if result.dim() else result
        return as_others_do(operation, args, kwargs)

    return traced


def in_format_of(operation: torch._ops.OpOverload, position: int) -> Callable[..., Any]:
    """The operation as it is traced rightly: with its result in the format of that input."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        result, like = as_others_do(operation, args, kwargs), args[position]
        return result.contiguous(memory_format=suggest_memory_format(like)) if like.device.type == "cpu" else result

    return traced


def read_as_it_lies(graph: fx.Graph) -> None:
    """Takes copies away again that were there for what is traced: of inputs, and of results."""
    for target in (*IN_ROWS, *IN_FORMAT):
        for node in graph.find_nodes(op="call_function", target=target):
            for source in node.all_input_nodes:
                if source.target is aten.clone.default and source.kwargs == {"memory_format": torch.contiguous_format}:
                    node.replace_input_with(source, source.args[0])
    for target, position in IN_FORMAT_OF.items():
        for node in graph.find_nodes(op="call_function", target=target):
            format, copies = suggest_memory_format(node.args[position].meta["val"]), list(node.users)
            if format in CHANNELS_LAST and [(copy.target, copy.kwargs) for copy in copies] == [(aten.clone.default, {"memory_format": format})]:
                node.meta["val"] = copies[0].meta["val"]
                copies[0].replace_all_uses_with(node)
                graph.erase_node(copies[0])


def memory_order(value: Tensor) -> list[int]:
    """A tensor's dimensions, outermost in memory first."""
    strides = value.stride()
    return sorted(range(value.dim()), key=lambda dim: (-strides[dim], dim))


def inverse(order: Sequence[int]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]


# Kernels of ours for all of them.
LAID_OUT: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **{operation: of_inputs(operation, in_rows) for operation in IN_ROWS},
    **{operation: of_inputs(operation, in_format) for operation in (aten.native_batch_norm_backward.default, aten.batch_norm.default)},
    **{operation: as_input(operation, position) for operation, position in AS_INPUT.items()},
    **{operation: in_format_of(operation, position) for operation, position in IN_FORMAT_OF.items()},
}
