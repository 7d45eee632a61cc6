"""Random numbers of Python and NumPy in a model.

Dynamo draws `random.random()`, `uniform`, `randint` and `randrange` when a graph is called, in the order of the code.
A branch by such numbers is taken as in eager PyTorch: a guard draws them once before, and puts the generators back. What
Dynamo would draw once for all while it traces, or from a generator of PyTorch's, breaks the graph.
"""

from __future__ import annotations

import functools
import operator
import random
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.exc import unimplemented
from torch._dynamo.source import RandomValueSource
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables import misc, user_defined
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.misc import NumpyVariable, RandomVariable
from torch._dynamo.variables.tensor import TensorVariable, UnspecializedPythonVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .._messages.locations import CannotPlan, line_of, shortened, where
from .branches import ancestors, guard_by, name_of, ways
from .draws import keep
from .effects import WRITES, Effects, Unknown, call, is_write, leaves
from .patches import active, instead, is_active
from .refusals import needs_number

# Methods of `random.Random` that Dynamo draws when the graph is called.
DRAWN_LATER = ("random", "uniform", "randint", "randrange")

OPERATORS = {value for value in vars(operator).values() if callable(value)}

METHODS = (types.MethodType, types.BuiltinMethodType)
TO_DTYPE = torch.ops.aten._to_copy.default

# Functions whose formulas are others for a tensor than for a number, in the last bits.
POWERS = {"pow", "pow_", "__pow__", "__rpow__", "ipow", "__ipow__", "float_power", "float_power_"}

# A draw from a generator object of the model's, which PyTorch 2.14 does not have.
OF_OBJECT: Any = getattr(user_defined, "RandomCallOnSource", ())


def refuse(what: str) -> None:
    refuse_for(f"A graph cannot draw {what}. Draw them before the call and pass them in, or use torch's random numbers.")


def refuse_for(explanation: str) -> None:
    unimplemented(gb_type="Random numbers of Python or NumPy", context="random", explanation=explanation, hints=[])


class Calls:
    """What a graph draws of Python's random numbers, and the branches that it takes by that."""

    def __init__(self, calls: Sequence[Any], state: Any) -> None:
        self._calls, self.state = calls, state
        self.answers: dict[fx.Node, bool] = {}
        self._nodes: dict[fx.Node, list[fx.Node]] = {}
        """What each of these conditions follows from, in order."""
        self._names: dict[fx.Node, str] = {}
        self._draws: dict[fx.Node, int] = {}
        """Which call draws a number."""

    def add(self, nodes: list[fx.Node]) -> bool:
        """Another branch, by the last of some nodes, and what it comes to."""
        arguments = {node: node.meta["grapharg"] for node in nodes if node.op == "placeholder"}
        for place, argument in arguments.items():
            if isinstance(argument.source, RandomValueSource):
                self._draws[place] = argument.source.random_call_index
            else:
                self._names[place] = name_of(argument.source)
        self._nodes[nodes[-1]] = nodes
        answer = self.answers[nodes[-1]] = computed(nodes, {place: argument.example for place, argument in arguments.items()})
        return answer

    def holds(self, scope: dict[str, Any]) -> bool:
        """Whether a call takes the branches that were traced."""
        calls = [(of_object(fn, scope), args, kwargs) for fn, args, kwargs in self._calls[: max(self._draws.values()) + 1]]
        with undone([fn for fn, _, _ in calls]):
            numbers = [fn(*args, **kwargs) for fn, args, kwargs in calls]
        values = {place: eval(name, scope) for place, name in self._names.items()} | {place: numbers[i] for place, i in self._draws.items()}
        return all(computed(self._nodes[node], values) == answer for node, answer in self.answers.items())

    def words(self) -> str:
        # Dynamo is done, and asks at once: with the generator as it will be, and as it was when the call began.
        random.setstate(self.state)
        return f"{len(self.answers)} branches by Python's random numbers are those that were taken"


def of_object(fn: Any, scope: dict[str, Any]) -> Callable[..., Any]:
    return getattr(eval(name_of(fn.source), scope), fn.method_name) if isinstance(fn, OF_OBJECT) else fn  # type: ignore[no-any-return]


