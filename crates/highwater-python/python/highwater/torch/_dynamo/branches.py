"""Branches that a model takes by values, as in eager PyTorch.

Dynamo knows no values: it breaks a graph at `if mask.all():`. Transformers asks whether it is traced, and builds a
mask where eager PyTorch would see that none is needed, which has other bits and takes more memory. Here what
depends on whole numbers and truths alone (masks, positions) is computed while Dynamo traces, and a guard computes
it again at each call: as eager PyTorch does.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo import symbolic_convert
from torch._dynamo.guards import install_guard
from torch._dynamo.source import GlobalStateSource, RandomValueSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.functions import UserFunctionVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.tensor import TensorVariable
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from .effects import Effects, Unknown, leaves, may_write, storages_of
from .patches import instead, is_active

# More than a mask and what is made of it is no condition, but a computation.
NODES, BYTES = 64, 1 << 24

# Where Transformers chooses what is computed, for all of its models, by whether it is traced. It asks by these.
CHOOSES = ("transformers.masking_utils", "transformers.integrations.sdpa_attention", "transformers.integrations.moe")
ASKED, ASKS = "transformers.utils.import_utils", ("is_tracing", "is_torchdynamo_compiling")


class Condition:
    """A truth that follows from inputs of a graph, without any floating-point number."""

    def __init__(self, node: fx.Node, nodes: Sequence[fx.Node]) -> None:
        self._node, self._nodes = node, nodes
        self._inputs = {place: place.meta["grapharg"] for place in nodes if place.op == "placeholder"}

    def now(self) -> bool:
        examples = {place: argument.example for place, argument in self._inputs.items()}
        return self._of({place: int(example) if isinstance(example, torch.SymInt) else example for place, example in examples.items()})

    @property
    def sources(self) -> dict[fx.Node, str]:
        return {place: name_of(argument.source) for place, argument in self._inputs.items()}

    def of(self, names: dict[fx.Node, str], scope: dict[str, Any]) -> bool:
        """For the values that inputs have in a call."""
        return self._of({place: eval(name, scope) for place, name in names.items()})

    def _of(self, values: dict[fx.Node, Any]) -> bool:
        with _disable_current_modes(), torch.no_grad():
            for node in self._nodes:
                if node.op != "placeholder":
                    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                    call = getattr(args[0], str(node.target)) if node.op == "call_method" else node.target
                    values[node] = call(*(args[1:] if node.op == "call_method" else args), **kwargs)  # type: ignore[operator]
            return bool(values[self._node])


def name_of(source: Any) -> str:
    name: Any = source.name
    return str(name() if callable(name) else name)


def condition(tx: Any, value: VariableTracker) -> Condition | None:
    """The truth of a tensor of Dynamo's, if it follows from little."""
    if not isinstance(value, TensorVariable) or tx.output.current_tracer is not tx.output.root_tracer:
        return None
    node = value.proxy.node
    nodes = ancestors(node)
    if nodes is None or not all(map(is_known, nodes)):
        return None
    try:
        effects = [Effects.of(other) for other in nodes if other.op != "placeholder"]
        if any(one.draws or one.runs_custom or one.writes for one in effects) or is_overwritten(nodes) or not are_small(nodes):
            return None
    except Unknown:
        return None
    return Condition(node, nodes)


def is_overwritten(nodes: Sequence[fx.Node]) -> bool:
    """Whether the graph so far writes to what nodes have, which may be part of something else. Raises `Unknown`."""
    memory = storages_of(nodes)
    return any(Effects.of(other).writes & memory for other in nodes[0].graph.nodes if may_write(other))


def ancestors(node: fx.Node) -> list[fx.Node] | None:
    """What a node follows from, and it, in order; None if those are many."""
    found, todo = set[fx.Node](), [node]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += at.all_input_nodes
        if len(found) > NODES:
            return None
    return [other for other in node.graph.nodes if other in found]


def are_small(nodes: Iterable[fx.Node]) -> bool:
    """Whether results are no more than a condition's. Where sizes are symbols, the graph is for those that there are now."""
    return sum(int(leaf.numel()) * leaf.element_size() for node in nodes if node.op != "placeholder" for leaf in leaves(node)) <= BYTES


def is_known(node: fx.Node) -> bool:
    """Whether a node's value is known while Dynamo traces, and the same whenever it is computed."""
    if node.op == "placeholder":
        argument = node.meta.get("grapharg")
        example = argument.example if argument is not None else None
        source = argument.source if argument is not None else None
        known = source is not None and not isinstance(source, RandomValueSource) and not isinstance(example, FakeTensor)
        return known and (is_whole(example) if isinstance(example, Tensor) else isinstance(example, (int, torch.SymInt)))
    name = getattr(node.target, "__name__", str(node.target)).partition(".")[0]
    return node.op in ("call_function", "call_method") and name not in UNINITIALIZED and all(map(is_whole, leaves(node)))


