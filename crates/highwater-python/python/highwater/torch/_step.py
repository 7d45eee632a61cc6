"""A whole training step within one amount of memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn, optim
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import Unsupported
from torch.distributed.tensor import DTensor

from ._backend import compile_graph
from ._calls import SIZES, without_logs
from ._choices import Choices, Report
from ._clip import add_coefficient, is_one_kind, scratch_bytes
from ._costs import Costs, Prices
from ._device import Device, device_of
from ._emit import emit
from ._graph import CELL, COST, HELD, WRITES, JointGraph, Kernel, refuse_sparse, storage_key, tensors
from ._known import Known
from ._like_eager import like_eager, traced_like_eager
from ._memory import parse
from ._pieces import no_step
from ._states import States
from ._transfers import Transfers
from ._updates import Updates

# What of a node's meta says where it comes of.
ORIGIN = ("nn_module_stack", "fwd_nn_module_stack", "stack_trace")


@dataclass(frozen=True)
class Phase:
    """Where in an accumulation a micro-batch stands."""

    first: bool
    last: bool


class Receive:
    """Takes a parameter's gradient out of the backward as soon as it is final."""

    __name__ = "update"

    def __init__(self, parameter: nn.Parameter, then: Callable[[Iterable[Tensor]], None] | None, states: States) -> None:
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
    """Updates all parameters at once, when all gradients are there."""

    __name__ = "updates of all parameters"

    def __init__(self, parameters: list[nn.Parameter], then: Callable[[Collection[nn.Parameter]], None]) -> None:
        self.parameters, self.then = parameters, then

    def __call__(self, _: list[Tensor], gradients: list[Tensor]) -> None:
        self.then(self.parameters)