@contextmanager
def undone(draws: Sequence[Any]) -> Iterator[None]:
    """Leaves the generators whose methods these are as they were."""
    found = {id(owner): owner for draw in draws if isinstance(owner := getattr(draw, "__self__", None), random.Random)}
    states = {key: each.getstate() for key, each in found.items()}
    try:
        yield
    finally:
        for key, each in found.items():
            each.setstate(states[key])


def computed(nodes: Sequence[fx.Node], given: Mapping[fx.Node, Any]) -> bool:
    """The last of some nodes, for the numbers that inputs have."""
    values: dict[fx.Node, Any] = {}
    with _disable_current_modes():
        for node in nodes:
            if node.op == "placeholder":
                values[node] = torch._as_tensor_fullprec(given[node])
            else:
                values[node] = call(node, *fx.map_arg((node.args, node.kwargs), values.__getitem__))
        return bool(values[nodes[-1]])


def is_drawn(place: fx.Node) -> bool:
    return place.op == "placeholder" and isinstance(getattr(place.meta.get("grapharg"), "source", None), RandomValueSource)


def is_of_python(value: fx.Proxy) -> bool:
    """Whether eager PyTorch has a number of Python's where Dynamo has a tensor: one that is drawn, or is compared."""
    todo: list[Any] = [value]
    seen = set[fx.Node]()
    found = False
    while todo:
        at = todo.pop()
        node, tracer = at.node, at.tracer
        outer = next((other for other, inner in tracer.lifted_freevars.items() if inner.node is node), None)
        if node in seen:
            continue
        seen.add(node)
        if outer is not None:
            todo.append(outer)
        elif node.op == "placeholder" and (is_drawn(node) or is_number(node)):
            found |= is_drawn(node)
        elif node.op != "placeholder" and (node.target in OPERATORS or node.target == "item"):
            todo += [fx.Proxy(source, tracer) for source in node.all_input_nodes]
        else:
            return False
    return found


def is_number(node: fx.Node) -> bool:
    """Whether a node is a number of Python's, which follows from others alone."""
    if node.op == "placeholder":
        argument = node.meta.get("grapharg")
        return argument is not None and argument.source is not None and argument.pass_arg_as_tensor
    effects = Effects.of(node)
    return all(leaf.dim() == 0 for leaf in leaves(node)) and not (effects.draws or effects.runs_custom or effects.writes)


def taken(tx: Any, value: VariableTracker) -> bool | None:
    """What a branch by numbers of Python's comes to, for which the graph is then good. None if it is by others."""
    if not isinstance(value, TensorVariable) or tx.output.current_tracer is not tx.output.root_tracer:
        return None
    nodes = ancestors(value.proxy.node)
    try:
        if nodes is None or not any(map(is_drawn, nodes)) or not all(map(is_number, nodes)):
            return None
    except Unknown:
        return None
    calls: Calls | None = getattr(tx.output, "highwater_calls", None)
    if calls is None:
        tx.output.highwater_calls = calls = Calls(tx.output.random_calls, tx.speculation_log.highwater_state)
        guard_by(calls.holds, calls.words)
    keep(tx.output.graph)
    return calls.add(nodes)


def refuse_sizes(graph: fx.Graph, drawn: Collection[fx.Node]) -> None:
    """Refuses a size that follows from a number that is drawn."""
    after = set(drawn)
    for node in graph.nodes if after else ():
        follows = not after.isdisjoint(node.all_input_nodes)
        if any(free_unbacked_symbols(leaf.shape) for leaf in leaves(node)):
            if follows:
                raise needs_number(shortened(line_of(node)))
            return
        if follows:
            after.add(node)


