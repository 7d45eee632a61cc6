"""Copies of optimizers, with all that they hold.

`copy.deepcopy` does not do: PyTorch leaves attributes out, locks cannot be copied, and wrappers hand questions about
copying on to what they wrap. Here an object is copied attribute by attribute, and none of its code runs.
"""

from __future__ import annotations

import copy
import enum
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, optim

# What is the same in a copy.
SHARED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum, str, bytes, int, float, complex, torch.Size)


class Copies:
    """Copies objects, each once. `place`: copies a tensor. `known`: what has a copy already, by its id; those objects
    have to outlive this. `some`: the ids of parameters whose states are copied, if not all are."""

    def __init__(self, place: Callable[[Tensor], Any], known: dict[int, Any], some: Collection[int] = ()) -> None:
        self._place, self._some = place, some
        self._known = dict(known)
        self._held: list[Any] = []
        """Ids are of objects that are there: these are made on the way."""

    def all(self, optimizers: Sequence[Any]) -> list[Any]:
        return [self.of(one) for one in optimizers]

    def of(self, value: Any) -> Any:
        if id(value) not in self._known:
            made = self._made(value)
            self._held.append(value)
            self._known[id(value)] = made
        return self._known[id(value)]

    def _made(self, value: Any) -> Any:
        if isinstance(value, SHARED):
            return value
        if isinstance(value, Tensor):
            return self._place(value)
        if isinstance(value, torch.Generator):
            return value.clone_state()
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self.of(value.__self__))
        if isinstance(value, (dict, list, set, frozenset, tuple, deque)):
            return self._container(value)
        if type(value).__module__.partition(".")[0] in sys.stdlib_module_names or not hasattr(value, "__dict__"):
            return copy_or_share(value)
        return self._instance(value)

    def _container(self, value: Any) -> Any:
        kind: Any = type(value)
        if isinstance(value, (tuple, frozenset)):
            items = [self.of(item) for item in value]
            return kind(*items) if hasattr(value, "_fields") else kind(items)
        made = self._known[id(value)] = kind.__new__(kind)
        if isinstance(value, defaultdict):
            made.default_factory = value.default_factory
        if isinstance(value, dict):
            dict.update(made, {self.of(key): self.of(item) for key, item in value.items()})
        elif isinstance(value, list):
            list.extend(made, map(self.of, value))
        elif isinstance(value, set):
            set.update(made, map(self.of, value))
        else:
            made.__init__(map(self.of, value), value.maxlen)
        if hasattr(value, "__dict__"):
            vars(made).update(self._attributes(value))
        return made

    def _instance(self, value: Any) -> Any:
        try:
            made = object.__new__(type(value))
        except TypeError:  # it is more than its attributes
            return copy_or_share(value)
        self._known[id(value)] = made
        vars(made).update(self._attributes(value))
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in [slots] if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    object.__setattr__(made, name, self.of(getattr(value, name)))
        return made

    def _attributes(self, value: Any) -> dict[str, Any]:
        """An object's. Of an optimizer without hooks, and without a `step` that was replaced on the instance, which
        would step the original."""
        attributes = dict(vars(value))
        if isinstance(value, optim.Optimizer):
            attributes.pop("step", None)
            for name in attributes:
                if name.startswith("_optimizer_") and name.endswith("_hooks"):
                    attributes[name] = OrderedDict()
            if self._some and isinstance(attributes.get("state"), dict):
                attributes["state"] = defaultdict(dict, {key: state for key, state in attributes["state"].items() if id(key) in self._some})
        self._held.append(attributes)
        return {name: self.of(attribute) for name, attribute in attributes.items()}


def copy_or_share(value: Any) -> Any:
    """A copy of something that is no tensor and holds none; what has no copies, as locks and files, is shared."""
    try:
        return copy.copy(value)
    except Exception:
        return value
