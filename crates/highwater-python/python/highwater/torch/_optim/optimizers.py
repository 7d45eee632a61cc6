"""The optimizers of a step, taken as one set of parameters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from torch import Tensor, optim
from torch.optim import optimizer as base

# They update each parameter from its own gradient and state alone, so one after the other gives the same bits.
ALONE: set[type[optim.Optimizer]] = {
    optim.ASGD, optim.Adadelta, optim.Adafactor, optim.Adagrad, optim.Adam, optim.AdamW, optim.Adamax, optim.Muon,
    optim.NAdam, optim.RAdam, optim.RMSprop, optim.Rprop, optim.SGD,
}  # fmt: skip


def unhooked(step: Any) -> Any:
    """A class's `step` without the wrapper for hooks that PyTorch adds when it first makes an optimizer."""
    return step.__wrapped__ if getattr(step, "hooked", False) else step


STEPS: dict[Any, Any] = {kind: unhooked(kind.step) for kind in ALONE}


class Optimizers:
    """One optimizer or several, as the user made them. Nothing is built from their classes."""

    def __init__(self, given: Any) -> None:
        found = list(given) if isinstance(given, (list, tuple)) else [given]
        if not found:
            raise TypeError("optimizer is an empty list: pass an optimizer, or a list of optimizers")
        self.all: list[Any] = [checked(inner(one)) for one in found]
        self._owners: dict[int, tuple[Any, dict[str, Any]]] = {}
        seen: set[int] = set()
        for one in self.all:
            own = {id(parameter) for group in one.param_groups for parameter in group["params"]}
            if own & seen:
                raise ValueError(f"{name_of(one)} and another optimizer share a parameter: each parameter needs one optimizer")
            seen |= own

    @property
    def name(self) -> str:
        return " and ".join(map(name_of, self.all))

    @property
    def groups(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Each group, with its optimizer."""
        return ((one, group) for one in self.all for group in one.param_groups)

    @property
    def parameters(self) -> list[Tensor]:
        """Each parameter once, in the order of the groups."""
        return list({id(parameter): parameter for _, group in self.groups for parameter in group["params"]}.values())

    def owner(self, parameter: Tensor) -> tuple[Any, dict[str, Any]]:
        """A parameter's optimizer and group. Raises `KeyError` for one that has none."""
        found = self._owners.get(id(parameter))
        # A group may be new, or replaced by `load_state_dict`.
        if found is None or not any(group is found[1] for group in found[0].param_groups):
            self._owners = {id(other): owner for owner in self.groups for other in owner[1]["params"]}
            found = self._owners[id(parameter)]
        return found

    def state_of(self, parameter: Tensor) -> dict[str, Any]:
        """A parameter's state, or an empty dictionary that nobody holds."""
        state: dict[str, Any] = self.owner(parameter)[0].state.get(parameter, {})
        return state

    @property
    def one_by_one(self) -> bool:
        """Whether parameters may be updated one at a time: the bits are the same, and nothing can see it."""
        watched = base._global_optimizer_pre_hooks or base._global_optimizer_post_hooks
        return not watched and all(is_unwatched(one) and not has_shared_eps(one) for one in self.all)

    def step(self) -> None:
        """Updates all parameters, as the user's own loop would."""
        for one in self.all:
            one.step()

    def key(self) -> tuple[Any, ...]:
        """What an update's memory depends on: the parameters, which of them are trained, and settings that switch
        something on or off."""
        return tuple((*((id(p), is_trained(p)) for p in group["params"]), *ways(one, group)) for one, group in self.groups)


def has_shared_eps(optimizer: Any) -> bool:
    """Whether PyTorch's Adafactor takes an `eps` by the dtype of the first parameter that it updates for others, of
    another dtype."""
    groups = optimizer.param_groups if isinstance(optimizer, optim.Adafactor) else []
    return any(group["eps"][0] is None and len({parameter.dtype for parameter in group["params"]}) > 1 for group in groups)


def is_trained(parameter: Tensor) -> bool:
    """Whether a parameter has gradients, so that an optimizer keeps a state of it."""
    return parameter.requires_grad or parameter.grad is not None


def inner(optimizer: Any) -> Any:
    """An optimizer without the wrapper of a trainer that adds nothing to a step."""
    if kind := loaded("accelerate.optimizer", "AcceleratedOptimizer"):
        while isinstance(optimizer, kind):
            optimizer = optimizer.optimizer
    if kind := loaded("lightning.pytorch.core.optimizer", "LightningOptimizer", "pytorch_lightning.core.optimizer"):
        # Within a Trainer its step counts steps; alone it cannot step.
        if isinstance(optimizer, kind) and optimizer._strategy is None:
            optimizer = optimizer.optimizer
    return optimizer


def loaded(module: str, name: str, *others: str) -> Any:
    """A class of a package that may not be installed: whoever passes its objects has imported it."""
    return next((getattr(sys.modules[one], name, None) for one in (module, *others) if one in sys.modules), None)


def checked(optimizer: Any) -> Any:
    if optimizer is None:
        raise TypeError(
            "step needs an optimizer: step(model, loss_fn, optimizer, memory=...), "
            "or step(model, optimizer=optimizer, memory=...) if the model returns its loss"
        )
    if isinstance(optimizer, type):
        raise TypeError(f"optimizer is the class {optimizer.__name__}: pass an instance, {optimizer.__name__}(model.parameters(), ...)")
    if isinstance(optimizer, (optim.lr_scheduler.LRScheduler, optim.lr_scheduler.ReduceLROnPlateau)):
        raise TypeError(f"optimizer is a learning rate scheduler ({type(optimizer).__name__}): pass its optimizer, and call scheduler.step() yourself")
    if not callable(getattr(optimizer, "step", None)) or not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, or an object with param_groups and step(), not {type(optimizer).__name__}")
    if wants_closure(optimizer):
        raise TypeError(
            f"{name_of(optimizer)}.step needs a closure, because it computes the loss several times per update: "
            "compile the model with highwater.torch.backend, and write the loop yourself"
        )
    return optimizer


def wants_closure(optimizer: Any) -> bool:
    try:
        arguments = inspect.signature(type(optimizer).step).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(argument.default is argument.empty and argument.kind in positional for argument in list(arguments)[1:])


def is_unwatched(optimizer: Any) -> bool:
    """Whether an optimizer is one of `ALONE` as PyTorch made it: without hooks, and with its own `step`."""
    kind = type(optimizer)
    if kind not in ALONE or unhooked(kind.step) is not STEPS[kind]:
        return False
    own = vars(optimizer).get("step")
    # Learning rate schedulers wrap `step` to note that it was called.
    if own is not None and not (hasattr(own, "_wrapped_by_lr_sched") and own.__wrapped__ is kind.step):
        return False
    return not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def ways(optimizer: Any, group: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings of a group that an update's memory may depend on. Numbers count by whether they are zero."""
    known = optimizer.defaults if type(optimizer) in ALONE else group
    for key, value in group.items():
        if key == "params" or key not in known:
            continue
        if isinstance(value, (int, float)) and key != "lr":
            yield key, bool(value)
        else:
            yield key, value if value is None or isinstance(value, str) else type(value).__name__
    yield "tensors", sum(isinstance(value, Tensor) for value in group.values())


def name_of(optimizer: Any) -> str:
    return type(optimizer).__name__
