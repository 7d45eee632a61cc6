"""Graphs whose sizes are symbols: a plan is good for one size, so each that comes has its own. Numbers that are no
sizes are inputs, which one plan takes whatever they are."""

from __future__ import annotations

import math
import operator
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import highwater
import torch
from torch import Tensor, fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from .effects import call
from .threads import tracing as one_at_a_time

Run = Callable[..., Any]
Compile = Callable[[fx.GraphModule, Sequence[Any]], Run]
Spare = Callable[[Run, float, Sequence[Any]], bool]
"""Whether what was compiled for some sizes says that a graph may run without a plan, whose tensors are at most so
many times as large, with these inputs."""

# Of one graph, plans for so many sizes are there at a time: those that were used last.
PLANS = 256


def is_dynamic(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph takes sizes or other numbers."""
    return any(isinstance(value, (int, torch.SymInt)) for value in inputs) or any(map(items_of, places_of(module)))


def for_each_size(module: fx.GraphModule, compile: Compile, spare: Spare | None = None) -> Run:
    """A function that compiles a graph for each size of its inputs, when it first comes."""
    return Sizes(module, compile, spare)


# What Python computes of numbers alone, where nothing else is among its arguments.
OF_NUMBERS = {value for module in (operator, math) for value in vars(module).values() if callable(value)}
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Sizes:
    """A graph, and what was compiled for the sizes that came last."""

    def __init__(self, module: fx.GraphModule, compile: Compile, spare: Spare | None) -> None:
        self._module, self._compile, self._spare = module, compile, spare
        self._places = places_of(module)
        self._growth = Growth(module)
        self._are_numbers = [is_number(place, self._growth.symbols) for place in self._places]
        self._as_inputs = any(self._are_numbers)
        """Whether numbers can be inputs: kernels may want to know them."""
        self._known: OrderedDict[tuple[Any, ...], Run] = OrderedDict()

    def __call__(self, *values: Any) -> Any:
        sizes = tuple(map(self._size, values, self._are_numbers))
        run = self._known.get(sizes)
        if run is None and self._runs_as_is(sizes, values):
            return self._module(*values)
        if run is None:
            with one_at_a_time:
                sizes, run = self._found(values)
        with suppress(KeyError):  # another thread may have dropped it
            self._known.move_to_end(sizes)
        return run(*self._inputs(values))

    def _found(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], Run]:
        """What is compiled for some sizes, unless another thread did so meanwhile."""
        sizes = tuple(map(self._size, values, self._are_numbers))
        run = self._known.get(sizes)
        if run is None:
            run = self._made(values)
            sizes = tuple(map(self._size, values, self._are_numbers))  # numbers may have turned out to be no inputs
            self._known[sizes] = run
            if len(self._known) > PLANS:
                self._known.popitem(last=False)
        return sizes, run

    def _size(self, value: Any, is_number: bool) -> Any:
        """The part of an input that a plan depends on: the shape of a tensor, or a number that is compiled in."""
        if is_number:
            return None if self._as_inputs else float(value) if isinstance(value, Tensor) else value
        return tuple(value.shape) if isinstance(value, Tensor) else value

    def _inputs(self, values: Sequence[Any]) -> list[Any]:
        """What is handed on: sizes are in the graph by then, and numbers, where they cannot be inputs. Dynamo makes
        tensors of numbers, which are there either way."""
        kept = []
        for value, is_number in zip(values, self._are_numbers, strict=True):
            if is_number and self._as_inputs:
                kept.append(value if isinstance(value, Tensor) else torch.tensor(value))
            elif isinstance(value, Tensor):
                kept.append(value)
        return kept

    def _made(self, values: Sequence[Any]) -> Run:
        if self._as_inputs:
            try:
                with numbers_unknown():
                    return self._compile(self._graph(values), self._inputs(values))
            except highwater.OverBudget:
                raise
            except Exception:  # Something wants to know a number: then each value has a plan, as sizes have.
                self._as_inputs = False
                self._known.clear()
        return self._compile(self._graph(values), self._inputs(values))

    def _graph(self, values: Sequence[Any]) -> fx.GraphModule:
        """The graph with sizes in place of symbols."""
        graph = fx.Graph()
        names: dict[fx.Node, Any] = {}
        for node, value, is_number in zip(self._places, values, self._are_numbers, strict=True):
            if is_number and self._as_inputs or isinstance(value, Tensor):
                names[node] = graph.node_copy(node)
            if is_number:
                for item in [node] if isinstance(value, int) else items_of(node):
                    names[item] = graph.call_method("item", (names[node],)) if self._as_inputs else number_of(value)
            elif not isinstance(value, Tensor):
                names[node] = value
        for node in self._module.graph.nodes:
            if node.op == "output":
                graph.output(fx.map_arg(node.args[0], names.__getitem__))
            elif node not in names and node.op != "placeholder":
                names[node] = placed(graph, node, names)
        return fx.GraphModule(self._module, graph)

    def _runs_as_is(self, sizes: tuple[Any, ...], values: Sequence[Any]) -> bool:
        """Whether nobody wants gradients, and there is plenty of memory, by a plan for other sizes: then it runs as
        eager PyTorch would, and frees tensors at their last use."""
        if not self._spare or torch.is_grad_enabled():
            return False
        counts = self._growth.counts(sizes)
        for known, run in reversed(self._known.items()):
            growth = self._growth.between(self._growth.counts(known), counts)
            if self._spare(run, growth, values):
                return True
        return False


class Growth:
    """How many times as large the tensors of a graph are for one size as for another."""

    def __init__(self, module: fx.GraphModule) -> None:
        counts: dict[Any, None] = {}
        for part in module.modules():
            for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
                for leaf in pytree.tree_leaves(node.meta.get("example_value")):
                    if isinstance(leaf, Tensor):
                        counts |= dict.fromkeys(map(expression, (leaf.numel(), *leaf.shape, *leaf.stride(), leaf.storage_offset())))
        self._counts = [count for count in counts if count is not None and count.free_symbols]
        self.symbols = {symbol for count in self._counts for symbol in count.free_symbols}
        """What is part of a size."""
        self._names = [expression(place.meta.get("example_value")) for place in places_of(module)]

    def counts(self, sizes: tuple[Any, ...]) -> list[float]:
        """The numbers of elements, and all that they are products of."""
        values = {name: size for name, size in zip(self._names, sizes, strict=True) if name is not None and isinstance(size, int)}
        return [float(count.xreplace(values)) if count.free_symbols <= values.keys() else math.nan for count in self._counts]

    def between(self, known: list[float], now: list[float]) -> float:
        if any(map(math.isnan, now)):
            return math.inf
        return max((new / old if old > 0 else math.inf for old, new in zip(known, now, strict=True) if new > old), default=1.0)


def places_of(module: fx.GraphModule) -> list[fx.Node]:
    return module.graph.find_nodes(op="placeholder")


def items_of(place: fx.Node) -> list[fx.Node]:
    """Numbers that are not whole come in as tensors, and leave them at once."""
    value = place.meta.get("example_value")
    if not isinstance(value, Tensor) or value.dim() or value.dtype is not torch.float64:
        return []
    items = [user for user in place.users if user.op == "call_method" and user.target == "item"]
    return items if len(items) == len(place.users) else []


def is_number(place: fx.Node, sizes: set[Any]) -> bool:
    """Whether an input is a number that is part of no size."""
    value = place.meta.get("example_value")
    return bool(items_of(place)) or isinstance(value, torch.SymInt) and expression(value) not in sizes


def placed(graph: fx.Graph, node: fx.Node, names: Mapping[fx.Node, Any]) -> Any:
    """A node for the values that its sources have by now, or what Python makes of them: `1.bit_length()` is no code."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), names.__getitem__)
    is_of_value = node.op == "call_method" and not isinstance(args[0], fx.Node)
    is_of_numbers = node.op == "call_function" and node.target in OF_NUMBERS and isinstance(node.meta.get("example_value"), SYMBOLS)
    is_known = not any(isinstance(value, fx.Node) for value in pytree.tree_leaves((args, kwargs)))
    if is_known and (is_of_value or is_of_numbers):
        return call(node, args, kwargs)
    return graph.call_function(call_method, (str(node.target), *args), kwargs) if is_of_value else graph.node_copy(node, names.__getitem__)


def call_method(name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(value, name)(*args, **kwargs)


def number_of(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def expression(value: Any) -> Any:
    """That of a symbol, if it is one."""
    return value.node.expr if isinstance(value, torch.SymInt) else None


@contextmanager
def numbers_unknown() -> Iterator[None]:
    """Has AOTAutograd trace for sizes as they are, and for any value of a number that is taken out of a tensor."""
    unknown = ShapeEnv(allow_scalar_outputs=True, specialize_zero_one=False)
    with tracing(TracingContext(FakeTensorMode(shape_env=unknown, static_shapes=True))), warnings.catch_warnings():
        # Where that fails it is done in another way, and nobody has to know.
        warnings.filterwarnings("ignore", message="Error detected in")
        yield
