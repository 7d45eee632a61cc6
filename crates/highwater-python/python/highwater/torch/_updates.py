"""The optimizer's part of a step: updates of one parameter at a time, and what they take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, optim
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import _rows
from ._costs import Costs
from ._device import KINDS, Device, device_of

aten = torch.ops.aten

# Those that update each parameter by what they know of it alone, so that one after the other is the same.
ALONE = {
    optim.ASGD, optim.Adadelta, optim.Adafactor, optim.Adagrad, optim.Adam, optim.AdamW, optim.Adamax, optim.Muon,
    optim.NAdam, optim.RAdam, optim.RMSprop, optim.Rprop, optim.SGD,
}  # fmt: skip

# Kernels of libraries, which take bytes within.
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)

# Kernels of the CPU have numbers among their arguments in tensors, which are not seen where there are no bytes.
SCALARS = 16


class Updates:
    """What an optimizer does to parameters. `scratch`: who knows what a matrix product takes for a while."""

    def __init__(self, optimizer: optim.Optimizer, scratch: Callable[[fx.Node], int] = lambda node: 0) -> None:
        self.optimizer, self._scratch = optimizer, scratch
        self.device: torch.device | None = None
        """Where the parameters will be, if not where they are."""
        self._needs: dict[Any, tuple[int, int]] = {}
        self._counts: dict[Any, int] = {}
        self._same: dict[Any, bool] = {}

    @property
    def one_by_one(self) -> bool:
        """Whether parameters may be updated one at a time, to the bits of an update of all."""
        optimizer: Any = self.optimizer
        hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        return type(optimizer) in ALONE and not any(hooks)

    def group_of(self, parameter: Tensor) -> dict[str, Any] | None:
        """The group that a parameter is in, without its parameters."""
        for group in self.optimizer.param_groups:
            if any(other is parameter for other in group["params"]):
                return {key: value for key, value in group.items() if key != "params"}
        return None

    def step(self, parameters: Iterable[Tensor]) -> None:
        """Updates some parameters, whose gradients are there, and lets go of those."""
        for parameter in parameters:
            with self._only(parameter):
                _rows.step(self.optimizer, self._rows(parameter))
            parameter.grad = None

    @contextmanager
    def _only(self, parameter: Tensor) -> Iterator[None]:
        groups, group = self.optimizer.param_groups, self.group_of(parameter)
        assert group is not None
        self.optimizer.param_groups = [{**group, "params": [parameter]}]
        try:
            yield
        finally:
            self.optimizer.param_groups = groups

    def _rows(self, parameter: Tensor) -> int | None:
        """How many rows of a parameter are updated at a time, None for all at once."""
        group, device = self.group_of(parameter), self.device or parameter.device
        assert group is not None
        rows = _rows.rows_at_once(type(self.optimizer), group, parameter, device)
        if rows is None or device.type == "cuda" and not torch.cuda.is_available():
            return rows
        ways = {key: bool(value) if isinstance(value, (int, float)) else type(value).__name__ for key, value in group.items()}
        key = (parameter.dtype, device, repr(ways))
        if key not in self._same:
            self._same[key] = _rows.same_bits(self._twin, parameter.dtype, device)
        return rows if self._same[key] else None

    def needs(self, parameter: Tensor) -> tuple[int, int]:
        """Bytes of a parameter's state, and those that its update takes for a while.

        Found by an update of a parameter of its size that has no bytes: what kernels take within is seen of
        matrix products alone.
        """
        key = self._key(parameter)
        if key not in self._needs:
            there = self.device or parameter.device
            rows = self._rows(parameter)
            with as_eager(), FakeTensorMode(allow_non_fake_inputs=True), Live(there.type, self._scratch) as live:
                twin = self._twin(torch.empty_like(parameter, requires_grad=False, device=there))
                # The first step makes the state, which is counted apart.
                taken = 0
                for _ in range(2):
                    live.most = 0
                    _rows.step(twin, rows)
                    taken = max(taken, live.most - live.now)
                leaves = pytree.tree_leaves([dict(state) for state in twin.state.values()])
                device = KINDS[there.type](there)
                state = held(leaves, device)
                counts = held((leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf.dim()), device)
                self._needs[key], self._counts[key] = (state, taken + (SCALARS if there.type == "cpu" else 0)), counts
        return self._needs[key]

    def count_bytes(self, parameter: Tensor) -> int:
        """What of a parameter's state counts steps, and stays where it is."""
        self.needs(parameter)
        return self._counts[self._key(parameter)]

    def _key(self, parameter: Tensor) -> Any:
        return tuple(parameter.shape), parameter.stride(), parameter.dtype, parameter.device, repr(self.group_of(parameter))

    def _twin(self, like: Tensor) -> optim.Optimizer:
        """An optimizer of the same kind and settings, of a made-up parameter with a gradient."""
        parameter = Parameter(like)
        parameter.grad = torch.zeros_like(parameter)
        kind: Any = type(self.optimizer)
        twin: optim.Optimizer = kind([parameter])
        group = twin.param_groups[0]
        group.update(self._settings())
        if not group.get("fused") and not group.get("differentiable"):
            # It looks at the parameter's type, which is another where there are no bytes.
            defaults = KINDS[like.device.type](like.device).default_settings(kind)
            group.update({key: value for key, value in defaults.items() if key in group and group[key] is None})
        return twin

    def _settings(self) -> dict[str, Any]:
        """The first group's, with numbers for tensors (a learning rate may be one)."""
        settings = {key: value for key, value in self.optimizer.param_groups[0].items() if key not in ("params", "param_names", "initial_lr")}
        with _disable_current_modes():
            return {key: value.item() if isinstance(value, Tensor) else value for key, value in settings.items()}

    def state_bytes(self, apart: Collection[int] = ()) -> int:
        """Bytes of all states, once each parameter has had an update. Of parameters that are `apart`, by their ids,
        only what counts steps."""
        total = 0
        for parameter in itertools.chain.from_iterable(group["params"] for group in self.optimizer.param_groups):
            leaves = pytree.tree_leaves(dict(self.optimizer.state.get(parameter) or {}))
            device = device_of([parameter])
            whole = held(leaves, device) if leaves else self.needs(parameter)[0]
            total += self.count_bytes(parameter) if id(parameter) in apart else whole
        return total

    def seconds(self, parameter: Tensor, costs: Costs) -> float:
        """What an update takes, in seconds, by one of a small parameter."""
        device = device_of([parameter])
        # With its gradient and state it has to have room, several times where it is computed from copies.
        count = max(1, int(min(parameter.numel(), device.timed_numbers, device.room() / 64)))

        def measured() -> tuple[float, int]:
            with as_eager(), _disable_current_modes():
                twin = self._twin(torch.zeros(count, 1, dtype=parameter.dtype, device=parameter.device))
                return device.seconds(twin.step, 3, 1.0), 0

        group = self.optimizer.param_groups[0]
        ways = {key: value for key, value in group.items() if value is None or isinstance(value, bool) or key == "momentum"}
        name = f"{type(self.optimizer).__name__}.step {ways} {parameter.device.type} {parameter.dtype} {count} {device.name}".rstrip()
        seconds: float = costs.known_or(name, measured)[0]
        return seconds * max(1.0, parameter.numel() / max(count, 1))


