"""What an optimizer's step needs, found by a copy of the optimizer that takes it on tensors without bytes.

Nothing is assumed of an optimizer: the copy is of the object that the user made, with its settings and its state. Small
tensors of its state, which count steps, are real in the copy, so that it decides by them as the optimizer will.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.optim import optimizer as base
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import _rows
from ._copies import Copies
from ._device import KINDS, Device
from ._effects import storage_key
from ._errors import unlogged
from ._optimizers import ALONE, is_trained

aten = torch.ops.aten

Scratch = Callable[[fx.Node], int]
"""Measures the bytes that a kernel allocates and frees again."""

# Tensors of so many numbers at most are real in a copy: counts of steps, learning rates.
SMALL = 1
# Kernels of the CPU hold numbers among their arguments in tensors, which are not seen where there are no bytes.
SCALARS = 16
# A number that is not known. Of 0 and 1 some optimizers have nothing to do, or divide by 0.
UNKNOWN = 0.5
# A copy takes so many steps, and one more in which counts of steps are as late as this.
STEPS, LATE = 3, 1e6

HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of an update."""

    state: int
    """What the optimizer holds afterwards."""
    scratch: int
    """What it allocates beside that, at most."""

    def __or__(self, other: Needs) -> Needs:
        """What is enough for both."""
        state = max(self.state, other.state)
        return Needs(state, max(self.state + self.scratch, other.state + other.scratch) - state)