def refuse_wide(graph: fx.Graph) -> None:
    """Refuses a number that is drawn where eager PyTorch computes otherwise with it than with the tensor that Dynamo has for it: that
    may give a result its dtype, and powers have other last bits."""
    drawn = [place for place in graph.find_nodes(op="placeholder") if place.name.startswith("random_value_")]
    numbers: dict[fx.Node, Any] = {place: torch.ones((), dtype=leaf.dtype).item() for place in drawn for leaf in leaves(place)}
    refuse_sizes(graph, numbers)
    for node in graph.nodes if numbers else ():
        if numbers.keys().isdisjoint(node.all_input_nodes) or node.op not in ("call_function", "call_method") or node.target is TO_DTYPE:
            continue
        name = (node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")).partition(".")[0]
        made = {leaf.dtype for leaf in leaves(node)}
        if made and (name in POWERS or name in ("lerp", "lerp_") and made & {torch.bfloat16, torch.float16}):
            raise CannotPlan(
                f"{where(node)} would have other last bits than in eager mode, as Python's random draws a number that it is given. "
                "Draw that number before the call and pass it in"
            )
        expected = tried(node, numbers) if name != "item" else numbers[node.all_input_nodes[0]]
        if isinstance(expected, (bool, int, float)):
            numbers[node] = expected
            continue
        # The dtypes that Dynamo has are not always those of what it hands to the graph.
        traced = tried(node, {place: torch._as_tensor_fullprec(number) for place, number in numbers.items()})
        for theirs, ours in zip(dtypes(expected), dtypes(traced) or [leaf.dtype for leaf in leaves(node)]):
            if theirs != ours:
                raise CannotPlan(
                    f"{where(node)} would be computed in {str(ours)[6:]} instead of {str(theirs)[6:]}, because Python's random draws a "
                    "number that it is given. Draw that number with torch.rand, or before the call"
                )


def tried(node: fx.Node, given: Mapping[fx.Node, Any]) -> Any:
    """What a node makes, among tensors that hold no numbers, with some values for others: anew, where it writes to one. None where
    that fails."""
    known = {source: given.get(source, source.meta.get("example_value")) for source in node.all_input_nodes}
    mode = next((value.fake_mode for value in [*leaves(node), *known.values()] if hasattr(value, "fake_mode")), None)
    if mode is None:
        return None
    with torch.no_grad(), mode:
        known = {
            source: torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device) if isinstance(value, Tensor) else value
            for source, value in known.items()
        }
        args, kwargs = fx.map_arg((node.args, {key: value for key, value in node.kwargs.items() if key != "out"}), known.__getitem__)
        try:
            return anew(node)(*args, **kwargs)
        except Exception:  # whatever the node's function raises
            return None


def anew(node: fx.Node) -> Callable[..., Any]:
    """A node's function, or the one that makes what it writes."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    found: Any
    if isinstance(node.target, str):
        found = getattr(Tensor, name.removesuffix("_"), None)
    elif name in WRITES:
        found = getattr(operator, {"iand": "and_", "ior": "or_"}.get(name, name[1:]))
    else:
        found = getattr(torch, name.removesuffix("_"), None)
    if not is_write(node) or found is None:
        return lambda *args, **kwargs: call(node, args, kwargs)
    return found  # type: ignore[no-any-return]


def dtypes(value: Any) -> list[torch.dtype]:
    return [leaf.dtype for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def argument(value: VariableTracker, what: str) -> VariableTracker:
    """A seed or a bound as a constant, for which the graph is then good."""
    found: VariableTracker = specialize_symnode(value.realize())
    if not found.is_python_constant():
        refuse_for(f"{what} has to be a number that is known when the call begins: pass it in.")
    return found


def is_seed(args: Sequence[VariableTracker]) -> bool:
    return bool(args) and args[0].is_python_constant() and args[0].as_python_constant() is not None


def arguments(name: str, args: Sequence[VariableTracker], kwargs: Mapping[str, VariableTracker]) -> tuple[list[VariableTracker], dict[str, VariableTracker]]:
    """What `random.seed` or a draw is given."""
    if name not in ("seed", *DRAWN_LATER):
        return [*args], {**kwargs}
    what = "A seed" if name == "seed" else f"A bound of random.{name}()"
    return [argument(value, what) for value in args], {key: argument(value, what) for key, value in kwargs.items()}


def dtype_of(tx: Any, number: UnspecializedPythonVariable) -> VariableTracker:
    """The dtype of a tensor that eager PyTorch makes of a number."""
    kinds = {float: torch.get_default_dtype(), int: torch.int64, bool: torch.bool}
    dtype: VariableTracker = VariableTracker.build(tx, kinds[type(number.raw_value)])
    return dtype


def number_as_tensor(tx: Any, function: Any, args: Sequence[VariableTracker], kwargs: Mapping[str, VariableTracker]) -> VariableTracker | None:
    """`torch.tensor` of a number that is drawn: Dynamo would copy the tensor of float64 that it has for it."""
    if function not in (torch.tensor, torch.as_tensor) or len(args) != 1 or not set(kwargs) <= {"dtype"} or not isinstance(args[0], UnspecializedPythonVariable):
        return None
    dtype = kwargs.get("dtype") or dtype_of(tx, args[0])
    made: VariableTracker = TorchInGraphFunctionVariable(TO_DTYPE).call_function(tx, [*args], {"dtype": dtype})
    return made


def look_at(generator: Any, name: str, args: Sequence[VariableTracker]) -> None:
    """Refuses a method of a generator of Python's that would draw while Dynamo traces, unless it draws the same in each call."""
    if name in ("seed", "setstate"):
        generator.random.highwater_seeded = name == "setstate" or is_seed(args)
    exists_before = generator.source is not None
    is_later = exists_before and name in DRAWN_LATER
    if exists_before and not OF_OBJECT or not (generator.random.highwater_seeded or is_later):
        if name == "seed":
            refuse_for("A graph cannot seed Python's random numbers. Seed them before the call, or draw from random.Random(seed) in the model.")
        refuse(f"the numbers of random.{name}()")


