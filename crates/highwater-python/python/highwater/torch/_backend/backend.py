"""The backend of `torch.compile`."""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Literal

import torch
from torch import fx, nn

from .._autograd.aliases import apart
from .._device.transfers import Transfers
from .._dynamo.calls import around_calls
from .._dynamo.distributed import refuse_cuts
from .._dynamo.exceptions import is_of_dynamo, translate, try_again
from .._dynamo.loss_alone import detach_others, refusing
from .._dynamo.refusals import no_model, refuse_alone, refuse_piece, wrapped_before
from .._dynamo.sizes import for_each_size, is_dynamic
from .._messages.amounts import parse
from .._messages.arguments import kind_of, one_of
from .._messages.errors import while_compiling
from .._plan.choices import Report
from .._plan.costs import Costs
from .._plan.known import Known
from .compiled import Compiled, Planned, spare
from .saved_tensors import Held


GraphBreaks = Literal["refuse", "separate"]
Kernels = Literal["pytorch", "inductor"]
Gradients = Literal["all", "loss"]

# What arguments may be, and what each is for.
WORDS = {
    "graph_breaks": {"refuse": "", "separate": "plans each piece of a model on its own"},
    "kernels": {"pytorch": "", "inductor": "is faster, but no bound"},
    "gradients": {"all": "", "loss": "if only losses are differentiated"},
}


class Call(threading.local):
    """The call of a thread that is under way."""

    ran = False
    model: weakref.ref[nn.Module] | None = None


class Backend:
    """A backend for `torch.compile` that keeps to an amount of memory. See `backend`."""

    def __init__(
        self,
        memory: int | str,
        graph_breaks: GraphBreaks = "refuse",
        host_memory: int | str = 0,
        kernels: Kernels = "pytorch",
        gradients: Gradients = "all",
    ) -> None:
        if isinstance(memory, fx.GraphModule):  # torch.compile calls what it is given
            raise while_compiling(TypeError, 'state the memory: torch.compile(model, backend=highwater.torch.backend("8GiB")), or "highwater" with options')
        if isinstance(memory, nn.Module):
            raise TypeError('a backend takes no model: torch.compile(model, backend=highwater.torch.backend("8GiB"))')
        for name, value in {"graph_breaks": graph_breaks, "kernels": kernels, "gradients": gradients}.items():
            one_of(name, value, WORDS[name])
        if gradients == "loss" and graph_breaks == "separate":
            raise ValueError('gradients="loss" needs graph_breaks="refuse": with "separate", one piece passes gradients to another')
        self.memory, self.host_memory = parse(memory), parse(host_memory, "host_memory")
        if kernels == "inductor" and self.host_memory:
            raise ValueError('host_memory needs kernels="pytorch": Inductor does not keep the order of copies')
        self._transfers = Transfers(self.host_memory)
        self.graph_breaks, self.kernels, self.gradients = graph_breaks, kernels, gradients
        self.reports: list[Report] = []
        """One for each graph that was planned, in order."""
        self._costs = Costs()
        self._known = Known()
        self._held = Held(self.memory)
        self._call = Call()
        self._options: dict[str, Any] | None = None
        """Where it was found by its name: what it was asked for with."""

    def __reduce__(self) -> tuple[Callable[..., Backend], tuple[Any, ...]]:
        """A copy has the settings, and makes plans of its own."""
        if self._options is not None:
            return of_options, (self._options,)
        return Backend, (self.memory, self.graph_breaks, self.host_memory, self.kernels, self.gradients)

    @property
    def __name__(self) -> str:
        """`torch.compile` asks for it at once: there may be no graph to call the backend with."""
        self._around_calls(sys._getframe(1))
        return "highwater"

    @property
    def _ran(self) -> bool:
        """Whether something ran in this thread's call."""
        return self._call.ran

    @_ran.setter
    def _ran(self, ran: bool) -> None:
        self._call.ran = ran

    @property
    def _model(self) -> weakref.ref[nn.Module] | None:
        """The module that this thread calls, if it is one."""
        return self._call.model

    @_model.setter
    def _model(self, model: weakref.ref[nn.Module] | None) -> None:
        self._call.model = model

    def _around_calls(self, caller: FrameType) -> None:
        refuse_cuts()
        around_calls(caller, self)

    def _failed(self, error: BaseException, call: Callable[..., Any] | None, args: Any, kwargs: Any) -> None:
        model = self._model() if self._model else None
        if is_of_dynamo(error) and isinstance(model, nn.parallel.DistributedDataParallel):
            raise wrapped_before() from None
        if is_of_dynamo(error):
            translate(error, no_model, call, args, kwargs)
        if self.graph_breaks == "separate":
            try_again(error)

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any] = (), **kwargs: Any) -> Callable[..., Any]:
        refuse_alone()
        refuse_cuts()
        if ignored := [name for name, value in kwargs.items() if value]:
            raise while_compiling(
                TypeError, f'{" and ".join(ignored)} of torch.compile would be ignored: pass settings to highwater.torch.backend(...), or use backend="highwater"'
            )
        if self.graph_breaks == "refuse":
            refuse_piece(module, self._ran)
        others = detach_others(module) if self.gradients == "loss" else []
        run = for_each_size(module, self._compile, spare) if is_dynamic(module, inputs) else self._compile(module, inputs)
        if others:
            run = refusing(run, others)

        def ran(*arguments: Any) -> Any:
            self._ran = True
            return run(*arguments)

        return ran

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.kernels == "inductor":
            from .inductor import compile_by_inductor  # which takes seconds to import

            planned = Planned(self, inputs, self._held.beside(inputs), 0)
            return apart(lambda module, inputs: compile_by_inductor(module, inputs, planned.for_inductor), module, inputs)
        return Compiled(self, module, inputs)