class Rehearsal:
    """Copies of optimizers, whose steps are taken on tensors without bytes. `device`: where the parameters will be, if
    they are elsewhere now."""

    def __init__(self, like: Sequence[Tensor], scratch: Scratch, device: torch.device | None = None) -> None:
        fake = next((tensor.fake_mode for tensor in like if isinstance(tensor, FakeTensor)), None)
        # A kernel that knows no tensors without bytes would be run on real ones.
        self._mode = fake or FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self._device = device
        kind: Device = KINDS[(device or like[0].device).type](device or like[0].device)
        self._live = Live(kind, scratch)
        self._parameters: list[Tensor] = []
        self._copies: list[Any] = []
        self._rows: int | None = None

    @staticmethod
    @_disable_current_modes()
    def of_one(
        optimizer: Any,
        group: dict[str, Any],
        parameter: Tensor,
        state: dict[str, Any],
        scratch: Scratch,
        device: torch.device | None = None,
        *,
        rows: int | None = None,
    ) -> Rehearsal:
        """Updates of one parameter in some state, by an optimizer of `ALONE`, so many rows at a time."""
        made = Rehearsal([parameter], scratch, device)
        made._rows = rows
        twin = twin_of(optimizer, group, made._parameter(parameter))
        (like,) = twin.param_groups[0]["params"]
        made._copies = [twin]
        if state:
            twin.state[like] = {key: made._place(value) if isinstance(value, Tensor) else copy.copy(value) for key, value in state.items()}
        return made

    @staticmethod
    @_disable_current_modes()
    def of_all(
        optimizers: Sequence[Any], parameters: Sequence[Tensor], scratch: Scratch, device: torch.device | None = None, *, some: Collection[int] = ()
    ) -> Rehearsal:
        """Updates of all `parameters`, by copies of whole optimizers; or of `some` of them, by their ids."""
        made = Rehearsal(parameters, scratch, device)
        memo: dict[int, Any] = {id(parameter): made._parameter(parameter) for parameter in parameters}
        made._copies = Copies(made._place, memo, set(some)).all(optimizers)
        if some:
            made._parameters = [memo[i] for i in some]
            kept = set(map(id, made._parameters))
            for group in [group for one in made._copies for group in one.param_groups]:
                group["params"] = [parameter for parameter in group["params"] if id(parameter) in kept]
        return made

    def step(self) -> Needs:
        """Takes a step. Raises what the optimizer raises."""
        for parameter in self._parameters:
            if parameter.grad is None and parameter.requires_grad:
                with self._mode:
                    parameter.grad = torch.empty_like(parameter, requires_grad=False)
                self._live.ignore(parameter.grad)
        self._step()
        for parameter in self._parameters:
            if not parameter.requires_grad:
                parameter.grad = None  # the optimizer may have made one
        state = self._live.now
        self._live.tidy()
        scalars = SCALARS if self._live.kind.device.type == "cpu" else 0
        return Needs(state, max(0, self._live.most - state) + scalars)

    def _step(self) -> None:
        with ExitStack() as stack:
            for around in (_disable_current_modes(), as_eager(), without_hooks(), same_random_numbers(), unlogged(), self._mode):
                stack.enter_context(around)
            if any(type(one) not in ALONE for one in self._copies):
                # What an optimizer compiles for itself runs as it is written: for tensors without data there is no code.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(self._live)
            self._live.most = 0
            for one in self._copies:
                if self._rows is not None:
                    _rows.step(one, self._rows)
                else:
                    # One that was replaced on the instance would step the user's own optimizer.
                    type(one).step(one)

    def makes_gradients(self) -> bool:
        """Whether optimizers give a gradient to parameters that have none. These copies are of no use afterwards."""
        for parameter in self._parameters:
            parameter.grad = None
        try:
            self._step()
        except Exception:  # It wants gradients.
            return False
        return any(parameter.grad is not None for parameter in self._parameters)

    def steps(self, count: int) -> Needs:
        """What is enough for some steps."""
        needs = self.step()
        for _ in range(count - 1):
            needs |= self.step()
        return needs

    @_disable_current_modes()
    def all_steps(self) -> Needs:
        """What is enough for all steps of an optimizer of `ALONE`, which decides by counts of steps alone."""
        needs = self.steps(STEPS)
        for one in self._copies:
            for state in one.state.values():
                if isinstance(count := state.get("step"), Tensor):
                    count.fill_(LATE)
        return needs | self.steps(2)  # the first of them may set what the second decides by

    @property
    def real_bytes(self) -> int:
        """Bytes that a copy takes itself."""
        return self._live.real_bytes

    def counts(self) -> int:
        """Bytes of states without dimensions, which count steps."""
        leaves = [leaf for one in self._copies for leaf in pytree.tree_leaves([dict(state) for state in one.state.values()])]
        return held((leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf.dim()), self._live.kind)

    def _parameter(self, parameter: Tensor) -> Tensor:
        """One like it. Its bytes are not an update's."""
        if type(parameter) in (Tensor, Parameter, FakeTensor):
            with self._mode:
                made = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype, device=self._device or parameter.device)
        else:
            made = self._mode.from_tensor(parameter.detach(), static_shapes=True)
        like = Parameter(made, is_trained(parameter))
        self._live.ignore(like)
        self._parameters.append(like)
        return like

    def _place(self, tensor: Tensor) -> Tensor:
        """A tensor of an optimizer in its copy."""
        if isinstance(tensor, FakeTensor):
            with self._mode:
                made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        elif type(tensor) is Tensor and tensor.numel() <= SMALL:
            made = tensor.detach().clone()
            self._live.own(made)
        else:
            like = tensor.detach()
            if type(like) is Tensor:
                # A state on the host is a part of a room, and goes where the parameter is.
                with self._mode:
                    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=self._device or like.device)
            else:
                made = self._mode.from_tensor(like, static_shapes=True)
        self._live.count(made)
        return made


def twin_of(optimizer: Any, group: dict[str, Any], like: Tensor) -> Any:
    """An optimizer of `ALONE` with the settings of a group, for one parameter, which gets a gradient."""
    twin = object.__new__(type(optimizer))
    vars(twin).update({key: value for key, value in vars(optimizer).items() if key != "step"})
    vars(twin).update({hooks: OrderedDict() for hooks in HOOKS})
    parameter = like if isinstance(like, Parameter) else Parameter(like)
    if not isinstance(parameter, FakeTensor):
        parameter.grad = torch.zeros_like(parameter)
    with _disable_current_modes():
        twin.param_groups = [{key: value.clone() if isinstance(value, Tensor) else value for key, value in group.items()}]
    twin.param_groups[0]["params"] = [parameter]
    twin.state = defaultdict(dict)
    if not group.get("fused") and not group.get("differentiable"):
        # It looks at the parameter's type, which is another where there are no bytes.
        defaults = KINDS[like.device.type](like.device).default_settings(type(optimizer))
        twin.param_groups[0].update({key: value for key, value in defaults.items() if key in group and group[key] is None})
    return twin