class Step:
    """A training step that keeps to an amount of memory. See `step`."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Tensor] | None,
        optimizer: optim.Optimizer,
        memory: int | str,
        gradient_accumulation_steps: int,
        max_grad_norm: float | None,
        scaler: torch.amp.GradScaler | None,
        host_memory: int | str = 0,
    ) -> None:
        if gradient_accumulation_steps < 1:
            raise ValueError(f"gradient_accumulation_steps={gradient_accumulation_steps}: at least 1")
        self.model, self.loss_fn, self.optimizer = model, loss_fn, optimizer
        self.memory, self.host_memory = parse(memory), parse(host_memory)
        self._transfers = Transfers(self.host_memory)
        self._states = States(optimizer, self._transfers)
        self.gradient_accumulation_steps, self.max_grad_norm, self.scaler = gradient_accumulation_steps, max_grad_norm, scaler
        self.reports: list[Report] = []
        """One for each graph that was planned, in order."""
        self._costs: Prices = Costs()
        self._plans = Known()
        self._updates = Updates(optimizer, lambda node: self._costs.of(Kernel(node, [], []))[1])
        self._foretold: Device | None = None
        """Where it will run, if that is not at hand."""
        self._micro = 0
        self._compiled: dict[Phase, Callable[..., Tensor]] = {}
        self._known: list[int] = []
        if isinstance(model, nn.parallel.DistributedDataParallel) or any(isinstance(p, DTensor) for p in model.parameters()):
            raise TypeError("a step is for one process: for DistributedDataParallel use highwater.torch.backend")
        if isinstance(optimizer, optim.LBFGS):
            raise TypeError("LBFGS computes losses of its own, again and again: for that use highwater.torch.backend")

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of a micro-batch, whose gradients are added up, or used for an update and let go of."""
        if self.loss_fn is not None and len(args) < 2 and not kwargs:
            raise TypeError("a step with a loss_fn wants inputs, and the target last: step(inputs, target)")
        phase = Phase(self._micro == 0, self._micro == self.gradient_accumulation_steps - 1)
        parameters = list(self.model.parameters())
        if [id(parameter) for parameter in parameters] != self._known:
            # Plans know parameters by what they are, not by what they are called.
            self._known = [id(parameter) for parameter in parameters]
            self._compiled.clear()
        self._check(phase)
        if phase not in self._compiled:
            self._compiled[phase] = torch.compile(self._loss(), backend=Whole(self, phase), fullgraph=True, dynamic=False)
        with torch._dynamo.config.patch(recompile_limit=SIZES, accumulated_recompile_limit=SIZES * 4), without_logs():
            try:
                loss = self._compiled[phase](*args, **kwargs)
            except Unsupported as broken:
                raise no_step(broken) from None
        if loss.numel() != 1:
            raise ValueError(f"the loss has the shape {tuple(loss.shape)}: it has to be one number; is a loss_fn missing?")
        with torch.autocast(loss.device.type, enabled=False):
            seed = torch.ones_like(loss) / self.gradient_accumulation_steps
            loss.backward(self.scaler.scale(seed) if self.scaler else seed)  # type: ignore[no-untyped-call]
        if phase.last:
            self._states.put_in_order()
        self._micro = 0 if phase.last else self._micro + 1
        return loss.detach()

    def _loss(self) -> Callable[..., Tensor]:
        """A function for the loss: of no object, so that paths of modules are those in the model."""
        model, loss_fn = self.model, self.loss_fn

        def loss(*args: Any, **kwargs: Any) -> Tensor:
            if loss_fn is None:
                return loss_of(model(*args, **kwargs))
            *inputs, target = args
            return loss_fn(model(*inputs, **kwargs), target)

        return loss

    def _finish(self, parameters: Collection[nn.Parameter]) -> None:
        self._states.arrange(parameters, [])  # an earlier plan may have had them on the host
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self._updates.one_by_one:
            self._updates.step(parameters)
        else:
            self.optimizer.step()
        for parameter in parameters:
            parameter.grad = None

    def _check(self, phase: Phase) -> None:
        """Refuses what would be other numbers than those of an ordinary loop."""
        updated = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        for name, parameter in self.model.named_parameters():
            if phase.first and parameter.grad is not None:
                raise RuntimeError(f"{name} has a gradient already, which a step would add to: call optimizer.zero_grad() before")
            if parameter.requires_grad and id(parameter) not in updated:
                raise ValueError(f"the optimizer does not have {name}: add it, or call requires_grad_(False) on it")
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                raise ValueError(f"{name} has hooks on its gradient, which a step would not call: remove them, or use highwater.torch.backend")

    def _movable_bytes(self, parameter: nn.Parameter) -> int:
        """What of a parameter's state may wait on the host."""
        if not self.host_memory:
            return 0
        updates = self._updates
        return self._states.bytes_of(parameter) or updates.needs(parameter)[0] - updates.count_bytes(parameter)

    @property
    def waits(self) -> bool:
        """Whether updates are of all parameters at once."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        # Views of one tensor are written as one.
        shared = len({storage_key(parameter) for parameter in parameters}) < len(parameters)
        return self.scaler is not None or shared or not self._updates.one_by_one


class Whole:
    """The backend that plans a step's forward, backward and updates together."""

    def __init__(self, step: Step, phase: Phase) -> None:
        self.step, self.phase = step, phase

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        def partition(
            joint: fx.GraphModule, _: Sequence[Any], *, num_fwd_outputs: int, **kwargs: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            return self._partition(joint, inputs, num_fwd_outputs)

        compile = aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph, partition_fn=partition)
        return traced_like_eager(compile, module, inputs)

    def _partition(self, module: fx.GraphModule, inputs: Sequence[Any], outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        step = self.step
        if self.phase.first and not self.phase.last:
            # What comes later in an accumulation is refused now.
            for phase in {Phase(False, step.gradient_accumulation_steps == 2), Phase(False, True)}:
                twin = fx.GraphModule(module, copy.deepcopy(module.graph))
                step._plans.choose(self.choices(twin, inputs, outputs, phase), step.memory)
        choices = self.choices(module, inputs, outputs, self.phase)
        choice, report = step._plans.choose(choices, step.memory)
        step.reports.append(report)
        return emit(choices.joint, choice, step._transfers)

    def choices(self, module: fx.GraphModule, inputs: Sequence[Any], outputs: int, phase: Phase) -> Choices:
        """The plans of a joint graph with its updates."""
        refuse_sparse(module.graph)
        like_eager(module.graph)
        received = add_updates(module, inputs, outputs, self.step, phase)
        joint = JointGraph(module, outputs, foretold=self.step._foretold)
        joint.given_is = "parameters, the optimizer's state and inputs"
        # Bytes that are held all the time, and the graph does not see.
        seen = {storage_key(leaf) for leaf in inputs if isinstance(leaf, Tensor)}
        model = [*self.step.model.parameters(), *self.step.model.buffers()]
        unseen = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in model}
        outside = sum(size for key, size in unseen.items() if key not in seen)
        gradients = 0 if phase.first else sum(parameter.nbytes for parameter in received)
        # States that may wait on the host are the plan's.
        apart = {id(kernel.node.target.parameter) for kernel in joint.kernels if kernel.cell_bytes}  # type: ignore[union-attr]
        states = self.step._updates.state_bytes(apart)
        return Choices(joint, self.step._costs, outside + states + gradients, self.step.host_memory)


