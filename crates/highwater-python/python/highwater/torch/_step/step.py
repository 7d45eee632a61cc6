"""A whole training step within one amount of memory."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn, optim
from torch.utils import _pytree as pytree

from .._device.device import Device
from .._device.held import storage_key
from .._device.transfers import Transfers
from .._dynamo.exceptions import one_graph
from .._dynamo.modes import attention_kernels, check_modes
from .._graph.joint import Kernel
from .._messages import arguments
from .._messages.amounts import parse
from .._optim.optimizers import Optimizers
from .._optim.states import States
from .._optim.updates import Updates
from .._plan.choices import Report
from .._plan.costs import Costs, Prices
from .._plan.known import Known
from .graph import Phase, Way, Whole, has_upstream
from .interrupts import held_back

Accumulation = Literal["mean", "sum"]
ACCUMULATIONS = {"mean": "divides each loss by gradient_accumulation_steps", "sum": "does not divide it"}

NO_GRADIENT = "the loss depends on no parameter that requires a gradient, so there is no training step: check for detach() and torch.no_grad()"


class Step:
    """A training step that keeps to an amount of memory. See `step`."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Tensor] | None,
        optimizer: Any,
        memory: int | str,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        host_memory: int | str = 0,
        accumulation: Accumulation = "mean",
        clip_parameters: Iterable[Tensor] | None = None,
    ) -> None:
        arguments.check_model(model)
        arguments.check_loss_fn(loss_fn)
        arguments.check_scaler(scaler)
        arguments.one_of("accumulation", accumulation, ACCUMULATIONS)
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise TypeError("step runs in one process: with DistributedDataParallel use highwater.torch.backend")
        self.model, self.loss_fn, self.optimizer, self.accumulation = model, loss_fn, optimizer, accumulation
        self.memory, self.host_memory = parse(memory), parse(host_memory, "host_memory")
        self.gradient_accumulation_steps = arguments.whole("gradient_accumulation_steps", gradient_accumulation_steps)
        self.max_grad_norm = None if max_grad_norm is None else arguments.not_negative("max_grad_norm", max_grad_norm)
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.reports: list[Report] = []
        """One for each graph that was planned, in order."""
        self.optimizers = Optimizers(optimizer)
        trained = [*self.optimizers.parameters, *(parameter for _, parameter in self._named())]
        self._clip_parameters = None if clip_parameters is None else arguments.some_of("clip_parameters", clip_parameters, trained)
        if scaler is None and any(getattr(one, "scaler", None) is not None for one in wrappers(optimizer)):
            raise ValueError("Accelerate prepared this optimizer with a GradScaler: pass scaler=accelerator.scaler to step")
        self.transfers = Transfers(self.host_memory)
        self.states = States(self.optimizers, self.transfers)
        self.costs: Prices = Costs()
        self.known = Known()
        self.updates = Updates(self.optimizers, lambda node: self.costs.of(Kernel(node, [], []))[1])
        self.foretold: Device | None = None
        """Where it will run, if that is not at hand."""
        self.passed: set[int] = set()
        """The tensors of the call that is under way, by their ids."""
        self._micro = 0
        self._compiled: dict[Way, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {}
        """Of each way, the function for the loss, and what was compiled of it."""
        self._generation: Any = None
        self._broken = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of a micro-batch, whose gradients are added up, or used for an update and freed.

        With a keyword `num_items_in_batch` the loss is not divided, as in Hugging Face's Trainer: the model divides by
        that number."""
        if self._broken:
            raise RuntimeError(self._broken)
        check_modes()
        if self.loss_fn is not None and not (len(args) > 1 or args and kwargs):
            raise TypeError("with a loss_fn, call step(inputs, target): the target comes last, and is not a keyword")
        phase = Phase(self._micro == 0, self._micro == self.gradient_accumulation_steps - 1)
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.passed = {id(leaf) for leaf in leaves}
        self._check(phase)
        way = self._way(phase, has_upstream(leaves))
        if way not in self._compiled:
            plain = self._loss()
            self._compiled[way] = plain, torch.compile(plain, backend=Whole(self, way), fullgraph=True)
        plain, compiled = self._compiled[way]
        plans = len(self.reports)
        with one_graph(plain, args, kwargs):
            loss = compiled(*args, **kwargs)
        if len(self.reports) != plans:
            gc.collect()  # what planning left in circles
        if not isinstance(loss, Tensor):
            raise TypeError(f"loss_fn must return a tensor, not {arguments.kind_of(loss)}")
        if not loss.requires_grad:
            raise ValueError(NO_GRADIENT)
        if loss.numel() != 1:
            raise ValueError(f"the loss has the shape {tuple(loss.shape)} and must be a single number. Is a loss_fn missing?")
        if loss.is_complex():
            raise ValueError(f"the loss is complex ({loss.dtype}) and must be real: take its real part or its absolute value")
        divided = self.accumulation == "mean" and kwargs.get("num_items_in_batch") is None
        self._learn(loss, phase, self.gradient_accumulation_steps if divided else 1)
        return loss.detach()

    def flush(self) -> None:
        """Updates with the gradients of an accumulation that is not complete, as at the end of an epoch. Does nothing
        where none is under way. With `accumulation="mean"` each loss was divided by `gradient_accumulation_steps`, and
        not by how many there were."""
        if self._broken:
            raise RuntimeError(self._broken)
        if not self._micro:
            return
        with held_back(), self._watched(Phase(False, True)):
            self._finish()
            self._micro = 0

    def reset(self) -> None:
        """Drops gradients of an accumulation that is not complete, and begins anew. After an update that was
        interrupted, load the states of model and optimizer before."""
        for parameter in self.optimizers.parameters:
            parameter.grad = None
        self._micro, self._broken = 0, ""

    def name_of(self, tensor: Tensor) -> str:
        """The name of a parameter of the model or of the loss, "" for others."""
        return next((name for name, parameter in self._named() if parameter is tensor), "")

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.model.named_parameters()
        if isinstance(self.loss_fn, nn.Module):
            yield from self.loss_fn.named_parameters("loss_fn")

    @property
    def one_by_one(self) -> bool:
        """Whether the optimizer's updates are done one parameter at a time."""
        return self.scaler is None and self.optimizers.one_by_one

    @property
    def clipped(self) -> list[Tensor]:
        """The parameters whose gradients are clipped, in the order in which their norms are added up."""
        return list(self.model.parameters()) if self._clip_parameters is None else self._clip_parameters

    def state_bytes(self, apart: Collection[int] = ()) -> int:
        """Bytes of the optimizer's state after an update. Of parameters that are `apart`, by their ids, only what
        counts steps."""
        return self.updates.state_bytes(apart) if self.one_by_one else self.updates.whole.state

    def movable_bytes(self, parameter: Tensor) -> int:
        """What of a parameter's state may wait on the host."""
        if not self.host_memory:
            return 0
        return self.states.bytes_of(parameter) or self.updates.needs(parameter).state - self.updates.count_bytes(parameter)

    def _way(self, phase: Phase, upstream: bool) -> Way:
        """How this micro-batch is planned: anew where what the plans depend on is another than before."""
        one_by_one, parameters = self.one_by_one, list(self.model.parameters())
        needs = None if one_by_one else self.updates.look_ahead() if phase.last else self.updates.whole
        # Views of one tensor are written as one. `parameter.data = other` may tie two at any time.
        trained = self.optimizers.parameters
        shared = len({storage_key(parameter) for parameter in trained}) < len(trained)
        # Plans know parameters by what they are, not by what they are called.
        generation = [id(parameter) for parameter in parameters], self.optimizers.key(), needs, attention_kernels(), shared
        if generation != self._generation:
            self._generation = generation
            self._compiled.clear()
        return Way(phase, one_by_one and not shared and not upstream)

    def __reduce__(self) -> tuple[type[Step], tuple[Any, ...]]:
        """A copy is of a copy of the model, the optimizer and the rest, and makes plans of its own."""
        if self._micro:
            raise RuntimeError(
                f"a step cannot be copied or pickled in the middle of an accumulation ({self._micro} of {self.gradient_accumulation_steps} micro-batches), "
                "because gradients are not copied. Call flush() or reset() first"
            )
        settings = (self.memory, self.gradient_accumulation_steps, self.max_grad_norm, self.scaler, self.host_memory, self.accumulation)
        return Step, (self.model, self.loss_fn, self.optimizer, *settings, self._clip_parameters)

    def _loss(self) -> Callable[..., Tensor]:
        """A function for the loss: of no object, so that paths of modules are those in the model."""
        model, loss_fn = self.model, self.loss_fn

        def loss(*args: Any, **kwargs: Any) -> Tensor:
            if loss_fn is None:
                return loss_of(model(*args, **kwargs))
            *inputs, target = args
            return loss_fn(model(*inputs, **kwargs), target)

        # Dynamo counts what it compiles by code objects: each plan has one of its own.
        return types.FunctionType(loss.__code__.replace(), loss.__globals__, loss.__name__, None, loss.__closure__)

    def _learn(self, loss: Tensor, phase: Phase, divisor: int) -> None:
        """The backward, and the update."""
        with held_back(), self._watched(phase):
            with torch.autocast(loss.device.type, enabled=False):
                # As the gradient of `scale(loss / divisor)`: by another order of these, it would round otherwise.
                seed = torch.ones_like(loss)
                if not hasattr(seed, "__tensor_flatten__"):
                    seed = seed.as_subclass(Tensor)  # graphs have plain gradients of subclasses that hold no tensors
                if self.scaler:
                    seed = self.scaler.scale(seed).to(loss.dtype)
                seed = seed / divisor
                loss.backward(seed)  # type: ignore[no-untyped-call]
            del seed
            if phase.last:
                self._finish()
            self._micro = 0 if phase.last else self._micro + 1

    def _finish(self) -> None:
        """Updates what has a gradient by now."""
        parameters = self.optimizers.parameters
        if not self.updates.done:
            self.states.arrange(parameters, [])  # an earlier plan may have had them on the host
            if self.max_grad_norm is not None:
                # Without clipping `scaler.step` unscales the gradients of one optimizer after the other.
                if self.scaler:
                    for one in self.optimizers.all:
                        self.scaler.unscale_(one)
                nn.utils.clip_grad_norm_(self.clipped, self.max_grad_norm)
        if self.scaler:
            self.updates.done += 1
            for one in self.optimizers.all:
                self.scaler.step(one)
            self.scaler.update()
        elif self.one_by_one:
            self.updates.step([parameter for parameter in parameters if parameter.grad is not None])
            self.states.put_in_order()
        else:
            self.updates.done += 1
            self.optimizers.step()
        for parameter in parameters:
            parameter.grad = None

    @contextmanager
    def _watched(self, phase: Phase) -> Iterator[None]:
        """Says of what is interrupted within what became of the parameters."""
        self.updates.done = 0
        try:
            yield
        except BaseException as error:
            kind, count = type(error).__name__, len(self.optimizers.parameters)
            if self.updates.done:
                how = f"after it had updated {self.updates.done} of {count} parameters" if self.one_by_one else "while the optimizer updated parameters"
                self._broken = (
                    f"{kind} stopped the last step {how}. The update may be incomplete: "
                    "load model and optimizer from a checkpoint, then call step.reset()"
                )
            elif phase.first:
                self.reset()  # as if the step had not been called
            else:
                self._broken = (
                    f"{kind} stopped the backward of the last micro-batch, so some gradients include it and others do not. "
                    "No parameter was updated. Call step.reset(), which drops the gradients, and restart the accumulation"
                )
            if self._broken and hasattr(error, "add_note"):
                error.add_note(f"highwater: {self._broken}.")
            raise

    def _check(self, phase: Phase) -> None:
        """Refuses what would be other numbers than those of an ordinary loop."""
        trained = {id(parameter): parameter for parameter in self.optimizers.parameters}
        named = {id(parameter): name for name, parameter in self._named()}
        clipped = {} if self.max_grad_norm is None else {id(parameter): parameter for parameter in self.clipped}
        for key, one in (trained | clipped).items():
            if phase.first and one.grad is not None:
                name = named.get(key, "a parameter of the optimizer")
                raise RuntimeError(f"{name} already has a gradient, which would be part of the step: set it to None first, as zero_grad() does")
        for key, one in trained.items():
            if one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None):
                name = named.get(key, "a parameter of the optimizer")
                raise ValueError(f"{name} has gradient hooks, which step would not call: remove them, or use highwater.torch.backend")


