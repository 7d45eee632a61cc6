"""Models that `torch.compile` takes in pieces, and what one piece holds while another runs."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, fx, nn
from torch._dynamo.exc import Unsupported
from torch._dynamo.utils import graph_break_reasons
from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
from torch._dynamo.symbolic_convert import InstructionTranslator, tls
from torch.multiprocessing.reductions import StorageWeakRef

from ._calls import level_of_user, line_of_caller
from ._errors import Shortened, without_advice
from ._memory import show
from ._where import is_of_user, shortened


# From so many remembered storages on, those that are gone are forgotten.
SWEEP = 256


class GraphBreak(Shortened):
    """A model that `torch.compile` cannot take as one graph. The message names the line that breaks it."""


class AboveMemory(UserWarning):
    """What is held beside a plan may bring it above the memory that was stated."""


def refuse_piece(module: fx.GraphModule, after_another: bool) -> None:
    """Refuses a graph that ends in a break, or follows one, or another graph of the same call."""
    reason: Any = getattr(module, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        raise refusal(f"breaks it at {place_of(reason.user_stack)}", reason.reason)
    if getattr(tls, "current_tx", None) is None:
        raise TypeError("a backend is called by torch.compile: torch.compile(model, backend=highwater.torch.backend(memory))")
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


def refusal(what: str, reason: str = "") -> GraphBreak:
    return GraphBreak(
        f"the model is not one graph: torch.compile {what}{explained(reason)}. Each piece would use all of the memory. "
        "Change that line (fullgraph=True explains more), "
        'or plan each piece on its own: highwater.torch.backend(memory, graph_breaks="separate").'
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


def no_model(broken: Unsupported) -> GraphBreak:
    """The refusal of a model that Dynamo could not take as one graph."""
    if BACKWARD_HOOKS in str(broken):
        return no_backward_hooks()
    return refusal(f"breaks it at {place_of(broken.real_stack or ())}", str(broken))


def no_step(broken: Unsupported) -> GraphBreak:
    """The refusal of a step that Dynamo could not take as one graph."""
    if BACKWARD_HOOKS in str(broken):
        return no_backward_hooks()
    return GraphBreak(
        f"the step is not one graph: torch.compile breaks it at {place_of(broken.real_stack or ())}{explained(str(broken))}. Change that line, "
        f'or plan each piece on its own: highwater.torch.backend(memory, graph_breaks="separate"). In its own words:\n{without_advice(str(broken))}'
    )


def needs_number(place: str) -> GraphBreak:
    """The refusal of code that asks for a number which only kernels know."""
    return GraphBreak(
        f"a size, a branch or an argument at {place} follows from a number that the model computes or draws (.item(), random numbers), which no plan can "
        "know before. Pass it in as a Python number, compute with tensors (torch.where), or have a mask in place of a size"
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


def place_of(stack: Sequence[traceback.FrameSummary]) -> str:
    """The last line of a stack that is not PyTorch's own."""
    lines = places([frame for frame in stack if is_of_user(frame.filename)])
    return lines[-1] if lines else line_of_caller()


def warn_of_gradients(held: int, room: int, refusal: Exception) -> None:
    """Tells of gradients that a plan has no room for, and no other plan has."""
    message = (
        f"gradients of earlier backward passes use {show(held)}, and the plan leaves {show(room)} for them: call zero_grad() before the forward, "
        f"or state more memory if gradients are accumulated. {refusal}"
    )
    warnings.warn(message, AboveMemory, stacklevel=level_of_user())


class Held:
    """What forwards have kept for backwards that are still to come."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._storages: dict[StorageWeakRef, int] = {}
        self._sweep_at = SWEEP
        self._warned = False

    def keep(self, saved: Iterable[Any]) -> None:
        """Something is kept from here on. Parameters are held by the model."""
        self._sweep_now_and_then()
        for leaf in saved:
            if isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter):
                storage = leaf.untyped_storage()
                self._storages[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]

    def _sweep_now_and_then(self) -> None:
        # A weak reference keeps part of a storage alive. Backwards have freed the oldest or the newest when another
        # step begins; where somebody holds both, sweeping at twice what was left costs little per step.
        ends = [next(iter(self._storages)), next(reversed(self._storages))] if self._storages else []
        if any(end.expired() for end in ends) or len(self._storages) > self._sweep_at:  # type: ignore[no-untyped-call]
            self._sweep()
            self._sweep_at = max(SWEEP, 2 * len(self._storages))

    def _sweep(self) -> None:
        """Forgets what is gone."""
        self._storages = {storage: size for storage, size in self._storages.items() if not storage.expired()}  # type: ignore[no-untyped-call]

    def beside(self, inputs: Iterable[Any]) -> int:
        """Bytes of what is kept and is not among the inputs of a graph."""
        self._sweep()
        if not self._storages:
            return 0
        given = {StorageWeakRef(leaf.untyped_storage()) for leaf in inputs if isinstance(leaf, Tensor)}  # type: ignore[no-untyped-call]
        return sum(size for storage, size in self._storages.items() if storage not in given)

    def watched(self, run: Callable[[list[Any]], Any], room: int | None, kept: Sequence[int]) -> Callable[[list[Any]], Any]:
        """A forward that keeps some of what it answers, and whose plan leaves so much room for others, if that
        is to be watched."""

        def watching(arguments: list[Any]) -> Any:
            if room is not None and self._storages and not self._warned and (beside := self.beside(arguments)) > room:
                self._warned = True
                message = (
                    f"earlier forward passes hold {show(beside)} until their backward, and the plan of this one leaves {show(room)} of "
                    f"{show(self._memory)} for them: call backward before the next forward, or compile one function that calls both."
                )
                warnings.warn(message, AboveMemory, stacklevel=level_of_user())
            answer = run(arguments)
            self.keep(answer[i] for i in kept)
            return answer

        watching._boxed_call = True  # type: ignore[attr-defined]
        return watching