UNINITIALIZED = {"empty", "empty_like", "new_empty", "empty_strided", "empty_permuted"}


def is_whole(value: Tensor) -> bool:
    return type(value) in (Tensor, torch.nn.Buffer, FakeTensor) and not value.dtype.is_floating_point and not value.dtype.is_complex


def guard_by(holds: Callable[[dict[str, Any]], bool], words: Callable[[], str]) -> None:
    """Has a graph be good where something holds, for the names that a call's guards have. `words`: asked for when the graph
    is done."""

    def guard(builder: Any, _: Any) -> None:
        scope = builder.scope

        def asked(local: Any) -> bool:
            try:
                return holds({**scope["G"], "G": scope["G"], "L": local})
            except Exception:  # what it is computed from is of another kind, or nowhere: so is the graph
                return False

        builder.guard_manager.root.add_lambda_guard(asked, [words()], None)

    install_guard(GlobalStateSource().make_guard(guard))


def taken(tx: Any, value: VariableTracker) -> bool | None:
    """What a condition comes to, for which the graph is then good. None if that is not known."""
    found = condition(tx, value)
    if found is None:
        return None
    answer, names = found.now(), found.sources

    if names:
        guard_by(lambda scope: found.of(names, scope) == answer, lambda: f"a condition of {', '.join(names.values())} is {answer}")
    return answer


ways: list[Callable[[Any, VariableTracker], bool | None]] = [taken]
"""How a branch may be known."""


def jump(known: Callable[[Any, Any], None], tx: Any, instruction: Any) -> None:
    """A jump of Dynamo's by what is on the top of its stack."""
    value = tx.stack[-1]
    answer = truth(tx, value)
    if answer is None:
        known(tx, instruction)
        return
    before = len(tx.stack)
    tx.stack[-1] = constant = VariableTracker.build(tx, answer)
    known(tx, instruction)
    if len(tx.stack) == before and tx.stack[-1] is constant:
        tx.stack[-1] = value.realize()  # `a or b` is one of them, and no truth


def truth(tx: Any, value: VariableTracker) -> bool | None:
    """What a tensor comes to as a truth, for which the graph is then good; None if that is not known."""
    if not is_active() or not isinstance(value, (TensorVariable, LazyVariableTracker)):
        return None
    value = value.realize()
    return next((answer for way in ways if (answer := way(tx, value)) is not None), None)


def is_item(value: TensorVariable, name: str, args: Sequence[VariableTracker]) -> bool:
    """Whether something is `value.item()` of a truth."""
    example = value.proxy.node.meta.get("example_value")
    return name == "item" and not args and isinstance(example, Tensor) and example.dtype is torch.bool and example.numel() == 1


def function_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    """A call of a function that Dynamo traces: whether something is traced is answered here."""
    if self.fn.__name__ not in ASKS or self.fn.__module__ != ASKED or tx.f_globals.get("__name__") not in CHOOSES:
        return None
    # It may be told a tensor, by whose values it will choose.
    about = [value.realize() for value in (*args, *kwargs.values())]
    if any(isinstance(value, TensorVariable) and condition(tx, value) is None for value in about):
        return None
    told: VariableTracker = VariableTracker.build(tx, False)
    return told


def builtin_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    answer = truth(tx, args[0]) if self.fn in (bool, operator.not_) and len(args) == 1 else None
    return None if answer is None else VariableTracker.build(tx, self.fn(answer))


def tensor_called(known: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker | None:
    answer = truth(tx, self) if is_item(self, name, args) else None
    return None if answer is None else VariableTracker.build(tx, answer)


def install() -> None:
    """Has Dynamo ask here, once for all: it does what it did outside of `branches_as_eager`."""
    kinds = [kind for kind in vars(symbolic_convert).values() if isinstance(kind, type) and issubclass(kind, symbolic_convert.InstructionTranslatorBase)]
    for kind in kinds:
        table: list[Any] = kind.dispatch_table
        for i, known in enumerate(table):
            if "generic_jump" in getattr(known, "__qualname__", ""):
                table[i] = functools.partial(jump, known)
    instead(UserFunctionVariable, "call_function", function_called)
    instead(BuiltinVariable, "call_function", builtin_called)
    instead(TensorVariable, "call_method", tensor_called)


install()
