"""Bytes that an optimizer allocates while it steps on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .._device.device import Device

aten = torch.ops.aten

Scratch = Callable[[fx.Node], int]
"""Measures the bytes that a kernel allocates and frees again."""

# Tensors of so many numbers at most are real in a copy: counts of steps, learning rates.
SMALL = 1
# A number that is not known. Of 0 and 1 some optimizers have nothing to do, or divide by 0.
UNKNOWN = 0.5


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
