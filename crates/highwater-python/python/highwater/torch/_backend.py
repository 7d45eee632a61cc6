"""The backend of `torch.compile`."""

from __future__ import annotations

import functools
import math
import os
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from ._aliases import apart
from ._arguments import kind_of, one_of
from ._boxed import boxed
from ._calls import around_calls
from ._choices import Choice, Choices, OverBudget, Report
from ._costs import Costs
from ._device import device_of
from ._distributed import refuse_cuts
from ._effects import storage_key
from ._emit import emit
from ._errors import while_compiling
from ._gradients import input_of, own_gradients
from ._graph import PASSING, JointGraph, refuse_sizeless
from ._known import Known
from ._like_eager import like_eager, traced_like_eager
from ._loss_alone import detach_others, refusing
from ._memory import parse
from ._modes import attention_kernels
from ._pieces import Held, no_model, refuse_piece, warn_of_gradients, wrapped_before
from ._raised import is_of_dynamo, translate, try_again
from ._rehearsal import held, unseen
from ._sizes import for_each_size, is_dynamic
from ._transfers import TakeRoom, Transfers

# Of more plans the first reports are dropped.
REPORTS = 1024

GraphBreaks = Literal["refuse", "separate"]
Kernels = Literal["pytorch", "inductor"]
Gradients = Literal["all", "loss"]

# What arguments may be, and what each is for.
WORDS = {
    "graph_breaks": {"refuse": "", "separate": "plans each piece of a model on its own"},
    "kernels": {"pytorch": "", "inductor": "is faster, but no bound"},
    "gradients": {"all": "", "loss": "if only losses are differentiated"},
}


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
        self._ran = False
        self._model: weakref.ref[nn.Module] | None = None
        """The module that is called, if it is one."""
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

    def _around_calls(self, caller: FrameType) -> None:
        refuse_cuts()
        around_calls(caller, self)

    def _failed(self, error: BaseException, call: Callable[..., Any] | None, args: Any, kwargs: Any) -> None:
        model = self._model() if self._model else None
        if is_of_dynamo(error) and isinstance(model, nn.parallel.DistributedDataParallel):
            raise wrapped_before() from None
        if is_of_dynamo(error):
            translate(error, no_model, call, args, kwargs)
        elif self.graph_breaks == "separate":
            try_again(error)

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
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
            from ._inductor import compile_by_inductor  # which takes seconds to import

            planned = Planned(self, inputs, self._held.beside(inputs), 0)
            return apart(lambda module, inputs: compile_by_inductor(module, inputs, planned.for_inductor), module, inputs)
        return Compiled(self, module, inputs)


# A graph has so many plans beside gradients at a time: one without, and those with the most room.
BESIDE = 4


