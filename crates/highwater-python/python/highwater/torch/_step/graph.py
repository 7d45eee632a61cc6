"""The graph of a whole step: forward, backward and updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor, fx, nn
from torch.amp import GradScaler
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.descriptors import PlainAOTOutput
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .._autograd.gradients import input_of, is_laid_out, laid_out, places_of_gradients, without_written
from .._autograd.like_eager import like_eager, traced_like_eager
from .._device.device import Device, device_of
from .._device.held import held, storage_key, unseen
from .._device.transfers import Transfers
from .._dynamo.calls import passed
from .._dynamo.sizes import for_each_size, is_dynamic
from .._emit.boxed import compile_graph
from .._emit.emit import emit
from .._graph.joint import JointGraph
from .._graph.nodes import CELL, COST, HELD, WRITES, refuse_sizeless, tensors
from .._messages.locations import CannotPlan
from .._optim.optimizers import Optimizers
from .._optim.states import States
from .._optim.updates import Updates
from .._plan.choices import REPORTS, Choices, Report
from .._plan.costs import Prices
from .._plan.known import Known
from .clip import add_coefficient, is_one_kind, scratch_bytes

# What of a node's meta says where it comes of.
ORIGIN = ("nn_module_stack", "fwd_nn_module_stack", "stack_trace")
# `GradScaler` holds its scale and a count, and makes for an update a reciprocal and a mark of infinities.
SCALER_STATE, SCALER_SCRATCH = 2, 4


@dataclass(frozen=True)
class Phase:
    """Where in an accumulation a micro-batch stands."""

    first: bool
    last: bool


@dataclass(frozen=True)
class Way:
    """How a micro-batch is planned."""

    phase: Phase
    one_by_one: bool
    """Whether each parameter is updated as soon as its gradient is final."""


class Planning(Protocol):
    """A step, as the plans of its graphs see it."""

    model: nn.Module
    optimizers: Optimizers
    memory: int
    host_memory: int
    gradient_accumulation_steps: int
    max_grad_norm: float | None
    scaler: GradScaler | None
    reports: list[Report]
    costs: Prices
    known: Known
    states: States
    transfers: Transfers
    updates: Updates
    foretold: Device | None
    passed: set[int]

    @property
    def one_by_one(self) -> bool: ...

    @property
    def clipped(self) -> list[Tensor]: ...

    def name_of(self, tensor: Tensor) -> str: ...

    def state_bytes(self, apart: Collection[int] = ()) -> int: ...

    def movable_bytes(self, parameter: Tensor) -> int: ...


class Receive:
    """Takes a parameter's gradient out of the backward as soon as it is final."""

    __name__ = "update"

    def __init__(self, parameter: Tensor, then: Callable[[Iterable[Tensor]], None] | None, states: States) -> None:
        self.parameter, self.then, self.states = parameter, then, states

    def __call__(self, _: Tensor, gradient: Tensor, coefficient: Tensor | None = None) -> None:
        if coefficient is not None:
            gradient = gradient * coefficient
        if self.parameter.grad is None:
            self.parameter.grad = gradient
        else:
            self.parameter.grad += gradient
        if self.then:
            self.then([self.parameter])


class Finish:
    """Stands for the update of all parameters, which is done when the backward is over: it says what that needs."""

    __name__ = "updates of all parameters"

    def __call__(self, _: list[Tensor], gradients: list[Tensor]) -> None:
        """Nothing is left to do in the graph."""