def add_updates(module: fx.GraphModule, inputs: Sequence[Any], outputs: int, step: Step, phase: Phase) -> list[nn.Parameter]:
    """Has a joint graph end in updates, or in gradients that parameters hold, rather than answer gradients.
    Answers the parameters that get one."""
    graph, updates = module.graph, step._updates
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    places = [node for node in graph.find_nodes(op="placeholder") if node.name.startswith("primals")]
    received: list[tuple[nn.Parameter, fx.Node, fx.Node]] = []
    for i, (place, gradient) in enumerate(zip(places, answers[outputs:], strict=True), outputs):
        parameter = inputs[place.meta["desc"].idx] if gradient is not None else None
        if isinstance(parameter, nn.Parameter):
            answers[i] = None
            received.append((parameter, place, gradient))
    clips = step.max_grad_norm is not None
    clips_apart = phase.first and is_one_kind([gradient for _, _, gradient in received])
    alone = phase.last and not step.waits and (clips_apart or not clips)
    with graph.inserting_before(end):
        if not alone or clips:
            received = own(graph, received)
        factor: tuple[fx.Node, ...] = ()
        if alone and step.max_grad_norm is not None:
            of = {id(parameter): gradient for parameter, _, gradient in received}
            in_order = [of[id(parameter)] for parameter in step.model.parameters() if id(parameter) in of]
            factor = (add_coefficient(graph, in_order, step.max_grad_norm),)
        for parameter, place, gradient in received:
            then = updates.step if alone else None
            node = graph.call_function(Receive(parameter, then, step._states), (place, gradient, *factor))
            scaled = parameter.nbytes if factor else 0
            cost = (step._costs.update(updates, parameter), updates.needs(parameter)[1] + scaled) if alone else (1e-6, 0)
            writes = [place] if alone else []
            state = step._movable_bytes(parameter) if alone else 0
            origin = {key: value for key, value in gradient.meta.items() if key in ORIGIN}
            node.meta = {**origin, "val": None, WRITES: writes, COST: cost, CELL: state, HELD: not phase.last and phase.first}
        if phase.last and not alone:
            parameters = [parameter for parameter, _, _ in received]
            columns = ([place for _, place, _ in received], [gradient for _, _, gradient in received])
            node = graph.call_function(Finish(parameters, step._finish), columns)
            scratch = [updates.needs(parameter)[1] for parameter in parameters]
            together = (max if updates.one_by_one else sum)(scratch)
            if step.max_grad_norm is not None:
                device = device_of(parameters)
                together = max(together, len(parameters) * device.rounded(4) + scratch_bytes(len(parameters), device))
            seconds = sum(step._costs.update(updates, parameter) for parameter in parameters)
            node.meta = {"val": None, WRITES: columns[0], COST: (seconds, together)}
    end.args = (answers,)
    return [parameter for parameter, _, _ in received]


def own(graph: fx.Graph, received: list[tuple[nn.Parameter, fx.Node, fx.Node]]) -> list[tuple[nn.Parameter, fx.Node, fx.Node]]:
    """Gradients that are held and added to have bytes of their own: what is a view of more, or of another
    gradient, is copied."""
    taken = {storage_key(leaf) for node in graph.find_nodes(op="placeholder") for leaf in tensors(node)}
    answer = []
    for parameter, place, gradient in received:
        value = gradient.meta["val"]
        whole = value.untyped_storage().nbytes() == value.nbytes and value.is_contiguous()
        if not whole or storage_key(value) in taken:
            gradient = graph.call_function(torch.ops.aten.clone.default, (gradient,), {"memory_format": torch.contiguous_format})
            with value.fake_mode:
                gradient.meta = {"val": value.clone(memory_format=torch.contiguous_format)}
        taken.add(storage_key(gradient.meta["val"]))
        answer.append((parameter, place, gradient))
    return answer


def loss_of(answer: Any) -> Tensor:
    """The loss that a model answers: alone, by that name, or first."""
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, dict):
        return answer["loss"]  # type: ignore[no-any-return]
    return answer.loss if hasattr(answer, "loss") else answer[0]  # type: ignore[no-any-return]


def step(
    model: nn.Module,
    loss_fn: Callable[..., Tensor] | None = None,
    optimizer: optim.Optimizer | None = None,
    *,
    memory: int | str,
    gradient_accumulation_steps: int = 1,
    max_grad_norm: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    host_memory: int | str = 0,
) -> Step:
    """A training step within `memory`: forward, backward and updates, with parameters, gradients and the
    optimizer's state counted.

    `step(*inputs, target)` computes `loss_fn(model(*inputs), target)`, its gradients, and the update, and
    answers the loss; keywords go to the model. Without a `loss_fn`, `step(model, optimizer=optimizer, memory=memory)`,
    all goes to the model, which answers its loss alone, as `.loss` or `["loss"]`, or first. The numbers are those of

        loss = loss_fn(model(*inputs), target)
        (loss / gradient_accumulation_steps).backward()  # and, of the last of so many:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    A parameter is updated as soon as its gradient is final, which lets go of the gradient, where that gives
    the same numbers: not with a `scaler` (`torch.amp.GradScaler`: `scale`, `unscale_`, `step` and `update` are
    called where they belong), nor with optimizers beyond those of `torch.optim`, or with hooks. With clipping
    updates wait for the norm of all gradients, and are made one by one then, but where gradients are accumulated.

    `host_memory`: how much of the host's memory activations may wait in, and, where parameters are updated one at
    a time, the optimizer's state: there it stands in `optimizer.state` as tensors of the CPU. See `backend`.

    Call it within `torch.autocast` for mixed precision; call `scheduler.step()` after it, as usual. Sizes of
    inputs that have not been seen are planned anew. What the model logs is left out. Raises
    `OverBudget` before anything has run, and `GraphBreak` for a model or a loss that is not one graph.
    """
    if optimizer is None:
        raise TypeError("a step wants an optimizer: step(model, loss_fn, optimizer, memory=...), or step(model, optimizer=optimizer, memory=...) where the model answers its loss")
    return Step(model, loss_fn, optimizer, memory, gradient_accumulation_steps, max_grad_norm, scaler, host_memory)