class Compiled:
    """A graph, with a plan for each amount of gradients that there may be when it starts, and for each choice of
    attention kernels."""

    def __init__(self, backend: Backend, module: fx.GraphModule, inputs: Sequence[Any]) -> None:
        self._backend, self._module = backend, module
        self._plans: defaultdict[tuple[bool, ...], list[tuple[Planned, Callable[..., Any]]]] = defaultdict(list)
        """By attention kernels."""
        self._too_much: float = math.inf
        """Bytes of gradients beside which no plan fits."""
        self._beside(inputs, held_gradients(inputs))

    def __call__(self, *inputs: Any) -> Any:
        return self._beside(inputs, held_gradients(inputs))(*inputs)

    def spare(self, growth: float, inputs: Sequence[Any]) -> bool:
        """Whether the graph without a plan fits, with tensors that are `growth` times as large: what is made on the
        way may grow by its square."""
        planned, _ = next(iter(self._plans.values()))[0]
        if planned.peak is None:
            return False
        given = sum({storage_key(leaf): leaf.untyped_storage().nbytes() for leaf in inputs if isinstance(leaf, Tensor)}.values())
        return planned.library + planned.unused + given + self._backend._held.beside(inputs) + planned.peak * growth**2 <= self._backend.memory

    def _plan(self, inputs: Sequence[Any], gradients: int) -> Callable[..., Any]:
        planned = Planned(self._backend, inputs, self._backend._held.beside(inputs), gradients)
        compile = aot_autograd(
            fw_compiler=planned.forward,
            bw_compiler=compile_graph,
            inference_compiler=planned.infer,
            partition_fn=planned.partition,
        )

        def compile_for(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            planned.inputs = inputs
            try:
                compiled: Callable[..., Any] = compile(module, inputs)
                return compiled
            finally:
                planned.inputs = ()  # A batch is not to outlive its step.

        run = traced_like_eager(compile_for, self._module, inputs)
        plans = self._plans[planned.attention]
        plans.append((planned, run))
        if len(plans) > BESIDE:
            del plans[1]
        return run

    def _beside(self, inputs: Sequence[Any], gradients: int) -> Callable[..., Any]:
        """What to run beside so many bytes of gradients, which backwards add to."""
        plans = self._plans[attention_kernels()]
        found = next((run for planned, run in plans if gradients <= planned.most_gradients), None)
        if found or plans and gradients >= self._too_much:
            return found or plans[0][1]
        try:
            return self._plan(inputs, gradients)
        except OverBudget as error:
            if not gradients:
                raise
            # They may be gone before the backward.
            self._too_much = gradients
            if not plans:
                self._plan(inputs, 0)
            planned, run = plans[0]
            warn_of_gradients(gradients, planned.most_gradients, error)
            return run


def spare(run: Callable[..., Any], growth: float, inputs: Sequence[Any]) -> bool:
    return isinstance(run, Compiled) and run.spare(growth, inputs)


class Planned:
    """A graph that a backend plans. `saved`: bytes that other graphs hold for their backwards; `gradients`: those
    that backwards have left."""

    def __init__(self, backend: Backend, inputs: Sequence[Any], saved: int, gradients: int) -> None:
        self.backend, self.inputs, self.saved, self.gradients = backend, inputs, saved, gradients
        self._room = backend.memory
        self.attention = attention_kernels()
        self._kept: list[int] = []
        self.peak: int | None = None
        """Without gradients: the peak of live bytes besides the inputs, with each kernel run once."""
        self._fastest = self.library = self.unused = 0

    @property
    def most_gradients(self) -> int:
        """Bytes of gradients that the memory has room for, beside the plan."""
        return self._room - self.saved + self.gradients

    def partition(
        self, module: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Plans a joint graph, and cuts it in two where the plan goes from forward to backward."""
        forward, backward = self._plan(module, num_fwd_outputs)
        answers: Any = forward.graph.output_node().args[0]
        self._kept = kept(answers, num_fwd_outputs, all=self.backend.graph_breaks == "separate")
        return forward, backward

    def forward(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        warn = self.backend.graph_breaks == "refuse"
        return self.backend._held.watched(boxed(module), self._room if warn else None, self._kept)

    def infer(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        """Plans a graph that nobody wants gradients of."""
        outputs: Any = module.graph.output_node().args[0]
        run = boxed(self._plan(module, len(outputs))[0])
        self.peak = self._fastest
        return run

    def for_inductor(self, module: fx.GraphModule, outputs: int, wish: Callable[[JointGraph], None]) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Plans a joint graph of Inductor's."""
        refuse_sizeless(module.graph)
        joint = JointGraph(module, outputs)
        wish(joint)
        choice, report = self._choose(joint)
        self.backend.reports[-1] = replace(report, is_bound=False)
        return emit(joint, choice, self.backend._transfers, overwrites=False)

    def _plan(self, module: fx.GraphModule, outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        refuse_sizeless(module.graph)
        like_eager(module.graph)
        own_gradients(module.graph, self.inputs, outputs)
        pieces = self.backend.graph_breaks == "separate"
        for place in module.graph.find_nodes(op="placeholder"):
            value = input_of(place, self.inputs)
            # The next piece may write to what this one reads, also where autograd does not mind. And autograd keeps
            # no tensor of `torch.inference_mode` for a backward.
            if pieces and not isinstance(value, torch.nn.Parameter) or isinstance(value, torch.Tensor) and value.is_inference():
                place.meta[PASSING] = True
        joint = JointGraph(module, outputs)
        return emit(joint, self._choose(joint)[0], self.backend._transfers)

    def _choose(self, joint: JointGraph) -> tuple[Choice, Report]:
        backend = self.backend
        model = backend._model() if backend._model else None
        others = [*model.parameters(), *model.buffers()] if model is not None and backend.graph_breaks == "refuse" else []
        self.unused = unseen(others, self.inputs, joint.device)
        choices = Choices(joint, backend._costs, self.saved + self.gradients + self.unused, backend.host_memory)
        if self.unused:
            joint.given_is += ", with parameters that the call does not use"
        if self.gradients:
            joint.given_is += ", with gradients of earlier backwards"
        if self.saved:
            joint.given_is += ", and what other graphs hold for their backwards"
        choice, report = backend._known.choose(choices, backend.memory)
        backend.reports.append(report)
        del backend.reports[:-REPORTS]
        self._fastest, self.library = choices.fastest.needed, choices.library_bytes
        self._room = backend.memory - (report.live_bytes - self.saved)
        return choice, report


def kept(answers: Sequence[Any], outputs: int, all: bool) -> list[int]:
    """Positions of what a forward answers for its backward alone: of what it makes, or all."""
    own = set(answers[outputs:]) - set(answers[:outputs])
    return [i for i, node in enumerate(answers) if i >= outputs and not is_room(node) and (all or node in own and node.op == "call_function")]


def held_gradients(arguments: Iterable[Any]) -> int:
    """Bytes of the gradients that leaves have."""
    leaves = [leaf for leaf in arguments if isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad]
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    return held(gradients, device_of(gradients)) if gradients else 0


def is_room(node: Any) -> bool:
    """Whether something is on the host."""
    return isinstance(node, fx.Node) and isinstance(node.target, TakeRoom)


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    context = TracingContext.try_get()
    if context and context.fw_metadata:
        # Backwards copy what they overwrite where somebody will read it again: `retain_graph=True` is no error.
        context.fw_metadata.bw_donated_idxs = []
    return boxed(module)


def backend(
    memory: int | str,
    *,
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