def backend(
    memory: int | str,
    *others: Any,
    graph_breaks: GraphBreaks = "refuse",
    host_memory: int | str = 0,
    kernels: Kernels = "pytorch",
    gradients: Gradients = "all",
) -> Backend:
    """A backend for `torch.compile` that keeps the tensors of a compiled model within `memory`.

    `memory`: bytes, or text like "8GiB". It is for what a forward and its backward hold: parameters and
    buffers that the model reads, its inputs, activations, and gradients. An optimizer's state is beside it.
    `graph_breaks`: "refuse" raises `GraphBreak` for a model that `torch.compile` cuts into pieces, with the
    line that does it; with "separate" each piece has the memory less what is kept for backwards when it is
    planned: what runs between pieces, and parameters and gradients of others, are beside it.
    `host_memory`: how much of the host's memory tensors may wait in, where copying them there and back takes
    less time than computing them again. It is page-locked for a GPU, and taken when the first step runs. On
    CPUs a device is pretended, to try it out: what waits is in the same memory, beside `memory`.
    `kernels`: "pytorch" runs PyTorch's own, one by one, with eager PyTorch's bits. With "inductor" the plan says
    what Inductor saves and computes again, and Inductor which kernels it fuses and in which order they run:
    faster, but no bound (`Report.is_bound`), and the numbers are Inductor's.
    `gradients`: with "all" anything that a model answers may be differentiated, and memory is planned for a
    gradient of each. With "loss" only tensors without dimensions are, as losses are: logits beside one get no
    gradient, and what differentiates them is a `RuntimeError`. Not together with "separate".

    Where a graph needs more, compiling it raises `OverBudget`, before anything has run. What the model logs
    is left out, as it would cut the graph. Warns (`NothingPlanned`) where `torch.compile` takes nothing of a
    model, and (`AboveMemory`) where forwards that wait for their backward take more than a plan leaves.
    """
    if others and not isinstance(memory, nn.Module):
        raise TypeError(f'settings after memory have names, as in backend("8GiB", graph_breaks="separate"), unlike {others[0]!r}')
    return Backend(memory, graph_breaks, host_memory, kernels, gradients)


@functools.cache
def by_options(**options: Any) -> Backend:
    return Backend(**options)


def named(module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The backend by its name: `torch.compile(model, backend="highwater", options={"memory": "8GiB"})`, or
    with the memory in the environment, as `HIGHWATER_MEMORY`."""
    if not hasattr(torch._TorchCompileWrapper, "_dynamo_backend_init"):
        raise RuntimeError(f"torch {torch.__version__} does not support this backend by name: use backend=highwater.torch.backend(...)")
    return of_keywords(kwargs)(module, inputs)


def of_keywords(kwargs: dict[str, Any]) -> Backend:
    """The backend for what `torch.compile` was called with."""
    if kwargs.get("mode") not in (None, "default"):
        raise ValueError(f"mode={kwargs['mode']!r} is for Inductor: leave it out with backend=\"highwater\"")
    return of_options(kwargs.get("options") or {})


def of_options(options: dict[str, Any]) -> Backend:
    if not isinstance(options, dict):
        raise TypeError(f'options must be a dict such as {{"memory": "8GiB"}}, not {kind_of(options)}')
    unknown = [str(name) for name in options if name not in ("memory", "host_memory", *WORDS)]
    if unknown:
        raise ValueError(f"options={options!r}: {' and '.join(unknown)} cannot be set there. The settings are memory, host_memory, {', '.join(WORDS)}")
    memory, name = options.get("memory"), "memory"
    if memory is None:
        memory, name = os.environ.get("HIGHWATER_MEMORY"), "HIGHWATER_MEMORY"
    if memory is None:
        raise ValueError('state the memory: options={"memory": "8GiB"}, or HIGHWATER_MEMORY=8GiB in the environment')
    options = {**options, "memory": parse(memory, name)}
    if "host_memory" in options:
        options["host_memory"] = parse(options["host_memory"], "host_memory")
    for name in options.keys() & WORDS.keys():
        one_of(name, options[name], WORDS[name])
    backend = by_options(**options)
    backend._options = options
    return backend


def named_init() -> None:
    caller = sys._getframe(1)
    wrapper = caller.f_locals.get("backend")
    of_keywords(getattr(wrapper, "kwargs", {}))._around_calls(caller)


named._dynamo_backend_init = named_init  # type: ignore[attr-defined]
