"""A graph of Dynamo's with its plans: one for each amount of gradients, and for each choice of attention kernels."""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

from .._autograd.gradients import input_of, own_gradients, without_written
from .._autograd.like_eager import like_eager, traced_like_eager
from .._device.device import device_of
from .._device.held import held, storage_key, unseen
from .._device.transfers import TakeRoom, Transfers
from .._dynamo.calls import passed
from .._dynamo.modes import attention_kernels
from .._emit.boxed import boxed, compile_graph
from .._emit.emit import emit
from .._graph.joint import JointGraph
from .._graph.nodes import PASSING, refuse_sizeless
from .._plan.choice import Choice
from .._plan.choices import REPORTS, Choices, OverBudget, Report
from .._plan.costs import Costs
from .._plan.known import Known
from .saved_tensors import Held, warn_of_gradients


class Planning(Protocol):
    """A backend, as its plans see it."""

    memory: int
    host_memory: int
    reports: list[Report]
    _costs: Costs
    _known: Known
    _held: Held
    _transfers: Transfers
    @property
    def _model(self) -> weakref.ref[nn.Module] | None: ...

    @property
    def graph_breaks(self) -> str: ...


# A graph has so many plans beside gradients at a time: one without, and those with the most room.
BESIDE = 4


class Compiled:
    """A graph, with a plan for each amount of gradients that there may be when it starts, and for each choice of
    attention kernels."""

    def __init__(self, backend: Planning, module: fx.GraphModule, inputs: Sequence[Any]) -> None:
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

    def __init__(self, backend: Planning, inputs: Sequence[Any], saved: int, gradients: int) -> None:
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
        without_written(module.graph, self.inputs)
        joint = JointGraph(module, outputs)
        wish(joint)
        choice, report = self._choose(joint)
        self.backend.reports[-1] = replace(report, is_bound=False)
        return emit(joint, choice, self.backend._transfers, overwrites=False)

    def _plan(self, module: fx.GraphModule, outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        refuse_sizeless(module.graph)
        like_eager(module.graph)
        without_written(module.graph, self.inputs)
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
        others = [*model.parameters(), *model.buffers(), *passed()] if model is not None and backend.graph_breaks == "refuse" else []
        self.unused = unseen(others, self.inputs, joint.device)
        choices = Choices(joint, backend._costs, self.saved + self.gradients + self.unused, backend.host_memory)
        if self.unused:
            joint.given_is += ", with those that the call does not use"
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
