"""What a training step would take, told without allocating anything."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn, optim
from torch._dynamo.exc import ShortenTraceback
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils import _pytree as pytree

from ._calls import without_logs
from . import _arguments as arguments
from ._as_cuda import Foretold, with_attention_of_cuda
from ._choices import Choice, Choices
from ._effects import storage_key
from ._errors import unlogged
from ._graph import Kernel
from ._memory import MOST, parse, show
from ._optimizers import Optimizers
from ._rehearsal import copied
from ._roofline import DEVICES, Rates, Roofline
from ._pieces import no_step
from ._raised import is_of_dynamo, translate
from ._step import NO_GRADIENT, Step
from ._step_graph import Phase, Way, Whole
from ._where import line_of, module_of, operation_of, shortened, where

# How many rows of a table are shown.
ROWS = 8


@dataclass(frozen=True, slots=True)
class Holder:
    """Tensors of one kind that are alive at the peak."""

    bytes: int
    count: int
    """How many tensors."""
    module: str
    """The module of the model that computed them; numbers of layers are `*`."""
    operation: str
    line: str
    """File and line of the model's code."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that a step needs at one size of batch."""

    kept_bytes: int
    """With all kept that the backward reads."""
    floor_bytes: int
    """With all recomputed that helps."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a training step would take. Bytes are live ones; seconds are by a roofline. `str` has it in words."""

    device: str
    batch: int
    updates: bool
    """Whether it ends in updates, as `step` does, or in gradients, as with `backend`."""
    memory_bytes: int | None
    """The memory that was asked about."""
    fits: bool | None
    """Whether a step fits there."""
    seconds: float | None
    """Predicted seconds of a step there."""
    host_memory_bytes: int
    """How much of the host's memory tensors may wait in."""
    moved_bytes: int | None
    """Bytes that are copied there and back in a step within the memory."""
    kept_bytes: int
    """What it takes with everything kept."""
    kept_seconds: float
    floor_bytes: int
    """The least memory that a plan was found for."""
    floor_at: str
    """What needs the most then: the operation, its module, and its line."""
    parameter_bytes: int
    state_bytes: int
    """The optimizer's."""
    buffer_bytes: int
    library_bytes: int
    """What cuBLAS holds for itself on a GPU."""
    input_bytes: int
    holders: list[Holder]
    """Who holds the rest at the peak with everything kept, most first."""
    ladder: list[tuple[int, float]]
    """Amounts of memory, and the seconds of a step in them: fastest first."""
    batches: dict[int, Needs] = field(default_factory=dict)
    """What other sizes of batch would take."""
    largest_batch: int | None = None
    """The largest batch that was found to fit into the memory."""

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(words(self)) + "\n"


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
    are kept, as with `backend`.
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
        with mode:
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