class Whole:
    """The backend that plans a step's forward, backward and updates together."""

    def __init__(self, step: Planning, way: Way) -> None:
        self.step, self.way = step, way

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        return for_each_size(module, self._traced) if is_dynamic(module, inputs) else self._traced(module, inputs)

    def _traced(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return traced_like_eager(self._compile, module, inputs)

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def partition(
            joint: fx.GraphModule, _: Sequence[Any], *, num_fwd_outputs: int, **kwargs: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            return self._partition(joint, inputs, num_fwd_outputs)

        compiled: Callable[..., Any] = aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph, partition_fn=partition)(module, inputs)
        return compiled

    def _partition(self, module: fx.GraphModule, inputs: Sequence[Any], outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        step, phase, floors = self.step, self.way.phase, [0]
        if phase.first and not phase.last:
            # What comes later in an accumulation is refused now.
            for later in {Phase(False, step.gradient_accumulation_steps == 2), Phase(False, True)}:
                twin = fx.GraphModule(module, copy.deepcopy(module.graph))
                floors.append(step.known.choose(self.choices(twin, inputs, outputs, later), step.memory)[1].floor_bytes)
        choices = self.choices(module, inputs, outputs, phase)
        choice, report = step.known.choose(choices, step.memory)
        step.reports.append(replace(report, floor_bytes=max(report.floor_bytes, *floors)))
        del step.reports[:-REPORTS]
        return emit(choices.joint, choice, step.transfers)

    def choices(self, module: fx.GraphModule, inputs: Sequence[Any], outputs: int, phase: Phase) -> Choices:
        """The plans of a joint graph with its updates."""
        step = self.step
        refuse_sizeless(module.graph)
        like_eager(module.graph)
        without_written(module.graph, inputs)
        received = Ending(module, inputs, step, Way(phase, self.way.one_by_one)).received
        joint = JointGraph(module, outputs, foretold=step.foretold)
        joint.given_is = "parameters, the optimizer's state and inputs"
        parameters = step.optimizers.parameters
        outside = unseen([*step.model.parameters(), *step.model.buffers(), *parameters, *passed()], inputs, joint.device)
        gradients: list[Tensor] = []
        if not phase.first:
            # Earlier micro-batches may have reached others.
            gradients += [parameter for parameter, _, _ in received] + [parameter for parameter in parameters if parameter.grad is not None]
        if has_upstream(inputs):
            # Modules that inputs come from get their gradients too.
            own = {id(parameter) for parameter, _, _ in received}
            gradients += [parameter for parameter in parameters if parameter.requires_grad and id(parameter) not in own]
        outside += held(gradients, joint.device)
        if kept := kept_bytes(module.graph, outputs, joint.device):
            outside += kept
            joint.given_is += ", and what the model keeps from the step before"
        if step.scaler:
            outside += SCALER_STATE * joint.device.rounded(4)
        # States that may wait on the host are the plan's.
        apart = {id(kernel.node.target.parameter) for kernel in joint.kernels if kernel.cell_bytes}  # type: ignore[union-attr]
        choices = Choices(joint, step.costs, outside + step.state_bytes(apart), step.host_memory)
        choices.earlier_gradients = held(gradients, joint.device)
        return choices


def kept_bytes(graph: fx.Graph, outputs: int, device: Device) -> int:
    """Bytes of what a model's forward leaves besides its loss, on modules or by hooks: what the step before left is there
    until the graph has ended."""
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    plain = [node for node, desc in zip(answers[:outputs], end.meta.get("desc") or ()) if isinstance(desc, PlainAOTOutput)]
    given = {storage_key(leaf) for place in graph.find_nodes(op="placeholder") for leaf in tensors(place)}
    found = {storage_key(leaf): leaf for node in plain if isinstance(node, fx.Node) for leaf in tensors(node)}
    loss = next((key for key, leaf in found.items() if leaf.numel() == 1), None)
    if loss is None:
        return 0  # What is planned is no step, and these are its results.
    return sum(device.rounded(leaf.untyped_storage().nbytes()) for key, leaf in found.items() if key not in {*given, loss} and device.counts(leaf))


class Ending:
    """Has a joint graph end in updates, or in gradients that parameters hold, rather than return gradients."""

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Any], step: Planning, way: Way) -> None:
        self.graph, self.inputs, self.step, self.way = module.graph, inputs, step, way
        self.received: list[tuple[Tensor, fx.Node, fx.Node]] = []
        """The parameters that get a gradient: each with its input, and its gradient."""
        end = self.graph.output_node()
        answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
        self._receive(answers)
        clips = step.max_grad_norm is not None
        phase = way.phase
        clips_apart = phase.first and is_one_kind([gradient for _, _, gradient in self.received])
        alone = way.one_by_one and phase.last and not has_upstream(inputs) and (clips_apart or not clips)
        with self.graph.inserting_before(end):
            self._own(everything=not alone or clips)
            if alone:
                self._update_each(clips)
            else:
                self._hold_all()
        end.args = (answers,)

    def _receive(self, answers: list[Any]) -> None:
        """Finds the gradients of the optimizer's parameters. Those of the step's inputs are autograd's to hand on."""
        trained = {id(parameter) for parameter in self.step.optimizers.parameters}
        wrapped = next((type(value).__name__ for value in self.inputs if is_traceable_wrapper_subclass(value)), "")
        if wrapped and has_gradients_within(self.graph):
            raise CannotPlan(f"a {wrapped} has a gradient, and step supports gradients of plain tensors only: use highwater.torch.backend")
        for i, place in places_of_gradients(self.graph):
            parameter, gradient = input_of(place, self.inputs), answers[i]
            if gradient is not None and id(parameter) in trained:
                answers[i] = None
                self.received.append((parameter, place, gradient))
            elif gradient is not None and parameter.is_leaf and id(parameter) not in self.step.passed:
                name = self.step.name_of(parameter) or f"a parameter of shape {tuple(parameter.shape)}"
                raise CannotPlan(f"the loss depends on {name}, which is not in the optimizer: add it, or call requires_grad_(False) on it")

    def _own(self, everything: bool) -> None:
        """Has gradients laid out as autograd would. With `everything` each has bytes of its own, to be held and added
        to: what is a view of more, or of another gradient, is copied."""
        taken = {storage_key(leaf) for node in self.graph.find_nodes(op="placeholder") for leaf in tensors(node)}
        for i, (parameter, place, gradient) in enumerate(self.received):
            value = gradient.meta["val"]
            apart = value.untyped_storage().nbytes() == value.nbytes and storage_key(value) not in taken
            if not is_laid_out(value, place.meta["val"]) or everything and not apart:
                gradient = laid_out(self.graph, gradient, place.meta["val"])
                self.received[i] = parameter, place, gradient
            taken.add(storage_key(gradient.meta["val"]))

    def _update_each(self, clips: bool) -> None:
        step, updates = self.step, self.step.updates
        of = {id(parameter): gradient for parameter, _, gradient in self.received}
        clipped = {id(parameter): of[id(parameter)] for parameter in step.clipped if id(parameter) in of} if clips else {}
        coefficient = add_coefficient(self.graph, list(clipped.values()), step.max_grad_norm) if clipped and step.max_grad_norm is not None else None
        for parameter, place, gradient in self.received:
            factor = (coefficient,) if coefficient and id(parameter) in clipped else ()
            node = self.graph.call_function(Receive(parameter, updates.step, step.states), (place, gradient, *factor))
            scratch = updates.needs(parameter).scratch + (parameter.nbytes if factor else 0)
            node.meta = {
                **origin(gradient), WRITES: [place], CELL: step.movable_bytes(parameter), COST: (step.costs.update(updates, parameter), scratch),
            }  # fmt: skip

    def _hold_all(self) -> None:
        step, updates, phase = self.step, self.step.updates, self.way.phase
        for parameter, place, gradient in self.received:
            node = self.graph.call_function(Receive(parameter, None, step.states), (place, gradient))
            node.meta = {**origin(gradient), WRITES: [], COST: (1e-6, 0), CELL: 0, HELD: not phase.last and phase.first}
        if not phase.last:
            return
        places, gradients = ([row[i] for row in self.received] for i in (1, 2))
        node = self.graph.call_function(Finish(), (places, gradients))
        parameters = step.optimizers.parameters
        if step.one_by_one:
            scratch = max((updates.needs(parameter).scratch for parameter in parameters), default=0)
            seconds = sum(step.costs.update(updates, parameter) for parameter, _, _ in self.received)
        else:
            scratch, seconds = updates.whole_scratch([parameter for parameter, _, _ in self.received]), 1e-6 * len(parameters)
        device = device_of(parameters)
        if step.max_grad_norm is not None:
            scratch = max(scratch, len(parameters) * device.rounded(4) + scratch_bytes(len(parameters), device))
        if step.scaler:
            scratch += SCALER_SCRATCH * device.rounded(8)
        node.meta = {"val": None, WRITES: places, COST: (seconds, scratch)}


def has_gradients_within(graph: fx.Graph) -> bool:
    """Whether some gradients are tensors within another one."""
    for output in graph.output_node().meta.get("desc") or []:
        name = output
        while hasattr(name, "base"):
            name = name.base
        if name is not output and hasattr(name, "grad_of"):
            return True
    return False


def origin(gradient: fx.Node) -> dict[str, Any]:
    """Where a gradient comes from, for a node that results in nothing."""
    return {"val": None, **{key: value for key, value in gradient.meta.items() if key in ORIGIN}}


def has_upstream(inputs: Collection[Any]) -> bool:
    """Whether some inputs were computed by modules that get gradients too."""
    return any(isinstance(leaf, Tensor) and leaf.requires_grad and not leaf.is_leaf for leaf in inputs)
