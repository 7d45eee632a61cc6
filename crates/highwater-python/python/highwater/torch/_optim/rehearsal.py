"""What an optimizer's step needs, found by a copy of the optimizer that takes it on tensors without bytes.

Nothing is assumed of an optimizer: the copy is of the object that the user made, with its settings and its state. Small
tensors of its state, which count steps, are real in the copy, so that it decides by them as the optimizer will.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import Parameter
from torch.optim import optimizer as base
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .._device.device import KINDS, Device
from .._device.held import held
from .._messages.errors import unlogged
from .copies import Copies
from .live import SMALL, Live, Scratch
from .optimizers import ALONE, is_trained
from .rows import step_by_rows


# Kernels of the CPU hold numbers among their arguments in tensors, which are not seen where there are no bytes.
SCALARS = 16
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
                    step_by_rows(one, self._rows)
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
