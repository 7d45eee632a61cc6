"""Refusals of models that Dynamo does not take as one graph: each names the line that breaks it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.exc import Unsupported
from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
from torch._dynamo.symbolic_convert import InstructionTranslator, tls
from torch._dynamo.utils import graph_break_reasons
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .._messages.errors import Shortened, without_advice
from .._messages.locations import CannotPlan, is_of_user, line_of_caller, shortened
from .patches import active


class GraphBreak(Shortened):
    """A model that `torch.compile` cannot take as one graph. The message names the line that breaks it."""


def refuse_alone() -> None:
    """Refuses a call by somebody else than Dynamo."""
    if getattr(tls, "current_tx", None) is None:
        raise TypeError("a backend is called by torch.compile: torch.compile(model, backend=highwater.torch.backend(memory))")


def refuse_piece(module: fx.GraphModule, after_another: bool) -> None:
    """Refuses a graph that ends in a break, or follows one, or another graph of the same call."""
    reason: Any = getattr(module, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        raise refusal(f"breaks it at {place_of(reason.user_stack)}", reason.reason)
    code = InstructionTranslator.current_tx().output.root_tx.f_code
    resumed = re.fullmatch(TORCH_DYNAMO_RESUME_IN_PREFIX + r"_.*_at_(\d+).*", code.co_name)
    if resumed:
        place = shortened(f"{code.co_filename}:{resumed[1]}")
        reason = next((reason for reason in graph_break_reasons if place in places(reason.user_stack)), None)
        raise refusal(f"breaks it at {place_of(reason.user_stack) if reason else place}", reason.reason if reason else "")
    if after_another:
        begins = f"splits it into pieces, one of which begins at {shortened(f'{code.co_filename}:{code.co_firstlineno}')}"
        # A function that cannot be cut is left out, and those that it calls are taken.
        reason = next((reason for reason in reversed(graph_break_reasons) if reason.graph_break and reason.user_stack), None)
        raise refusal(f"{begins}; it last broke at {place_of(reason.user_stack)}" if reason else begins, reason.reason if reason else "")


SEPARATE = 'or plan each piece on its own: highwater.torch.backend(memory, graph_breaks="separate")'


def refusal(what: str, reason: str = "") -> GraphBreak:
    return GraphBreak(
        f"the model is not one graph: torch.compile {what}{explained(reason)}. Each piece would use all of the memory. "
        "Change that line (fullgraph=True explains more), "
        f"{SEPARATE}."
    )


BACKWARD_HOOKS = "Module-level backwards hooks"


def no_backward_hooks() -> GraphBreak:
    return GraphBreak(
        "a module has a backward hook (register_full_backward_hook, or a pre-hook), which torch.compile does not take. "
        "A hook of a tensor sees the same gradient: h.register_hook(...) within the forward"
    )


def wrapped_before() -> GraphBreak:
    return GraphBreak(
        "torch.compile does not take a DistributedDataParallel as one graph. Compile the model before it is wrapped: "
        "model.compile(backend=highwater.torch.backend(memory)), then DistributedDataParallel(model)"
    )


def refuse_functions(values: Iterable[Any], name: Callable[[int], str]) -> None:
    """Refuses tensors whose class has a `__torch_function__` of its own: Dynamo forgets the class of some results, which are then
    computed as of plain tensors. `name`: of the tensor at a place."""
    for i, value in enumerate(values):
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor) and has_own_function(type(value)) and not is_traceable_wrapper_subclass(value):
            kind = type(value).__name__
            raise CannotPlan(f"{name(i)} is a {kind}, whose __torch_function__ a graph does not always call: pass a plain tensor, .as_subclass(torch.Tensor)")


def has_own_function(kind: type[Tensor]) -> bool:
    own: Any = kind.__torch_function__
    known: Any = Tensor.__torch_function__
    return own is not torch._C._disabled_torch_function_impl and getattr(own, "__func__", own) is not known.__func__


# Where Dynamo wants to know a number that it has as a tensor.
OF_NUMBERS = ("`Tensor.item()`", "aten._local_scalar_dense", "UnspecializedPythonVariable")


def known_cause(broken: Unsupported) -> GraphBreak | None:
    """The refusal of what can be said better than by Dynamo."""
    if BACKWARD_HOOKS in str(broken):
        return no_backward_hooks()
    if any(words in str(broken) for words in OF_NUMBERS) or "python_type()" in str(broken) and getattr(active, "random_calls", None):
        stack = broken.real_stack or ()
        return needs_number(place_of(stack), code_of(stack))
    return None


def no_model(broken: Unsupported) -> GraphBreak:
    """The refusal of a model that Dynamo could not take as one graph."""
    if known := known_cause(broken):
        return known
    return refusal(f"breaks it at {place_of(broken.real_stack or ())}", str(broken))


def no_step(broken: Unsupported) -> GraphBreak:
    """The refusal of a step that Dynamo could not take as one graph."""
    if known := known_cause(broken):
        return known
    return GraphBreak(
        f"the step is not one graph: torch.compile breaks it at {place_of(broken.real_stack or ())}{explained(str(broken))}. Change that line, "
        f"{SEPARATE}. In its own words:\n{without_advice(str(broken))}"
    )


def needs_number(place: str, code: str = "") -> GraphBreak:
    """The refusal of code that asks for a number which only kernels know, or Python's generator. `code`: the line."""
    if getattr(active, "random_calls", None) and not re.search(r"\.(item|tolist)\(", code):
        return GraphBreak(
            f"a size, a position, a branch or an argument at {place} follows from a number that Python's random draws, which no plan can know before. "
            f"Draw it before the call and pass it in, {SEPARATE}"
        )
    return GraphBreak(
        f"a size, a branch or an argument at {place} follows from a number that the model computes or draws (.item(), random numbers), which no plan can "
        "know before. Pass it in as a Python number, compute with tensors (torch.where), have a mask in place of a size, "
        + SEPARATE
    )


def explained(reason: str) -> str:
    """What Dynamo says of a break, in brackets."""
    if reason.startswith("generic_jump "):
        reason = "a branch by the value of a tensor"
    found = re.search(r"Explanation: (.+)", reason) or re.search(r"(.+)", reason)
    # What it says to set may not work here.
    return f" ({found[1].partition('. Set ')[0].rstrip('.')})" if found else ""


def places(stack: Sequence[traceback.FrameSummary]) -> list[str]:
    return [shortened(f"{frame.filename}:{frame.lineno}") for frame in stack]


def code_of(stack: Sequence[traceback.FrameSummary]) -> str:
    """The code at the last line of a stack that is not PyTorch's own."""
    return next((frame.line or "" for frame in reversed(stack) if is_of_user(frame.filename)), "")


def place_of(stack: Sequence[traceback.FrameSummary]) -> str:
    """The last line of a stack that is not PyTorch's own."""
    lines = places([frame for frame in stack if is_of_user(frame.filename)])
    return lines[-1] if lines else line_of_caller()
