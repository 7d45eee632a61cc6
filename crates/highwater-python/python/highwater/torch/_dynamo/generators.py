"""Random generators inside a model: `torch.manual_seed`, `torch.random.fork_rng`, states that are read and set, and
`torch.Generator` objects.

Dynamo breaks a graph at all of them. Here they become operations of the graph, which run once and keep their order
with everything that draws random numbers. A draw from a generator object is a draw from the default generator, whose
state is exchanged for the object's before and after it: so kernels that run again need to know of one generator only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import script_object
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.functions import SkipFunctionVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable, UserDefinedVariable
from torch.fx.node import has_side_effect

from .._graph.nodes import COST
from .branches import guard_by, name_of
from .patches import instead

slots: dict[int, torch.Generator] = {}
"""The generator objects of graphs, by number."""

DEFAULT = -1
"""Stands for PyTorch's default generator."""

NEW = 67280421310721
"""The seed of a new `torch.Generator`."""


def generator(slot: int) -> torch.Generator:
    return torch.default_generator if slot == DEFAULT else slots[slot]


def default_like(own: torch.Generator) -> torch.Generator:
    """The default generator of an object's device."""
    if own.device.type == "cpu":
        return torch.default_generator
    return getattr(torch, own.device.type).default_generators[own.device.index or 0]  # type: ignore[no-any-return]


def exchange(slot: int) -> None:
    own = generator(slot)
    default = default_like(own)
    mine, theirs = own.get_state(), default.get_state()
    own.set_state(theirs)
    default.set_state(mine)


def state(slot: int) -> Tensor:
    return generator(slot).get_state()


def set_state(slot: int, state: Tensor) -> None:
    generator(slot).set_state(state)


def seed(slot: int, number: int) -> None:
    if slot == DEFAULT:
        torch.random.manual_seed(number)
    else:
        slots[slot].manual_seed(number)


BYTES = torch.get_rng_state().numel()
"""Of the state of a CPU's generator."""


def taken(condition: Tensor, answer: bool, _: int) -> None:
    """Checks a branch that was taken by a number before it was drawn. See `random_branches.py`."""
    if bool(condition) != answer:
        raise RuntimeError(
            "a model took a branch by a random number, and then another number was drawn: either another thread draws meanwhile, or an operation "
            "of your own draws before that branch, which no plan can see. Draw the number of the branch first, or before the call"
        )


library: Any = torch.library.Library("highwater", "DEF")  # type: ignore[no-untyped-call]


def operation(name: str, schema: str, run: Callable[..., Any], describe: Callable[..., Any]) -> Any:
    """An operation that is never left out, and does nothing while it is traced."""
    library.define(f"{name}{schema}")
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"highwater::{name}", describe, lib=library)
    found = getattr(torch.ops.highwater, name).default
    has_side_effect(found)
    return found


EXCHANGE = operation("exchange_generator", "(int slot) -> ()", exchange, lambda slot: None)
STATE = operation("generator_state", "(int slot) -> Tensor", state, lambda slot: torch.empty(BYTES, dtype=torch.uint8))
SET_STATE = operation("set_generator_state", "(int slot, Tensor state) -> ()", set_state, lambda slot, state: None)
SEED = operation("seed_generator", "(int slot, SymInt seed) -> ()", seed, lambda slot, seed: None)
TAKEN = operation("taken", "(Tensor condition, bool answer, int bytes) -> ()", taken, lambda condition, answer, bytes: None)
DREW = operation("drew", "(Tensor value) -> ()", lambda value: None, lambda value: None)
OURS = (EXCHANGE, STATE, SET_STATE, SEED)


def price(graph: fx.Graph) -> None:
    """States the cost of these operations, which cannot be measured: they would change a generator."""
    for node in graph.nodes:
        if node.target in OURS:
            node.meta[COST] = (1e-5, 2 * BYTES if node.target is EXCHANGE else 0)
        elif node.target is DREW:
            node.meta[COST] = (1e-6, 0)
        elif node.target is TAKEN:
            node.meta[COST] = (1e-5, node.args[2])


class Slots:
    """The generator objects that a graph draws from."""

    def __init__(self) -> None:
        self.own: list[int] = []
        """Those that the graph makes."""
        self.names: dict[str, int] = {}
        """Those that come from outside, by where they are."""

    def new(self, made: torch.Generator) -> int:
        slots[slot := len(slots)] = made
        return slot

    def fill(self, scope: dict[str, Any]) -> bool:
        """Finds the objects of a call. Whether they are of the kind that was traced."""
        for name, slot in self.names.items():
            found = eval(name, scope)
            if not isinstance(found, torch.Generator) or found.device != slots[slot].device or is_default(found) != is_default(slots[slot]):
                return False
            slots[slot] = found
        return True

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Leaves generators as they were."""
        found = {id(each): each for each in [torch.default_generator, *(slots[slot] for slot in [*self.names.values(), *self.own])]}
        states = {key: each.get_state() for key, each in found.items()}
        try:
            yield
        finally:
            for key, each in found.items():
                each.set_state(states[key])


def is_default(found: torch.Generator) -> bool:
    return found is default_like(found)


def slots_of(tx: Any) -> Slots:
    """Those of the graph that is being traced."""
    found: Slots | None = getattr(tx.output, "highwater_slots", None)
    if found is None:
        tx.output.highwater_slots = found = Slots()
    return found


def slot_of(tx: Any, value: VariableTracker) -> int | None:
    """The number of a generator object of Dynamo's, if it is one."""
    value = value.realize()
    own = getattr(value, "value", None)
    if not isinstance(value, UserDefinedObjectVariable) or not isinstance(own, torch.Generator):
        return None
    found = slots_of(tx)
    if value.source is None:
        return next((slot for slot in found.own if slots[slot] is own), DEFAULT if own is torch.default_generator else None)
    name = name_of(value.source)
    if name not in found.names:
        slot = found.names[name] = found.new(own)
        guard_by(found.fill, lambda: f"{name} is a generator")
        return slot
    return found.names[name]


