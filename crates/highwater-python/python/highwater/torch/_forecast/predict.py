"""What a training step would take, told without allocating anything."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn, optim
from torch._dynamo.exc import ShortenTraceback
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils import _pytree as pytree

from .._device.held import storage_key
from .._dynamo.calls import without_logs
from .._dynamo.exceptions import is_of_dynamo, translate
from .._dynamo.refusals import no_step
from .._messages import arguments
from .._messages.amounts import MOST, parse
from .._messages.errors import said, unlogged
from .._messages.locations import where
from .._optim.optimizers import Optimizers
from .._optim.rehearsal import copied, same_random_numbers
from .._plan.choices import Choices
from .._plan.roofline import DEVICES, Rates, Roofline
from .._step.graph import Phase, Way, Whole
from .._step.step import NO_GRADIENT, Step
from .as_cuda import Foretold, with_attention_of_cuda
from .batches import Grown, resized
from .forecast import ROWS, Forecast, holders


class Enough(ShortenTraceback):
    """All is known that was to be."""


class Asked(Whole):
    """Stops where a plan would be carried out."""

    found: Choices

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        if self.step.foretold:
            with_attention_of_cuda(module)
        return super().__call__(module, inputs, **kwargs)

    def _partition(self, module: fx.GraphModule, inputs: Sequence[Any], outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        self.found = self.choices(module, inputs, outputs, self.way.phase)
        raise Enough("that is all", first_useful_frame=None)


def plan(
    model: nn.Module,
    inputs: Any,
    *,
    loss_fn: Callable[..., Tensor] | None = None,
    optimizer: Callable[..., optim.Optimizer] | optim.Optimizer | None = None,
    memory: int | str | None = None,
    host_memory: int | str = 0,
    device: str | torch.device | None = None,
    rates: str | Rates | None = None,
    gradient_accumulation_steps: int = 1,
    max_grad_norm: float | None = None,
    batches: Iterable[int] = (),
    largest_batch: bool = False,
) -> Forecast:
    """What a training step of a model would take, and whether it fits into `memory`. Nothing is allocated.

    `model`: any module; its tensors may be on the device "meta", or fake. `inputs`: what it is called with, a
    tensor, a tuple, or keywords as a dict; only sizes and dtypes are read. `loss_fn`: as of `step`, with the
    target last in a tuple of inputs. `optimizer`: `torch.optim.AdamW`, another kind, something that makes one
    of parameters, or an optimizer whose kind and settings are taken: then it is for `step`. Without one, gradients
    are kept, as with `backend`. `gradient_accumulation_steps`: if more than one, gradients of earlier micro-batches
    are there while the last one runs, with an optimizer or without.
    `host_memory`: as of `step`.
    `device`: where it would run; the model's, if none is said. `rates`: what the device does in a second, or
    its name ("H100", "A100", "RTX 4090"). `batches`: other sizes of the inputs' first dimension to tell;
    `largest_batch`: to look for the largest that fits into `memory`. Either takes two more traces at most.

    Raises `GraphBreak` where the model cannot be taken as one graph. Where there is no CUDA, a step for it is
    traced with the kernels of CPUs, but for attention.
    """
    arguments.check_model(model)
    arguments.check_loss_fn(loss_fn)
    arguments.check_optimizer(optimizer)
    arguments.truth("largest_batch", largest_batch)
    budget, host_bytes = None if memory is None else parse(memory), parse(host_memory, "host_memory")
    accumulated = arguments.whole("gradient_accumulation_steps", gradient_accumulation_steps)
    clip = None if max_grad_norm is None else arguments.not_negative("max_grad_norm", max_grad_norm)
    if clip is not None and optimizer is None:
        raise ValueError("max_grad_norm needs an optimizer: without one, plan predicts a forward and backward, which clip no gradients")
    args, kwargs = arguments.arguments_of(inputs, loss_fn)
    wanted, others = arguments.device_wanted(device, model), arguments.batches_of(batches)
    known = rates_of(rates, wanted)
    if largest_batch and budget is None:
        raise ValueError("largest_batch=True looks for the largest batch that fits into memory: state memory, as in memory=\"24GiB\"")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # Autograd wants a driver for CUDA's tensors, even for those without bytes.
    traced = wanted if is_at_hand(wanted) else torch.device("cpu")
    fake = like(model, traced, mode)
    leaf = next((leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dim()), None)
    if leaf is None and (others or largest_batch):
        raise ValueError("inputs has no tensor with a batch dimension: leave out batches and largest_batch")
    batch = 1 if leaf is None else leaf.shape[0]
    phase = Phase(accumulated == 1, optimizer is not None)
    with mode:
        ours = made(optimizer, model, fake, mode)
        if not isinstance(ours, (list, tuple)) and not hasattr(ours, "param_groups"):
            raise TypeError(f"optimizer must return a torch.optim.Optimizer, not {arguments.kind_of(ours)}")
        step = Step(fake, loss_fn, ours, MOST - 1, accumulated, clip, None, host_bytes)
    step.costs, step.updates.device = Roofline(known), wanted
    step.foretold = Foretold(wanted, known) if traced != wanted else None

    def choices(size: int) -> Choices:
        with mode, same_random_numbers():
            return trace(step, phase, *resized((args, kwargs), batch, size, traced))

    found = choices(batch)
    grown = Grown(found, choices, batch)
    fits = None if budget is None else found.floor_bytes <= budget
    chosen = found.at(budget) if budget is not None and fits else None
    return Forecast(
        device=str(wanted),
        batch=batch,
        updates=phase.last,
        memory_bytes=budget,
        fits=fits,
        seconds=chosen.plan.seconds if chosen else None,
        host_memory_bytes=host_bytes,
        moved_bytes=chosen.moved_bytes if chosen else None,
        kept_bytes=found.given + found.fastest.needed,
        kept_seconds=found.fastest.plan.seconds,
        floor_bytes=found.floor_bytes,
        floor_at="" if found.family.floor.node is None else where(found.joint.kernels[found.family.floor.node].node),
        parameter_bytes=size_of(fake.parameters()),
        state_bytes=step.state_bytes() if optimizer is not None else 0,
        buffer_bytes=size_of(fake.buffers()),
        library_bytes=found.library_bytes,
        gradient_bytes=found.earlier_gradients,
        input_bytes=size_of(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)),
        holders=holders(found, found.fastest),
        ladder=found.ladder(ROWS),
        batches={size: grown.needs(size) for size in others},
        largest_batch=grown.largest(budget) if largest_batch and budget is not None else None,
    )


def trace(step: Step, phase: Phase, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Choices:
    """The plans of a step on fake tensors."""
    asked = Asked(step, Way(phase, step.one_by_one))
    torch._dynamo.reset()
    with unlogged():
        try:
            with without_logs():
                torch.compile(step._loss(), backend=asked, fullgraph=True, dynamic=False)(*args, **kwargs)
        except Enough:
            return asked.found
        except Exception as error:
            if not is_of_dynamo(error):
                raise
            failed = error
        else:
            raise ValueError(NO_GRADIENT)
        translate(failed, no_step, step._loss(), args, kwargs)
    raise failed


def is_at_hand(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()


def rates_of(rates: str | Rates | None, device: torch.device) -> Rates:
    if isinstance(rates, Rates):
        return rates
    if rates is None:
        return DEVICES["cpu" if device.type == "cpu" else "A100"]
    if not isinstance(rates, str):
        raise TypeError(f"rates must be a name or highwater.torch.Rates(...), not {arguments.kind_of(rates)}")
    name = next((name for name in DEVICES if name.lower() == rates.lower()), None)
    if name is None:
        raise ValueError(f"rates={rates!r} is unknown: choose one of {', '.join(DEVICES)}, or pass highwater.torch.Rates(...)")
    return DEVICES[name]


def like(model: nn.Module, device: torch.device, mode: FakeTensorMode) -> nn.Module:
    """A model of the same structure whose tensors have no bytes."""
    with mode, FakeCopyMode(mode):
        known: dict[int, Any] = {}
        for tensor in [*model.parameters(), *model.buffers()]:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            known[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
        try:
            return copy.deepcopy(model, known)
        except Exception as error:
            raise TypeError(f"plan needs a copy of the model, and copy.deepcopy(model) failed: {said(error)}") from error


def made(optimizer: Any, model: nn.Module, fake: nn.Module, mode: FakeTensorMode) -> Any:
    """An optimizer of the parameters of a model without bytes: of this kind, or a copy of this one."""
    trained = [parameter for parameter in fake.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("no parameter requires a gradient: there is no training step")
    if optimizer is None:
        return optim.SGD(trained, lr=0.0)
    if isinstance(optimizer, (list, tuple)) or hasattr(optimizer, "step") and not isinstance(optimizer, type):
        same = zip(model.parameters(), fake.parameters(), strict=True)
        return copied(Optimizers(optimizer).all, {id(parameter): twin for parameter, twin in same}, mode)
    return optimizer(trained)


def size_of(tensors: Iterable[Tensor]) -> int:
    return sum({storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}.values())
