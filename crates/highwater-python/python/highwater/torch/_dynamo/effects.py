"""What a node of Dynamo's graph does besides its result: which memory it writes, and whether it draws or runs custom operations."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .._device.held import storage_key

OURS = ("aten", "prims", "prim", "highwater")

WRITES = tuple(f"i{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"))


# Arguments of batch norms that are written, though their schemas do not say so.
STATISTICS = ("running_mean", "running_var")

# What does nothing but register what a backward calls.
LATER = ("_register_hook_trampoline",)


class Unknown(Exception):
    """What a node does is not known."""

    def __init__(self, node: fx.Node | None = None, why: str = "") -> None:
        super().__init__()
        self.node, self.why = node, why


def is_write(node: fx.Node) -> bool:
    """Whether a node looks like one that writes to what it reads."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    name = name.partition(".")[0]
    return name.endswith("_") and not name.endswith("__") or name in ("setitem", *WRITES) or "out" in node.kwargs


def may_write(node: fx.Node) -> bool:
    """Whether a node may write to what it reads. Methods and functions of PyTorch's say so by their names."""
    if node.op not in ("call_function", "call_method") or not node.all_input_nodes:
        return False
    plain = node.op == "call_method" or node.target in vars(operator).values() or getattr(torch, getattr(node.target, "__name__", ""), None) is node.target
    return is_write(node) or not plain


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices what operations do."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = self.others = False
        self.written: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws |= torch.Tag.nondeterministic_seeded in func.tags
        self.others |= isinstance(func, HigherOrderOperator) or func.namespace not in OURS
        self.written += written(func, args, kwargs or {})
        return func(*args, **kwargs or {})


def written(func: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that a call of an operation writes to, by its schema, which of batch norms does not say so."""
    if not isinstance(func, OpOverload):
        return
    arguments = func._schema.arguments
    values = [*zip(arguments, args), *((argument, kwargs.get(argument.name)) for argument in arguments)]
    for argument, value in values:
        if argument.alias_info is not None and argument.alias_info.is_write or argument.name in STATISTICS:
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


class Effects:
    """What a node does. It is called once, with tensors that hold no numbers."""

    def __init__(self, node: fx.Node) -> None:
        self.draws = self.runs_custom = False
        self.writes: set[int] = set()
        """The memory that it writes to, by `storage_key`."""
        if isinstance(node.target, HigherOrderOperator):
            self._of_graphs(graphs_of(node))
            return
        if getattr(node.target, "__name__", "") in LATER:
            return
        given = fx.map_arg((node.args, node.kwargs), lambda source: source.meta["example_value"])
        mode = next((leaf.fake_mode for leaf in [*leaves(node), *pytree.tree_leaves(given)] if hasattr(leaf, "fake_mode")), None)
        if mode is None:
            return
        before = dict[int, int]()

        def copy(value: Tensor) -> Tensor:
            """What is written may change its shape, too."""
            made = value.detach().clone() if may_write(node) else value
            before[storage_key(made)] = storage_key(value)
            return made

        with torch.no_grad(), mode:
            args, kwargs = pytree.tree_map_only(Tensor, copy, given)
            with Seen() as seen:
                call(node, args, kwargs)
        self.draws, self.runs_custom = seen.draws, seen.others
        self.writes = {before[at] for at in map(storage_key, seen.written) if at in before}

    def _of_graphs(self, graphs: list[fx.Graph]) -> None:
        """Of all that may be called."""
        if not graphs:
            raise Unknown
        for graph in graphs:
            for node in graph.nodes:
                if node.op in ("call_function", "call_method"):
                    effects = Effects.of(node)
                    self.draws |= effects.draws
                    self.runs_custom |= effects.runs_custom
                    self.writes |= effects.writes

    @staticmethod
    def of(node: fx.Node) -> Effects:
        """Raises `Unknown` where that cannot be found out."""
        found = known.setdefault(node.graph, {})
        if node not in found:
            try:
                found[node] = Effects(node)
            except Exception:  # whatever the node's function raises
                found[node] = None
        effects = found[node]
        if effects is None:
            raise Unknown(node)
        return effects


known: WeakKeyDictionary[fx.Graph, dict[fx.Node, Effects | None]] = WeakKeyDictionary()


def graphs_of(node: fx.Node) -> list[fx.Graph]:
    """The graphs that an operation is given."""
    owner: Any = node.graph.owning_module
    if owner is None:  # Dynamo still traces it
        modules = InstructionTranslator.current_tx().output.nn_modules
        found = [modules.get(str(place.target)) for place in node.all_input_nodes if place.op == "get_attr"]
    else:
        found = [getattr(owner, str(place.target)) for place in node.all_input_nodes if place.op == "get_attr"]
    return [module.graph for module in found if isinstance(module, fx.GraphModule)]


def call(node: fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def leaves(node: fx.Node) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(node.meta.get("example_value")) if isinstance(leaf, Tensor)]


def storages_of(nodes: Iterable[fx.Node]) -> set[int]:
    return {storage_key(leaf) for node in nodes for leaf in leaves(node)}
