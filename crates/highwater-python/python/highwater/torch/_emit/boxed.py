"""Graphs as Python functions that let go of each tensor at its last use."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._C._autograd import _get_current_graph_task_keep_graph as keeps_graph
from torch._guards import TracingContext

from .._device.transfers import Transfers, Wait
from .._graph.nodes import OVERWRITTEN
from .._messages.locations import line_of, shortened


class Constant:
    """A tensor of a graph that copies of the graph share."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def __deepcopy__(self, memo: Any) -> Constant:
        return self


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """A function of one list, which it empties, so that nobody else holds what is in it."""
    graph = module.graph
    last = last_uses(graph)
    scope: dict[str, Any] = {}
    names: dict[fx.Node, str] = {}
    inputs = []

    def show(value: Any) -> str:
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, (list, tuple)):
            inner = "".join(show(item) + ", " for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {show(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({show(value.start)}, {show(value.stop)}, {show(value.step)})"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        return constant(value)

    def constant(value: Any) -> str:
        name = f"c{len(scope)}"
        scope[name] = value
        return name

    body: list[str] = []
    places: dict[int, str] = {}
    """Of lines of the body, the lines of the user's code."""
    for i, node in enumerate(graph.nodes):
        if node.op == "output":
            body.append(f"return {show(node.args[0])}")
            break
        names[node] = f"t{i}"
        if node.op == "placeholder":
            inputs.append(names[node])
            if not node.users:
                # A gradient of what a forward wrote to its input comes in, if only as zeros.
                body.append(f"{names[node]} = None")
            if OVERWRITTEN in node.meta:
                # With `retain_graph=True` another backward will read it.
                body.append(f"{names[node]} = {constant(node.meta[OVERWRITTEN])}({names[node]}) if {constant(keeps_graph)}() else {names[node]}")
            continue
        places[len(body)] = line_of(node)
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            body.append(f"{names[node]} = {constant(value.value if isinstance(value, Constant) else value)}")
        elif node.target is operator.getitem:
            body.append(f"{names[node]} = {show(node.args[0])}[{show(node.args[1])}]")
        else:
            words = [show(argument) for argument in node.args]
            words += [f"{key}={show(value)}" for key, value in node.kwargs.items()]
            body.append(f"{names[node]} = {constant(CALLED.get(node.target, node.target))}({', '.join(words)})")
        done = [names[source] for source in last.get(node, [])]
        if done:
            body.append(" = ".join(done) + " = None")
    take = [f"({', '.join(inputs)},) = arguments"] if inputs else []
    lines = ["def run(arguments):", *take, "arguments.clear()", *body]
    exec(compile("\n    ".join(lines), "<highwater>", "exec"), scope)
    run = placed(scope["run"], {at + 3 + len(take): place for at, place in places.items() if place})
    moves = [node.target.transfers for node in graph.nodes if isinstance(node.target, Wait)]
    if moves:
        run = settled(run, moves[0])
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def placed(run: Callable[[list[Any]], Any], places: dict[int, str]) -> Callable[[list[Any]], Any]:
    """Exceptions of kernels say which line of the user's code they are of."""

    def traced(arguments: list[Any]) -> Any:
        try:
            return run(arguments)
        except Exception as error:
            trace = error.__traceback__.tb_next if error.__traceback__ else None
            place = places.get(trace.tb_lineno) if trace else None
            if place and hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(f"of {shortened(place)}")
            raise

    return traced


def asserted(holds: torch.Tensor, message: str) -> None:
    """An `assert` of the user's, as Python says it."""
    if not holds:
        raise AssertionError(message)


CALLED: dict[Any, Callable[..., Any]] = {torch.ops.aten._assert_async.msg: asserted}
"""What is called in place of operations."""


def settled(run: Callable[[list[Any]], Any], transfers: Transfers) -> Callable[[list[Any]], Any]:
    """Nothing is under way when a run is cut short either: what copies read and write is let go of then."""

    def careful(arguments: list[Any]) -> Any:
        try:
            return run(arguments)
        except BaseException:
            transfers.settle()
            raise

    return careful


def last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Of each node, what nobody reads after it: itself too, if nobody does."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        last[node] = node
        for source in node.all_input_nodes:
            last[source] = node
    done: dict[fx.Node, list[fx.Node]] = {}
    for node, at in last.items():
        if at.op not in ("output", "placeholder"):
            done.setdefault(at, []).append(node)
    return done


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    context = TracingContext.try_get()
    if context and context.fw_metadata:
        # Backwards copy what they overwrite where somebody will read it again: `retain_graph=True` is no error.
        context.fw_metadata.bw_donated_idxs = []
    return boxed(module)
