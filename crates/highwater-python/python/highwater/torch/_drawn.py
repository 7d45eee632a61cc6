"""Branches that a model takes by random numbers, as eager PyTorch takes them.

What a draw comes to follows from the generator's state when a call begins, and from what is drawn before it. So a
guard draws those numbers once before, puts the state back, and takes the graph that was traced for them. An operation
in the graph checks that the number that is drawn then says the same.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._dynamo.source import RandomValueSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import TensorVariable
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import _disable_current_modes

from . import _branches
from ._branches import BYTES, ancestors, are_small, guard_by, is_known, name_of
from ._effects import Effects, Unknown, call, leaves, may_write, storages_of
from ._generators import BYTES as STATE, DREW, OURS, TAKEN, Slots, emit, slots_of

# How many numbers these draw follows from the sizes of what they read.
BY_SIZE = {F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, torch.rand_like, torch.randn_like}

COMPARED = {operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge", torch.lt: "lt", torch.le: "le", torch.gt: "gt", torch.ge: "ge"}
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Drawn:
    """What a graph draws on the CPU until it takes a branch, and the branches that it takes by that."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.nodes: dict[fx.Node, None] = {}
        """What is computed to know them, in order."""
        self.answers: dict[fx.Node, bool] = {}
        self._seen: dict[fx.Node, bool] = {}
        self._read = set[fx.Node]()
        self._names: dict[fx.Node, str] = {}
        self._kept = set[fx.Node]()
        self._blanks: dict[fx.Node, Any] = {}

    def add(self, node: fx.Node, found: Iterable[fx.Node]) -> None:
        """Another branch. Raises `Unknown` where it cannot be known."""
        earlier = list(before(node))
        draws = [other for other in earlier if self._draws(other)]
        wanted = {*found, node}
        for draw in draws:
            if draw.target not in BY_SIZE or draw in wanted:
                wanted |= {draw, *(ancestors(draw) or unknown())}
        if any(Effects.of(other).runs_custom for other in wanted if other.op != "placeholder"):
            unknown()
        memory, inputs = storages_of(wanted), storages_of(other for other in wanted if other.op == "placeholder")
        for other in filter(may_write, earlier):
            if Effects.of(other).writes & (inputs if other in wanted else memory):
                unknown()
        if not all(other in draws or is_known(other) or is_python_number(other) or is_made(other) for other in wanted):
            unknown()
        if not are_small(other for other in wanted if other not in draws):
            unknown()
        for other in list(node.graph.nodes):
            with suppress(Unknown):
                if self._draws(other):
                    self._keep(other)
        wanted |= set(draws)
        self._read |= {source for other in wanted if other.target not in BY_SIZE or other in found for source in other.all_input_nodes} | {node}
        self.nodes = dict.fromkeys(other for other in [*earlier, node] if other in wanted or other in self.nodes)
        # Dynamo drops what it knows of inputs when the graph is done.
        self._names |= {other: name_of(other.meta["grapharg"].source) for other in wanted if other.op == "placeholder"}

    def _keep(self, draw: fx.Node) -> None:
        """Has a draw stay in the graph, also where the branch that is taken does not look at it."""
        value = draw.meta.get("example_value")
        if draw in self._kept or not isinstance(value, Tensor):
            return
        self._kept.add(draw)
        with draw.graph.inserting_after(draw):
            looked_at = draw.graph.call_method("detach", (draw,))
        with draw.graph.inserting_after(looked_at):
            draw.graph.call_function(DREW, (looked_at,))
        looked_at.meta["example_value"] = value.detach()

    def _blank(self, node: fx.Node) -> Any:
        """Something of the size of what is not known. Where that is a symbol, the graph is for the size that there is now."""
        if node not in self._blanks:
            value = node.meta["example_value"]
            self._blanks[node] = value
            if isinstance(value, Tensor):
                shape, strides = [int(size) for size in value.shape], [int(step) for step in value.stride()]
                self._blanks[node] = functools.partial(torch.empty_strided, shape, strides, dtype=value.dtype, device=value.device)
        found = self._blanks[node]
        return found() if isinstance(found, functools.partial) else found

    def _draws(self, node: fx.Node) -> bool:
        """Whether a node draws on the CPU, or changes a generator."""
        if node not in self._seen:
            self._seen[node] = node.target in OURS or node.op in ("call_function", "call_method") and is_draw(node)
        return self._seen[node]

    @property
    def bytes(self) -> int:
        """What drawing before takes: generators' states, old and new, and numbers."""
        numbers = [int(leaf.numel()) * leaf.element_size() for node in self.nodes if node.op != "placeholder" for leaf in leaves(node)]
        return 2 * STATE * (2 + len(self.slots.names) + len(self.slots.own)) + sum(numbers) + 2 * max(numbers, default=0)

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
                    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: values[source] if source in self._read and source in values else self._blank(source))
                    made = call(node, args, kwargs)
                    values[node] = made if node in self._read else None
        return values


def unknown() -> Any:
    raise Unknown


def before(node: fx.Node) -> Iterable[fx.Node]:
    for other in node.graph.nodes:
        if other is node:
            return
        yield other


def is_draw(node: fx.Node) -> bool:
    """Whether a call draws on the CPU."""
    if isinstance(node.target, HigherOrderOperator):
        return bool(unknown())
    if node.target is F.scaled_dot_product_attention and not (node.kwargs.get("dropout_p") or len(node.args) > 4 and node.args[4]):
        return False
    made = leaves(node)
    if made and all(leaf.device.type != "cpu" for leaf in made):
        return False
    return Effects.of(node).draws


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


def taken(tx: Any, value: VariableTracker) -> bool | None:
    """What a branch by random numbers comes to, for which the graph is then good. None if that is not known."""
    if not isinstance(value, TensorVariable) or tx.output.current_tracer is not tx.output.root_tracer:
        return None
    node = value.proxy.node
    decided = by_range(node)
    if decided is not None:
        emit(tx, TAKEN, value, VariableTracker.build(tx, decided), 0)  # The number is drawn all the same.
        return decided
    found = ancestors(node)
    if found is None:
        return None
    drawn: Drawn = getattr(tx.output, "highwater_drawn", None) or Drawn(slots_of(tx))
    try:
        if not any(drawn._draws(other) for other in found):
            return None
        drawn.add(node, found)
        answer = bool(drawn.now()[node])
    except Unknown:
        return None
    if not drawn.answers:
        tx.output.highwater_drawn = drawn
        guard_by(drawn.holds, lambda: f"{len(drawn.answers)} branches by random numbers are those that were taken")
    drawn.answers[node] = answer
    emit(tx, TAKEN, value, VariableTracker.build(tx, answer), drawn.bytes)
    return answer


_branches.ways.append(taken)