def emit(tx: Any, target: Any, *args: VariableTracker | int) -> VariableTracker:
    values = [VariableTracker.build(tx, value) if isinstance(value, int) else value for value in args]
    made: VariableTracker = TorchInGraphFunctionVariable(target).call_function(tx, values, {})
    return made


def made(tx: Any, device: Any) -> VariableTracker:
    """A generator that the model makes: one object, which starts anew each time."""
    found, own = slots_of(tx), torch.Generator(device)
    slot = found.new(own)
    found.own.append(slot)
    emit(tx, SEED, slot, NEW)
    return UserDefinedObjectVariable(own)


def draws(call: Callable[..., VariableTracker], tx: Any, kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """A call with a generator as an argument."""
    slot = slot_of(tx, kwargs["generator"])
    if slot is None:
        return call(kwargs)
    others = {name: value for name, value in kwargs.items() if name != "generator"}
    if slot == DEFAULT or is_default(slots[slot]):
        return call(others)
    emit(tx, EXCHANGE, slot)
    answer = call(others)
    emit(tx, EXCHANGE, slot)
    return answer


def seeded(tx: Any, slot: int, args: Sequence[VariableTracker]) -> None:
    if any(isinstance(value.realize(), TensorVariable) for value in args):
        unimplemented(
            gb_type="Seed that is a tensor or is drawn",
            context="manual_seed",
            explanation="A seed has to be a number that is known when the call begins. Pass it in, or seed before the call.",
            hints=[],
        )
    emit(tx, SEED, slot, *args)


def method(tx: Any, value: VariableTracker, slot: int, name: str, args: Sequence[VariableTracker]) -> VariableTracker | None:
    """A method of a generator's."""
    if name == "manual_seed":
        seeded(tx, slot, args)
        return value
    if name == "set_state":
        emit(tx, SET_STATE, slot, *args)
        return value
    return emit(tx, STATE, slot) if name == "get_state" else None


def seeded_all(tx: Any, args: Sequence[VariableTracker]) -> VariableTracker:
    seeded(tx, DEFAULT, args)
    return UserDefinedObjectVariable(torch.default_generator)


FUNCTIONS: dict[Any, Callable[[Any, Sequence[VariableTracker]], VariableTracker]] = {
    torch.get_rng_state: lambda tx, args: emit(tx, STATE, DEFAULT),
    torch.set_rng_state: lambda tx, args: emit(tx, SET_STATE, DEFAULT, *args),
    torch.manual_seed: seeded_all,
    torch.random.manual_seed: seeded_all,
    torch.cuda.device_count: lambda tx, args: VariableTracker.build(tx, torch.cuda.device_count()),
}
"""What becomes operations, with positional arguments alone."""


def install() -> None:
    """Has Dynamo ask here, once for all: it does what it did outside of `branches_as_eager`."""
    for kind in (SkipFunctionVariable, TorchInGraphFunctionVariable):
        instead(kind, "call_function", function_called)
    instead(TensorVariable, "call_method", tensor_called)
    instead(UserDefinedObjectVariable, "call_method", generator_called)
    instead(UserDefinedObjectVariable, "reconstruct", generator_kept)
    for kind in (UserDefinedClassVariable, *vars(script_object).values()):
        if isinstance(kind, type) and issubclass(kind, UserDefinedVariable) and "call_function" in vars(kind):
            instead(kind, "call_function", class_called)


def function_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    try:
        ours = FUNCTIONS.get(self.value)
    except TypeError:  # it has no hash
        return None
    if ours is not None:
        return ours(tx, [*args, *kwargs.values()])
    return draws(lambda kwargs: known(args, kwargs), tx, kwargs) if "generator" in kwargs else None


def tensor_called(known: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker | None:
    return draws(lambda kwargs: known(name, args, kwargs), tx, kwargs) if "generator" in kwargs else None


def generator_called(known: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker | None:
    if not isinstance(self.value, torch.Generator):
        return None
    slot = slot_of(tx, self)
    return None if slot is None else method(tx, self, slot, name, [*args, *kwargs.values()])


def generator_kept(known: Any, self: Any, codegen: Any) -> None:
    """Refuses what would outlive the call that makes it."""
    if isinstance(self.value, torch.Generator) and self.source is None:
        unimplemented(
            gb_type="Generator that outlives the call",
            context="torch.Generator",
            explanation="A torch.Generator that a model makes while it is called cannot be kept. Make it before the call, as in __init__.",
            hints=[],
        )


def class_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    if getattr(self, "value", None) is not torch.Generator:
        return None
    devices = [value.as_python_constant() for value in [*args, *kwargs.values()]]
    return made(tx, *(devices or ["cpu"]))


install()
