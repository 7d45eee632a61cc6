"""Which kernels may write their result over an input, to the same bits: a table, which tests carry out.

The form in place of an operation may round otherwise: loops over complex numbers are vectorized where nothing
overlaps, and then multiply and add in one go. So what the table does not name is not rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

aten = torch.ops.aten

FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool})
NUMBERS = FLOATS | WHOLE

# Operations whose form in place is that of the same name with `_`, for floating-point numbers of any layout.
OF_FLOATS = """
    acos acosh asin asinh atan atan2 atanh celu ceil copysign.Scalar copysign.Tensor cos cosh deg2rad digamma
    div.Scalar div.Tensor elu erf erfc erfinv exp exp2 expm1 floor frac gelu hardsigmoid hardswish hardtanh
    leaky_relu lerp.Scalar lerp.Tensor lgamma log log10 log1p log2 logit mish nan_to_num rad2deg reciprocal
    round rsqrt selu sigmoid silu sin sinc sinh sqrt tan tanh trunc addcdiv addmm baddbmm
"""
# The same, for whole numbers too.
OF_NUMBERS = """
    abs add.Scalar add.Tensor addcmul clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor
    div.Scalar_mode div.Tensor_mode fill.Scalar fill.Tensor fmod.Scalar fmod.Tensor masked_fill.Scalar
    masked_fill.Tensor mul.Tensor neg relu remainder.Scalar remainder.Tensor sgn sign sub.Scalar sub.Tensor
    threshold tril triu zero
    cumsum index_add index_copy index_fill.int_Scalar index_put scatter.src scatter.value scatter_add
"""
OF_WHOLE = """
    bitwise_and.Scalar bitwise_and.Tensor bitwise_not bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar
    bitwise_xor.Tensor eq.Scalar eq.Tensor ge.Scalar ge.Tensor gt.Scalar gt.Tensor le.Scalar le.Tensor
    logical_and logical_not logical_or logical_xor lt.Scalar lt.Tensor ne.Scalar ne.Tensor
"""

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
class Form:
    """How an operation writes over its first argument, with the bits of the other form."""

    target: torch._ops.OpOverload
    out: str | None
    """The keyword that the first argument is given by once more."""
    dtypes: frozenset[torch.dtype]
    """Of the first argument."""


def named(names: str) -> Iterable[torch._ops.OpOverload]:
    """Operations by their names, where this PyTorch has them."""
    for name in names.split():
        base, _, overload = name.partition(".")
        packet = getattr(aten, base, None)
        if packet is not None and (overload or "default") in packet.overloads():
            yield getattr(packet, overload or "default")


def table() -> dict[Any, Form]:
    found = {target: Form(form, out, FLOATS) for target, (form, out) in (OUT | ROWS).items()}
    for names, dtypes in ((OF_FLOATS, FLOATS), (OF_NUMBERS, NUMBERS), (OF_WHOLE, WHOLE)):
        for target in named(names):
            form = underscored(target)
            if form is not None:
                found[target] = Form(form, None, dtypes)
    return found


@dataclass(frozen=True, slots=True)
class InPlace:
    """Another form of a call, which writes to its first argument."""

    target: torch._ops.OpOverload
    input: int
    """The position in the kernel's inputs of the storage that is written over."""
    out: str | None = None
    """The keyword that the first argument is given by once more."""


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


# By operation. Complex numbers are in no row.
FORMS = table()