def generator_called(known: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
    """A method of a generator of Python's."""
    args, kwargs = arguments(name, args, kwargs)
    look_at(self, name, args)
    return known(name, args, kwargs)  # type: ignore[no-any-return]


def numpy_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> None:
    traced = misc.get_np_to_tnp_map().get(self.value)
    if traced is not None and traced.__module__ == "torch._numpy.random":
        refuse(f"the numbers of numpy.random.{traced.__name__}()")


def method_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    """A call of what may be a method of a generator: `random.random` is one."""
    if not isinstance(self.value, METHODS) or not isinstance(self.value.__self__, random.Random):
        return None
    name = self.value.__name__
    if name not in ("seed", "getstate", "setstate", *DRAWN_LATER):
        refuse(f"the numbers of random.{name}()")
    return known(*arguments(name, args, kwargs))  # type: ignore[no-any-return]


def torch_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    if self.value not in (torch.full, torch.full_like) or "out" in kwargs:
        return number_as_tensor(tx, self.value, args, kwargs)
    known_by_name = {**dict(zip(("size", "fill_value"), args)), **kwargs}
    number = known_by_name.pop("fill_value", None)
    if len(args) > 2 or not isinstance(number, UnspecializedPythonVariable):
        return None
    if self.value is torch.full:
        known_by_name.setdefault("dtype", dtype_of(tx, number))
    shape = known_by_name.pop("size", None) or known_by_name.pop("input")
    made = TorchInGraphFunctionVariable(torch.empty if self.value is torch.full else torch.empty_like).call_function(tx, [shape], known_by_name)
    return made.call_method(tx, "fill_", [number], {})


def builtin_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> None:
    if self.fn is operator.getitem and isinstance(args[1], UnspecializedPythonVariable) and not args[0].is_tensor():
        refuse_for("A graph cannot look something up by a number that Python's random draws. Draw it before the call and pass it in.")


def install() -> None:
    """Has Dynamo ask here, once for all: it does what it did outside of `branches_as_eager`."""
    instead(RandomVariable, "call_method", generator_called)
    instead(NumpyVariable, "call_function", numpy_called)
    instead(UserDefinedObjectVariable, "call_function", method_called)
    instead(TorchInGraphFunctionVariable, "call_function", torch_called)
    instead(BuiltinVariable, "call_function", builtin_called)
    # These do something after Dynamo's own.
    known_init: Any = RandomVariable.__init__
    known_start: Any = InstructionTranslator.__init__

    @functools.wraps(known_init)
    def init(self: Any, rand: Any = None, seed: VariableTracker | None = None, **kwargs: Any) -> None:
        if is_active() and seed is not None:
            seed = argument(seed, "A seed")
        known_init(self, rand, seed, **kwargs)
        # Whether what it draws is the same in each call.
        self.random.highwater_seeded = rand is None and seed is not None and is_seed([seed])

    @functools.wraps(known_start)
    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        """Dynamo may trace again from the beginning: with the same random numbers."""
        known_start(self, *args, **kwargs)
        if is_active():
            active.random_calls = self.output.random_calls
            log = self.speculation_log
            if hasattr(log, "highwater_state"):
                random.setstate(log.highwater_state)
            else:
                log.highwater_state = random.getstate()

    RandomVariable.__init__ = init  # type: ignore[method-assign]
    InstructionTranslator.__init__ = start  # type: ignore[method-assign]
    ways.append(taken)


install()