def copied(optimizers: Sequence[Any], parameters: dict[int, Any], mode: FakeTensorMode) -> list[Any]:
    """Copies of optimizers without bytes. `parameters`: those of the copies, by the ids of theirs."""

    def place(tensor: Tensor) -> Any:
        small = type(tensor) is Tensor and tensor.numel() <= SMALL
        made: Any = tensor.detach().clone() if small else mode.from_tensor(tensor.detach(), static_shapes=True)
        return Parameter(made, tensor.requires_grad) if isinstance(tensor, Parameter) else made

    return Copies(place, parameters).all(optimizers)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Leaves Python's generator as it was, and PyTorch's for CPUs, from which small tensors are drawn."""
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)


@contextmanager
def without_hooks() -> Iterator[None]:
    """Keeps hooks on all optimizers away from copies."""
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    hooks = [getattr(base, name) for name in names]
    for name in names:
        setattr(base, name, OrderedDict())
    try:
        yield
    finally:
        for name, value in zip(names, hooks, strict=True):
            setattr(base, name, value)


@contextmanager
def as_eager() -> Iterator[None]:
    """Has optimizers do what they do in a step, while one is compiled: for compilers they keep numbers in tensors."""
    compiler: Any = torch.compiler
    flag, compiler._is_compiling_flag = compiler._is_compiling_flag, False
    try:
        yield
    finally:
        compiler._is_compiling_flag = flag


def held(leaves: Iterator[Any] | Collection[Any], device: Device) -> int:
    """Bytes of a device's memory that tensors hold."""
    found = {id(leaf): device.rounded(leaf.nbytes) for leaf in leaves if isinstance(leaf, Tensor) and device.counts(leaf)}
    return sum(found.values())