@contextmanager
def as_eager() -> Iterator[None]:
    """Has optimizers do what they do in a step, while one is compiled: for compilers they keep numbers in tensors."""
    compiler: Any = torch.compiler
    flag, compiler._is_compiling_flag = compiler._is_compiling_flag, False
    try:
        yield
    finally:
        compiler._is_compiling_flag = flag


def held(leaves: Iterable[Any], device: Device) -> int:
    """Bytes of a device's memory that tensors hold."""
    found = {id(leaf): device.rounded(leaf.nbytes) for leaf in leaves if isinstance(leaf, Tensor) and device.counts(leaf)}
    return sum(found.values())


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors on a kind of device that are made while it is active, and still there, and
    `scratch` of matrix products."""

    def __init__(self, kind: str, scratch: Callable[[fx.Node], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind, self.scratch = kind, scratch
        self.most = 0
        self._storages: dict[StorageWeakRef, int] = {}

    @property
    def now(self) -> int:
        self._storages = {storage: size for storage, size in self._storages.items() if not storage.expired()}  # type: ignore[no-untyped-call]
        return sum(self._storages.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            # A number that is not known, of a tensor without bytes. Of 0 and 1 some have nothing to do, or divide by 0.
            return 0.5
        answer = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(answer):
            if isinstance(leaf, Tensor) and leaf.device.type == self.kind:
                storage = leaf.untyped_storage()
                self._storages[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        within = self._within(func, args, kwargs or {}, answer) if func in PRODUCTS else 0
        self.most = max(self.most, self.now + within)
        return answer

    def _within(self, func: Any, args: Any, kwargs: Any, answer: Any) -> int:
        graph = fx.Graph()
        scratch = self.scratch(node_of(graph, func, args, kwargs, answer))
        # Nodes know each other, and would hold the tensors until they are collected.
        for node in graph.nodes:
            node.meta.clear()
        return scratch


def node_of(graph: fx.Graph, func: Any, args: Any, kwargs: Any, answer: Any) -> fx.Node:
    """A call as a node of a graph."""

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