def wrappers(optimizer: Any) -> Iterator[Any]:
    """An optimizer, and what it wraps."""
    for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
        while one is not None:
            yield one
            one = getattr(one, "optimizer", None)


def loss_of(answer: Any) -> Tensor:
    """The loss that a model returns: alone, by that name, or first."""
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, dict):
        found = answer.get("loss")
    elif isinstance(answer, (int, float)):
        found = None  # Dynamo cannot ask a number whether it has a loss
    elif hasattr(answer, "loss"):
        found = answer.loss
    else:
        found = answer[0] if isinstance(answer, (tuple, list)) and answer else None
    if not isinstance(found, Tensor):
        names = f"the keys {list(answer)}" if isinstance(answer, dict) else f"a {type(answer).__name__}"
        raise ValueError(f"the model returned {names} without a loss: pass a loss_fn, or return the loss alone, as .loss, as ['loss'], or first in a tuple")
    return found


def step(
    model: nn.Module,
    loss_fn: Callable[..., Tensor] | None = None,
    optimizer: optim.Optimizer | list[optim.Optimizer] | Any = None,
    *,
    memory: int | str,
    gradient_accumulation_steps: int = 1,
    max_grad_norm: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    host_memory: int | str = 0,
    accumulation: Accumulation = "mean",
    clip_parameters: Iterable[Tensor] | None = None,
) -> Step:
    """A training step within `memory`: forward, backward and updates, with parameters, gradients and the
    optimizer's state counted.

    `step(*inputs, target)` computes `loss_fn(model(*inputs), target)`, its gradients, and the update, and
    returns the loss; keywords go to the model. Without a `loss_fn`, `step(model, optimizer=optimizer, memory=memory)`,
    all goes to the model, which returns its loss alone, as `.loss` or `["loss"]`, or first. The numbers are those of

        loss = loss_fn(model(*inputs), target)
        (loss / gradient_accumulation_steps).backward()  # and, after the last of so many:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    `optimizer`: any object with `param_groups` and `step()`, or a list of such objects. All of its parameters are
    trained: the model's, those of `loss_fn`, and those of modules that compute the step's inputs. The activations of
    such modules, which exist before the step is called, are beside `memory`. `clip_parameters`: what `max_grad_norm`
    clips, if not the model's parameters alone.

    A parameter is updated as soon as its gradient is final, which frees the gradient, where that gives the same numbers
    and nothing can see it. That is not so with a `scaler` (`torch.amp.GradScaler`: `scale`, `unscale_`, `step` and
    `update` are called where they belong), with optimizers beyond those of `torch.optim`, with hooks on a step, or where
    inputs come from other modules that are trained. Then one `optimizer.step()` updates all of them. With clipping,
    updates wait for the norm of all gradients, and are made one by one then, except where gradients are accumulated.

    `accumulation`: with "mean" each loss is divided by `gradient_accumulation_steps` for its gradients (the loss that
    is returned is not). With "sum" it is not divided: each loss is its part of the whole already. A call with a keyword
    `num_items_in_batch` is not divided either, as in Hugging Face's Trainer. Where the data ends within an accumulation,
    `step.flush()` makes the update.

    `host_memory`: how much of the host's memory activations may wait in, and, where parameters are updated one at
    a time, the optimizer's state: there it stands in `optimizer.state` as tensors of the CPU. See `backend`.

    Call it within `torch.autocast` for mixed precision; call `scheduler.step()` after it, as usual. Sizes of
    inputs that have not been seen are planned anew. What the model logs is left out. Raises
    `OverBudget` before anything has run, and `GraphBreak` for a model or a loss that is not one graph.

    A first Ctrl-C takes effect when the update is complete. What stops an update half-way, as a second Ctrl-C does, is
    an error at the next call, which says how to go on.
    """
    return Step(model, loss_fn, optimizer, memory, gradient_accumulation_steps, max_grad_norm, scaler, host_memory, accumulation, clip_parameters)
