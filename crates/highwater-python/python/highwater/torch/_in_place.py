"""Which kernels may write their result over an input, to the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from ._graph import JointGraph, Kernel

aten = torch.ops.aten

# Overloads that write over the tensor that they read element by element, where they are not those of the
# same name with `_`: the operation, the overload, and the name of what it writes to.
OUT = {
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, "grad_input"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, "grad_input"),
    aten.sigmoid_backward.default: (aten.sigmoid_backward.grad_input, "grad_input"),
    aten.gelu_backward.default: (aten.gelu_backward.grad_input, "grad_input"),
    aten.silu_backward.default: (aten.silu_backward.grad_input, "grad_input"),
    aten.elu_backward.default: (aten.elu_backward.grad_input, "grad_input"),
    aten.leaky_relu_backward.default: (aten.leaky_relu_backward.grad_input, "grad_input"),
    aten.hardtanh_backward.default: (aten.hardtanh_backward.grad_input, "grad_input"),
    aten.hardswish_backward.default: (aten.hardswish_backward.out, "out"),
    aten.hardsigmoid_backward.default: (aten.hardsigmoid_backward.grad_input, "grad_input"),
    aten.softplus_backward.default: (aten.softplus_backward.grad_input, "grad_input"),
    aten.log_sigmoid_backward.default: (aten.log_sigmoid_backward.grad_input, "grad_input"),
    # `mul_.Scalar` rounds the number to bfloat16 before it multiplies, which `mul.Scalar` does not.
    aten.mul.Scalar: (aten.mul_.Tensor, None),
}

# Those whose kernels on CPUs have read all of a row, and then write it element by element.
ROWS = {
    aten._softmax.default: (aten._softmax.out, "out"),
    aten._log_softmax.default: (aten._log_softmax.out, "out"),
    aten._softmax_backward_data.default: (aten._softmax_backward_data.out, "grad_input"),
    aten._log_softmax_backward_data.default: (aten._log_softmax_backward_data.out, "out"),
}


@dataclass(frozen=True, slots=True)
class InPlace:
    """Another form of a call, which writes to its first argument."""

    target: torch._ops.OpOverload
    input: int
    """The position in the kernel's inputs of the storage that is written over."""
    out: str | None = None
    """The keyword that the first argument is given by once more."""


FORMS = OUT | ROWS


def find_in_place(joint: JointGraph, kernel: Kernel) -> InPlace | None:
    """The form of a call that writes over its first argument, where that is of the result's kind and its
    storage is nobody else's."""
    node = kernel.node
    if kernel.random or len(kernel.outputs) != 1 or not node.args or not isinstance(node.target, torch._ops.OpOverload):
        return None
    first, result = node.args[0], node.meta["val"]
    if not isinstance(first, fx.Node) or not isinstance(first.meta.get("val"), torch.Tensor) or not isinstance(result, torch.Tensor):
        return None
    tensor, storage = first.meta["val"], joint.of.get(first)
    if storage is None or joint.storages[storage].external or not is_alike(tensor, result):
        return None
    if joint.storages[storage].bytes != joint.storages[kernel.outputs[0]].bytes:
        return None  # it is a part of more
    others = [leaf for leaf in pytree.tree_leaves((node.args[1:], node.kwargs)) if isinstance(leaf, fx.Node)]
    if any(storage in joint.reads(other) for other in others):
        return None
    target, out = (OUT | ROWS).get(node.target, (underscored(node.target), None))
    if target is None or not joint.device.overwrites(node.target):
        return None
    return InPlace(target, kernel.inputs.index(storage), out)


def is_alike(tensor: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage, and a result of the same size and layout."""
    same = tensor.dtype == result.dtype and tensor.shape == result.shape and tensor.stride() == result.stride()
    whole = tensor.untyped_storage().nbytes() == result.untyped_storage().nbytes() == result.numel() * result.element_size()
    return bool(same and whole and tensor.storage_offset() == 0)


def underscored(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """As `add_` is of `add`: the same arguments, of which the first is written to."""
    name = target._schema.name.removeprefix("aten::")
    packet = getattr(aten, name + "_", None) if target.namespace == "aten" else None
    if packet is None or target._overloadname not in packet.overloads():
        return None
    found = getattr(packet, target._overloadname)
    ours, theirs = target._schema.arguments, found._schema.arguments
    same = [argument.name for argument in ours] == [argument.name for argument in theirs]
    writes = [argument.alias_info is not None and argument.alias_info.is_write for argument in theirs]
    return found if same and writes[:1] == [True] and not any(writes[1:]) else None