def unseen(others: Iterable[Any], inputs: Iterable[Any], device: Device) -> int:
    """Bytes of memory that is there all the time and is not a graph's to see: of tensors that share none with its inputs."""
    seen = {storage_key(leaf) for leaf in inputs if isinstance(leaf, Tensor)}
    found = {storage_key(tensor): device.rounded(tensor.untyped_storage().nbytes()) for tensor in others if device.counts(tensor)}
    return sum(size for key, size in found.items() if key not in seen)


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that are made while it is active and are still there, with the scratch memory of
    kernels that are not element by element."""

    def __init__(self, kind: Device, scratch: Scratch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind, self.scratch = kind, scratch
        self.most = 0
        self._storages: dict[StorageWeakRef, int] = {}
        self._ignored: set[StorageWeakRef] = set()
        self._real: set[StorageWeakRef] = set()

    @property
    def now(self) -> int:
        self._storages = {storage: size for storage, size in self._storages.items() if not storage.expired()}  # type: ignore[no-untyped-call]
        return sum(self._storages.values())

    def count(self, value: Any) -> None:
        """Counts tensors from here on."""
        for leaf in plain(value):
            storage = reference(leaf)
            if leaf.device.type == self.kind.device.type and storage not in self._ignored:
                self._storages[storage] = self.kind.rounded(leaf.untyped_storage().nbytes())

    def ignore(self, tensor: Tensor) -> None:
        """Leaves a tensor out: it is there anyway."""
        for leaf in plain(tensor):
            self._ignored.add(reference(leaf))
            self._storages.pop(reference(leaf), None)

    def own(self, tensor: Tensor) -> None:
        """Has a small tensor compute what it says."""
        self._real.add(reference(tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(not issubclass(kind, (Parameter, FakeTensor)) and kind is not Tensor for kind in types):
            return NotImplemented  # tensors of tensors say themselves what they compute
        kwargs = kwargs or {}
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if self._is_real(func, given):
            with _disable_current_modes():
                answer = func(*args, **kwargs)
            self._note(answer)
            return answer
        if func is aten._local_scalar_dense.default:
            return True if given[0].dtype == torch.bool else UNKNOWN
        schema = func._schema
        if schema.is_mutable and not schema.returns:
            answer = None  # it writes, and makes nothing
        else:
            answer = func(*args, **kwargs)
        if is_number(answer) and all(reference(leaf) != reference(answer) for leaf in given):
            with _disable_current_modes():
                answer = func(*args, **kwargs) if not given else torch.full((), UNKNOWN, dtype=answer.dtype)
            self._note(answer)
        self.count(answer)
        calls = calls_of(func, args, kwargs) if has_scratch(func, given) else []
        within = max((self._within(func, *call, answer) for call in calls), default=0)
        self.most = max(self.most, self.now + within)
        return answer

    def _within(self, func: Any, args: Any, kwargs: Any, answer: Any) -> int:
        node = node_of(func, args, kwargs, answer)
        scratch = self.scratch(node)
        # Nodes know each other, and would hold the tensors until they are collected.
        for other in node.graph.nodes:
            other.meta.clear()
        return scratch

    @property
    def real_bytes(self) -> int:
        """Bytes of those tensors that are real."""
        expired: Callable[[StorageWeakRef], bool] = StorageWeakRef.expired
        return sum(size for storage, size in self._storages.items() if storage in self._real and not expired(storage))

    def tidy(self) -> None:
        """Forgets tensors that are gone."""
        self._real = {storage for storage in self._real if not storage.expired()}  # type: ignore[no-untyped-call]
        self._ignored = {storage for storage in self._ignored if not storage.expired()}  # type: ignore[no-untyped-call]

    def _is_real(self, func: Any, given: list[Tensor]) -> bool:
        if func in (aten.lift_fresh.default, aten.lift_fresh_copy.default):
            return not isinstance(given[0], FakeTensor) and given[0].numel() <= SMALL
        return bool(given) and all(not isinstance(leaf, FakeTensor) and reference(leaf) in self._real for leaf in given)

    def _note(self, answer: Any) -> None:
        for leaf in plain(answer):
            self._real.add(reference(leaf))
        self.count(answer)
        self.most = max(self.most, self.now)


def reference(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def plain(value: Any) -> Iterator[Tensor]:
    """The tensors of a value that have storages, with those that tensors of tensors are made of."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor) and hasattr(leaf, "__tensor_flatten__"):
            names, _ = leaf.__tensor_flatten__()
            yield from plain([getattr(leaf, name) for name in names])
        elif isinstance(leaf, Tensor):
            yield leaf


def is_number(answer: Any) -> bool:
    """Whether a result is a tensor without dimensions, on the CPU."""
    return isinstance(answer, Tensor) and not answer.dim() and answer.device.type == "cpu"


def has_scratch(func: Any, given: list[Tensor]) -> bool:
    """Whether a kernel may allocate bytes and free them again."""
    if func.namespace != "aten":
        return func.namespace not in ("prim", "prims", "profiler")
    name = func._schema.name.removeprefix("aten::")
    if name.startswith("_fused_"):
        return any(not leaf.is_contiguous() for leaf in given)  # gradients are copied row by row
    if func.is_view:
        return False
    # On CPUs, those element by element bring their inputs to one type first.
    mixed = len({leaf.dtype for leaf in given if leaf.dim()}) > 1
    return mixed or not name.startswith("_foreach_") and torch.Tag.pointwise not in func.tags


def calls_of(func: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """The calls of a kernel: one for many tensors takes them one after the other."""
    if not func._schema.name.startswith(("aten::_fused_", "aten::_foreach_")):
        return [(args, kwargs)]

    def only(value: Any, i: int) -> Any:
        return value[i : i + 1] if isinstance(value, (list, tuple)) else value

    each = range(len(args[0]))
    return [(tuple(only(value, i) for value in args), {name: only(value, i) for name, value in kwargs.items()}) for i in each]


def node_of(func: Any, args: Any, kwargs: Any, answer: Any) -> fx.Node:
    """A call as a node of a graph of its own."""
    graph = fx.Graph()

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        node = graph.placeholder("x")
        node.meta["val"] = leaf
        return node

    args, kwargs = pytree.tree_map(place, (args, kwargs))
    node = graph.call_function(func, args, kwargs)
    node.meta["val"] = answer
    return node