class Grown:
    """What other sizes of batch take: each tensor's bytes grow in a straight line, which two sizes tell."""

    def __init__(self, found: Choices, trace: Callable[[int], Choices], batch: int) -> None:
        self.trace = trace
        self._known: dict[int, Choices] = {batch: found}
        # A batch of one is often computed in another way.
        self._first = max(batch, 2)

    def choices(self, size: int) -> Choices:
        if size not in self._known:
            self._known[size] = self._between(size) or self.trace(size)
        return self._known[size]

    def _traced(self, size: int) -> Choices:
        if size not in self._known:
            self._known[size] = self.trace(size)
        return self._known[size]

    def _between(self, size: int) -> Choices | None:
        """The plans of a size by those of two others, where all is computed in the same way."""
        if size < 2:
            return None
        first = self._first
        base, other = self._traced(first), self._traced(2 * first)
        ours, theirs = base.joint, other.joint
        same = [kernel.node.target for kernel in ours.kernels if is_aten(kernel)] == [kernel.node.target for kernel in theirs.kernels if is_aten(kernel)]
        if not same or len(ours.storages) != len(theirs.storages):
            return None
        lines = [(a.bytes, b.bytes - a.bytes) for a, b in zip(ours.storages, theirs.storages, strict=True)]
        if any(more % first for _, more in lines):
            return None
        scaled = copy.copy(ours)
        scaled.storages = [
            replace(storage, bytes=bytes + (size - first) * more // first)
            for storage, (bytes, more) in zip(ours.storages, lines, strict=True)
        ]
        return base.like(scaled)

    def needs(self, size: int) -> Needs:
        choices = self.choices(size)
        return Needs(choices.given + choices.fastest.needed, choices.floor_bytes)

    def largest(self, budget: int) -> int | None:
        """The largest batch that fits, by halving; None where not even one example does."""

        def fits(size: int) -> bool:
            return self.choices(size).floor_bytes <= budget

        low, high = 0, 1
        while fits(high):
            low, high = high, 2 * high
            if high > 1 << 20:
                return low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low or None


def is_aten(kernel: Kernel) -> bool:
    return isinstance(kernel.node.target, torch._ops.OpOverload)


def is_at_hand(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()


def resized(inputs: Any, batch: int, size: int, device: torch.device) -> Any:
    """Inputs of another batch, laid out as they were. One that comes twice is one."""
    known: dict[int, Tensor] = {}

    def one(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in known:
            sizes = [size if i == 0 and length == batch else length for i, length in enumerate(value.shape)]
            strides = value.stride()
            order = sorted(range(value.dim()), key=lambda i: -strides[i])
            made = torch.empty_permuted(sizes, order, dtype=value.dtype, device=device, requires_grad=value.requires_grad)
            known[id(value)] = made
        return known[id(value)]

    return pytree.tree_map(one, inputs)


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
            raise TypeError(f"plan needs a copy of the model, and copy.deepcopy(model) failed: {error}") from error


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


def by_layer(module: str) -> str:
    return re.sub(r"\b\d+\b", "*", re.sub(r"\[(\d+)\]|\.(\d+)(?=\.|$)", r".\1\2", module))


def holders(choices: Choices, choice: Choice) -> list[Holder]:
    """Who holds what at the peak, alike ones of all layers together."""
    sizes: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    held = choice.plan.holders()
    for value, size in held.values:
        if value < len(choices.joint.storages):
            node = choices.joint.storages[value].first
            key = by_layer(module_of(node)), operation_of(node), line_of(node)
            sizes[key] += size
            counts[key] += 1
    if held.scratch_bytes and held.node is not None:
        node = choices.joint.kernels[held.node].node
        key = by_layer(module_of(node)), f"{operation_of(node)} for a while", line_of(node)
        sizes[key] += held.scratch_bytes
        counts[key] += 1
    return [Holder(size, counts[key], key[0], key[1], key[2]) for key, size in sizes.most_common()]


def words(told: Forecast) -> list[str]:
    """A forecast for people."""
    given = [
        ("parameters", told.parameter_bytes),
        ("optimizer's state" + (", which may wait on the host" if told.host_memory_bytes else ""), told.state_bytes),
        ("buffers", told.buffer_bytes),
        ("inputs", told.input_bytes),
        ("workspaces of libraries", told.library_bytes),
    ]
    what, how = ("training step", "as highwater.torch.step does it") if told.updates else ("forward and backward", "as with highwater.torch.backend")
    lines = [f"A {what} on {told.device}, batch {told.batch}, {how}, by a roofline of the device:"]
    lines += [f"  {show(told.kept_bytes):>10}  with everything kept, {told.kept_seconds:.3g} s"]
    lines += [f"  {show(told.floor_bytes):>10}  at least" + (f", for {told.floor_at}" if told.floor_at else "")]
    if told.memory_bytes is not None:
        amount = show(told.memory_bytes, told.floor_bytes)
        if told.seconds is None:
            lines += [f"  {amount:>10}  does not fit: state more memory, or take a smaller batch"]
        else:
            moved = f", with {show(told.moved_bytes)} copied to the host and back" if told.moved_bytes else ""
            lines += [f"  {amount:>10}  fits, {told.seconds:.3g} s ({slower(told, told.seconds)}){moved}"]
        if told.largest_batch is not None:
            lines += [f"              the largest batch that fits is {told.largest_batch}"]
    lines += ["", "There all the time:"]
    lines += [f"  {show(size):>10}  {name}" for name, size in given if size]
    lines += ["", "At the peak with everything kept:"]
    for holder in told.holders[:ROWS]:
        place = f" in {holder.module}" if holder.module else ""
        line = f" at {shortened(holder.line)}" if holder.line else ""
        lines.append(f"  {show(holder.bytes):>10}  {holder.count} x {holder.operation}{place}{line}")
    rest = sum(holder.bytes for holder in told.holders[ROWS:])
    if rest:
        lines.append(f"  {show(rest):>10}  {sum(holder.count for holder in told.holders[ROWS:])} others")
    lines += ["", "      memory  seconds of a step"]
    lines += [f"  {show(size):>10}  {seconds:.3g} ({slower(told, seconds)})" for size, seconds in told.ladder]
    if told.batches:
        lines += ["", "  batch  everything kept    at least"]
        lines += [f"  {size:>5}  {show(needs.kept_bytes):>15}  {show(needs.floor_bytes):>10}" for size, needs in told.batches.items()]
    return [*lines, "", "Not in it is what kernels take for a while: only runs tell."]


def slower(told: Forecast, seconds: float) -> str:
    """By how much, beside keeping everything."""
    return f"+{max(seconds / told.kept_seconds - 1, 0):.1%}"
