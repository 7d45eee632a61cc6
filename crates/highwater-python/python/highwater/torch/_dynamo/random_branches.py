"""Branches that a model takes by random numbers, as eager PyTorch takes them.

What a draw comes to follows from the generator's state when a call begins, and from what is drawn before it. So a
guard draws those numbers once before, puts the state back, and takes the graph that was traced for them. An operation
in the graph checks that the number that is drawn then says the same.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.exc import unimplemented
from torch._dynamo.source import RandomValueSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import TensorVariable
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import _disable_current_modes

from .._messages.locations import where
from .branches import BYTES, ancestors, are_small, guard_by, is_known, name_of, ways
from .draws import alone, blank, bytes_of, is_by_size, is_draw, keep
from .effects import Effects, Unknown, call, leaves, may_write, storages_of
from .generators import BYTES as STATE, TAKEN, Slots, emit, slots_of
from .python_draws import is_drawn

COMPARED = {operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge", torch.lt: "lt", torch.le: "le", torch.gt: "gt", torch.ge: "ge"}
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

UNCOUNTED = "{} draws before it, and how many numbers follows from values"


class Drawn:
    """What a graph draws on the CPU until it takes a branch, and the branches that it takes by that."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.nodes: dict[fx.Node, None] = {}
        """What is computed to know them, in order."""
        self.answers: dict[fx.Node, bool] = {}
        self._read = set[fx.Node]()
        self._names: dict[fx.Node, str] = {}
        self._made_for: dict[tuple[fx.Node, ...], Any] = {}

    def add(self, node: fx.Node, found: Iterable[fx.Node]) -> None:
        """Another branch. Raises `Unknown` where it cannot be known."""
        draws = [other for other in before(node) if is_draw(other)]
        wanted = self._wanted({*found, node}, draws)
        read = {source for other in wanted for source in other.all_input_nodes if source in wanted} | {node}
        for other in in_order(node.graph, wanted):
            if not (other in draws or can_be_known(other)):
                raise Unknown(*blame(other, wanted, draws, {*found}))
        check_writes(node, wanted, read)
        if not are_small(other for other in wanted if other not in draws):
            raise Unknown(node, "{} is large")
        keep(node.graph)
        self._read |= read
        # Branches may look at numbers in another order than that in which they are drawn.
        self.nodes = dict.fromkeys(in_order(node.graph, {*self.nodes, *wanted, *draws}))
        # Dynamo drops what it knows of inputs when the graph is done.
        self._names |= {other: name_of(other.meta["grapharg"].source) for other in wanted if other.op == "placeholder"}

    def _wanted(self, found: set[fx.Node], draws: Sequence[fx.Node]) -> set[fx.Node]:
        """What has to have its value: a condition's sources, and what decides how many numbers are drawn before."""
        wanted = set(found)
        for draw in draws:
            if isinstance(draw.target, HigherOrderOperator):
                raise Unknown(draw, "{} draws before it, within a region that runs as a whole")
        todo = [draw for draw in draws if not is_by_size(draw)]
        todo += [source for draw in draws if is_by_size(draw) for source in draw.all_input_nodes if not isinstance(source.meta.get("example_value"), Tensor)]
        while True:
            for other in todo:
                sources = ancestors(other)
                if sources is None:
                    raise Unknown(other, UNCOUNTED)
                wanted |= {*sources}
            # What is drawn into memory that is wanted.
            memory = storages_of(wanted)
            todo = [draw for draw in draws if draw not in wanted and may_write(draw) and Effects.of(draw).writes & memory]
            if not todo:
                return wanted

    @property
    def bytes(self) -> int:
        """What drawing before takes: generators' states, old and new, and numbers."""
        numbers = {node: bytes_of(node) for node in self.nodes if node.op != "placeholder"}
        read = sum(size for node, size in numbers.items() if node in self._read)
        return 2 * STATE * (2 + len(self.slots.names) + len(self.slots.own)) + read + 3 * max(numbers.values(), default=0)

    def now(self) -> dict[fx.Node, Any]:
        return self._of({node: given(node, node.meta["grapharg"].example) for node in self.nodes if node.op == "placeholder"})

    def holds(self, scope: dict[str, Any]) -> bool:
        """Whether a call takes the branches that were traced."""
        if not self.slots.fill(scope):
            return False
        values = self._of({node: given(node, eval(name, scope)) for node, name in self._names.items()})
        return all(bool(values[node]) == answer for node, answer in self.answers.items())

    def _of(self, values: dict[fx.Node, Any]) -> dict[fx.Node, Any]:
        with _disable_current_modes(), torch.no_grad(), self.slots.undone():
            for node in self.nodes:
                if node.op != "placeholder":
                    made = self._made(node, values)
                    values[node] = made if node in self._read else None
        return values

    def _made(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        given = {source: values.get(source) for source in node.all_input_nodes}
        unknown = [source for source, value in given.items() if value is None]
        for source in unknown:
            given[source] = self._makes(blank, source, node)()
        args, kwargs = fx.map_arg((node.args, node.kwargs), given.__getitem__)
        return self._makes(alone, node)(args, kwargs) if unknown else call(node, args, kwargs)

    def _makes(self, kind: Any, *nodes: fx.Node) -> Any:
        """What is made for some nodes. Dynamo forgets what it knows of them."""
        if nodes not in self._made_for:
            self._made_for[nodes] = kind(*nodes)
        return self._made_for[nodes]


def in_order(graph: fx.Graph, nodes: Iterable[fx.Node]) -> list[fx.Node]:
    found = {*nodes}
    return [node for node in graph.nodes if node in found]


def before(node: fx.Node) -> Iterable[fx.Node]:
    for other in node.graph.nodes:
        if other is node:
            return
        yield other


def can_be_known(node: fx.Node) -> bool:
    runs_custom = node.op != "placeholder" and Effects.of(node).runs_custom
    return not runs_custom and (is_known(node) or is_python_number(node) or is_made(node))


def blame(node: fx.Node, wanted: set[fx.Node], draws: Sequence[fx.Node], found: set[fx.Node]) -> tuple[fx.Node, str]:
    """Why a condition cannot be known, in words for a node that a user knows."""
    if is_drawn(node):
        return node, "it follows from a number of Python's random too"
    if node not in found:
        return next((draw for draw in draws if not is_by_size(draw) and node in (ancestors(draw) or ())), node), UNCOUNTED
    return next((user for user in in_order(node.graph, wanted) if node.op == "placeholder" and node in user.all_input_nodes), node), "it follows from {} too"


def check_writes(condition: fx.Node, wanted: set[fx.Node], read: set[fx.Node]) -> None:
    """Raises `Unknown` where something writes to what a condition follows from, or to an input, before it is looked at."""
    inputs = storages_of(other for other in wanted if other.op == "placeholder")
    later = storages_of([condition])
    """What is still looked at after a node."""
    for other in reversed(condition.graph.nodes):
        if may_write(other) and Effects.of(other).writes & (inputs if other in wanted else later):
            raise Unknown(other, "{} writes to what it follows from")
        if other in wanted:
            later |= storages_of(source for source in other.all_input_nodes if source in read)


def is_python_number(node: fx.Node) -> bool:
    """Whether an input of the graph is a number of Python's, such as one that is annealed."""
    argument = node.meta.get("grapharg") if node.op == "placeholder" else None
    return argument is not None and argument.pass_arg_as_tensor and argument.source is not None and not isinstance(argument.source, RandomValueSource)


def given(place: fx.Node, value: Any) -> Any:
    """What the graph is given for a value: a tensor of a number that may change. A size that is a symbol becomes the one
    that there is now."""
    value = int(value) if isinstance(value, torch.SymInt) else value
    is_tensor = isinstance(place.meta.get("example_value"), Tensor)
    return torch._as_tensor_fullprec(value) if is_tensor and not isinstance(value, Tensor) else value


def is_made(node: fx.Node) -> bool:
    """Whether something follows from what it reads alone, and is small."""
    small = sum(leaf.numel() * leaf.element_size() for leaf in leaves(node)) <= BYTES
    return node.op in ("call_function", "call_method") and small and all(leaf.device.type == "cpu" for leaf in leaves(node))


def by_range(node: fx.Node) -> bool | None:
    """What comparing a number from 0 up to 1, which 1 is not, comes to, whichever it is."""
    name = COMPARED.get(node.target) or (node.target if node.target in TURNED else None)  # type: ignore[arg-type]
    if name is None or len(node.args) != 2 or node.kwargs:
        return None
    number, bound = node.args
    if isinstance(bound, fx.Node):
        number, bound, name = bound, number, TURNED[str(name)]
    if not isinstance(number, fx.Node) or number.target is not torch.rand or not isinstance(bound, (int, float)):
        return None
    if any(leaf.dtype not in (torch.float32, torch.float64) for leaf in leaves(number)):
        return None
    if name in ("lt", "ge") and (bound <= 0 or bound >= 1):
        return (name == "lt") == (bound >= 1)
    if name in ("gt", "le") and (bound < 0 or bound >= 1):
        return (name == "le") == (bound >= 1)
    return None


def decided_by_range(node: fx.Node) -> bool | None:
    """The same, where nothing was written to them since."""
    decided = by_range(node)
    if decided is not None:
        try:
            compared = {node, *node.all_input_nodes}
            check_writes(node, compared, compared)
        except Unknown:
            return None
    return decided


def refuse(unknown: Unknown, node: fx.Node) -> None:
    """Says what keeps the numbers of a branch from being known."""
    at = unknown.node or node
    unimplemented(
        gb_type="Branch by a random number",
        context=str(at),
        explanation=f"A branch by a random number has to be known before the call, but {(unknown.why or UNCOUNTED).format(where(at))}. "
        "Draw the number of the branch first, or pass it in.",
        hints=[],
    )


def follows(found: Sequence[fx.Node]) -> bool:
    """Whether something of a condition is drawn, be it into memory that was there before."""
    memory = storages_of(found)
    draws = (other for other in found[0].graph.nodes if drawn_or_none(other))
    return any(draw in found or may_write(draw) and Effects.of(draw).writes & memory for draw in draws)


def drawn_or_none(node: fx.Node) -> bool | None:
    try:
        return is_draw(node)
    except Unknown:
        return None


def taken(tx: Any, value: VariableTracker) -> bool | None:
    """What a branch by random numbers comes to, for which the graph is then good. None if that is not known."""
    if not isinstance(value, TensorVariable) or tx.output.current_tracer is not tx.output.root_tracer:
        return None
    node = value.proxy.node
    decided = decided_by_range(node)
    if decided is not None:
        keep(node.graph)
        emit(tx, TAKEN, value, VariableTracker.build(tx, decided), 0)  # The number is drawn all the same.
        return decided
    found = ancestors(node)
    if found is None or not follows(found):
        return None
    drawn: Drawn = getattr(tx.output, "highwater_drawn", None) or Drawn(slots_of(tx))
    try:
        drawn.add(node, found)
        answer = bool(drawn.now()[node])
    except Unknown as unknown:
        refuse(unknown, node)
        raise
    if not drawn.answers:
        tx.output.highwater_drawn = drawn
        guard_by(drawn.holds, lambda: f"{len(drawn.answers)} branches by random numbers are those that were taken")
    drawn.answers[node] = answer
    emit(tx, TAKEN, value, VariableTracker.build(tx, answer), drawn.bytes)
    return answer


ways.append(taken)
