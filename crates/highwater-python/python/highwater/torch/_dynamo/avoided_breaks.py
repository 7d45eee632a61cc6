"""What Dynamo breaks a graph at otherwise, and need not: PyTorch's fused module for training with quantization,
`out=` that is a part of more, `requires_grad = False` where it is so, backwards that ask for strides where a result of
their forward is None, and hooks that Transformers installs when a model is first called. And `addcdiv`, which Dynamo
writes out as operations that round otherwise."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo import _trace_wrapped_higher_order_op as rewrites
from torch._dynamo import trace_rules
from torch._dynamo.exc import RestartAnalysis, unimplemented
from torch._dynamo.source import GlobalStateSource
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import builtin
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.functions import UserFunctionVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.nn.modules import module

from .patches import is_active

# Dynamo skips them for branches that they have elsewhere.
TRACED = tuple(os.path.join(os.path.dirname(torch.__file__), "ao", "quantization", name) for name in ("fake_quantize.py", "quantize.py"))


def refuse_unsized(args: Sequence[VariableTracker]) -> None:
    """Breaks the graph at observers that have seen nothing: their first kernel gives their buffers a size."""
    if any(isinstance(example := example_of(value), torch.Tensor) and not example.numel() for value in args[3:7]):
        unimplemented(
            gb_type="Observer without statistics",
            context="fused_moving_avg_obs_fake_quant",
            explanation="An observer of FusedMovingAvgObsFakeQuantize gets its size when it first sees a tensor: run the model once before torch.compile.",
            hints=[],
        )


def example_of(value: VariableTracker) -> Any:
    value = value.realize()
    return value.proxy.node.meta.get("example_value") if isinstance(value, TensorVariable) else None


def is_part(value: VariableTracker) -> bool:
    """Whether something is a tensor with gaps."""
    example = example_of(value)
    return isinstance(example, torch.Tensor) and not example.is_contiguous()


def written_to_part(call: Any, tx: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """`torch.mm(a, b, out=part)` as `part.copy_(torch.mm(a, b))`, which are the same numbers."""
    out = kwargs["out"].realize()
    answer = call(tx, args, {name: value for name, value in kwargs.items() if name != "out"})
    result, place = example_of(answer), example_of(out)
    if not isinstance(result, torch.Tensor) or (result.shape, result.dtype) != (place.shape, place.dtype):
        return call(tx, args, kwargs)  # type: ignore[no-any-return]
    out.call_method(tx, "copy_", [answer], {})
    return out


def is_without(value: VariableTracker, name: VariableTracker, wanted: VariableTracker) -> bool:
    """Whether something is `value.requires_grad = False`, and changes nothing."""
    if not (name.is_python_constant() and name.as_python_constant() == "requires_grad" and wanted.is_python_constant()):
        return False
    example = example_of(value)
    return wanted.as_python_constant() is False and isinstance(example, torch.Tensor) and not example.requires_grad


def backward_of_rows(backward: Any) -> Any:
    """Dynamo's form of an `autograd.Function`'s backward that asks for strides: gradients come row by row. Those of results
    that are None stay None."""

    def new_backward(ctx: Any, *gradients: Any) -> Any:
        return backward(ctx, *[gradient if gradient is None else gradient.contiguous() for gradient in gradients])

    return new_backward


# How Transformers installs hooks for hidden states, attentions and a router's loss: at the first call, within a lock.
INSTALLS = "transformers.utils.output_capturing", "maybe_install_capturing_hooks"


def installed(function: Any, args: Sequence[VariableTracker]) -> None:
    """Installs a model's hooks where it has none yet, and has Dynamo trace it again with them."""
    model = getattr(args[0].realize(), "value", None) if args else None
    if model is not None and not getattr(model, "_output_capturing_hooks_installed", False):
        function(model)
        raise RestartAnalysis(restart_reason="Transformers installed hooks")


def global_hooks() -> tuple[tuple[int, ...], ...]:
    """The hooks of all modules, of which Dynamo asks when it traces alone."""
    return tuple(tuple(hooks) for hooks in HOOKS)


HOOKS = [hooks for name, hooks in vars(module).items() if name.startswith("_global_") and name.endswith("hooks")]


def guard_hooks(builder: Any, _: Any) -> None:
    traced = global_hooks()
    builder.guard_manager.root.add_lambda_guard(lambda _: global_hooks() == traced, ["the hooks of all modules are those that were traced"], None)


def install() -> None:
    """Has Dynamo ask here, once for all: it does what it did outside of `branches_as_eager`."""
    known_call: Any = TorchInGraphFunctionVariable.call_function
    setter = next((kind, name) for kind in vars(builtin).values() for name in ("call_setattr", "_call_setattr") if name in getattr(kind, "__dict__", ()))
    known_set: Any = getattr(*setter)
    known_inline: Any = UserFunctionVariable.call_function
    known_rule = trace_rules.is_torch_inline_allowed
    known_start: Any = InstructionTranslator.__init__
    known_backward = rewrites.autograd_function_backward_rewritten

    @functools.wraps(known_call)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        call = functools.partial(known_call, self)
        if self.value is torch.fused_moving_avg_obs_fake_quant and is_active():
            refuse_unsized(args)
        if self.value is torch.addcdiv and len(args) == 3 and is_active():
            # Dynamo writes it out only where all tensors are given by position.
            args, kwargs = args[:2], {**kwargs, "tensor2": args[2]}
        if "out" in kwargs and is_active() and is_part(kwargs["out"]):
            return written_to_part(call, tx, args, kwargs)
        return call(tx, args, kwargs)  # type: ignore[no-any-return]

    @functools.wraps(known_inline)
    def inlined(self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        if (self.fn.__module__, self.fn.__name__) == INSTALLS and is_active():
            installed(self.fn, args)
        return known_inline(self, tx, args, kwargs)  # type: ignore[no-any-return]

    @functools.wraps(known_set)
    def call_setattr(self: Any, tx: Any, obj: VariableTracker, name: VariableTracker, value: VariableTracker) -> VariableTracker | None:
        return value if is_active() and is_without(obj, name, value) else known_set(self, tx, obj, name, value)

    @functools.wraps(known_rule)
    def is_torch_inline_allowed(filename: str) -> bool:
        return known_rule(filename) or is_active() and filename in TRACED

    @functools.wraps(known_backward)
    def autograd_function_backward_rewritten(backward: Any) -> Any:
        return backward_of_rows(backward) if is_active() else known_backward(backward)

    @functools.wraps(known_start)
    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        known_start(self, *args, **kwargs)
        if is_active():
            self.output.guards.add(GlobalStateSource().make_guard(guard_hooks))

    InstructionTranslator.__init__ = start  # type: ignore[method-assign]
    rewrites.autograd_function_backward_rewritten = autograd_function_backward_rewritten  # type: ignore[assignment]
    TorchInGraphFunctionVariable.call_function = call_function  # type: ignore[method-assign]
    UserFunctionVariable.call_function = inlined  # type: ignore[method-assign]
    setattr(*setter, call_setattr)
    trace_rules.is_torch_inline_allowed = is_torch_inline_allowed


install()
