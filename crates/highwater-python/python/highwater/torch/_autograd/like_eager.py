"""Traces what eager PyTorch computes, where AOTAutograd would trace something else.

A backward is called outside of `torch.autocast`; AOTAutograd traces it as if it was called where the forward is.
Some operations are traced as others in Python that compute the same, where eager PyTorch has kernels of its own.
`dropout` on CPUs is traced as `native_dropout`, which multiplies by 1 / (1 - p) without rounding it to the tensor's
dtype, and draws random numbers also where p is 1. `bernoulli_` is traced as `bernoulli`, which draws in the order of
a contiguous tensor.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch._functorch.config
import torch._inductor.config
from torch import Tensor, fx
from torch._C import DispatchKey
from torch._functorch._aot_autograd import graph_compile, runtime_wrappers
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import _disable_current_modes

from .._dynamo.generators import price
from .._dynamo.python_draws import refuse_wide
from .._dynamo.refusals import needs_number
from .._dynamo.threads import tracing
from .._graph.nested import graphs_within
from .._messages.locations import CannotPlan, line_of, shortened
from .aliases import apart
from .autocast import share_casts
from .inlined import open_regions, separate_results
from .layouts import LAID_OUT, TRACED_AS, inverse, memory_order, read_as_it_lies

aten = torch.ops.aten

# Operations that have kernels, and are traced as others.
SPELLED_OUT = (
    "hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss_forward", "matmul",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
)  # fmt: skip


def traced_like_eager(compile: Callable[..., Any], module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """What AOTAutograd makes of a graph."""

    def traced(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        share_casts(module, inputs)
        with torch._functorch.config.patch(backward_pass_autocast="off"), torch._inductor.config.patch(fallback_random=True), own_kernels(), numbers_as_they_are(), first_calls_alike():
            try:
                with warnings.catch_warnings():
                    # AOTAutograd would tell of what is raised, with lines of ours.
                    warnings.filterwarnings("ignore", "Error detected in")
                    compiled: Callable[..., Any] = compile(module, inputs)
            except ZeroDivisionError:
                refuse_empty(inputs)
                raise
            except GuardOnDataDependentSymNode:
                raise needs_number(line_of_number(module)) from None
            return compiled

    refuse_swapped(module)
    refuse_wide(module.graph)
    with tracing:
        open_regions(module)
        return apart(traced, module, inputs)


def line_of_number(module: fx.GraphModule) -> str:
    """Where a graph takes a number out of a tensor."""
    numbers = (node for node in module.graph.nodes if isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymFloat)) and node.op != "placeholder")
    return next((shortened(line) for node in numbers if (line := line_of(node))), "a line of the model")


def refuse_swapped(module: fx.GraphModule) -> None:
    """Refuses `tensor.data = other` of what the graph is given: it has other memory from then on, of which no plan knows."""
    for node in module.graph.nodes:
        if node.op == "call_function" and str(node.target) in ("aten.shallow_copy_data_", "aten.shallow_copy_data_.default"):
            raise CannotPlan(
                f"tensor.data = ... at {shortened(line_of(node))} gives a tensor other memory in the forward, which a plan cannot follow. "
                "Write into the memory that it has, with torch.no_grad(): tensor.copy_(...)"
            )


def refuse_empty(inputs: Sequence[Any]) -> None:
    """Refuses inputs without elements, of which PyTorch traces some means as divisions in Python."""
    for value in inputs:
        if isinstance(value, Tensor) and not value.numel():
            raise CannotPlan(
                f"an input has no elements: its shape is {tuple(value.shape)}. torch.compile cannot trace a mean over nothing: skip empty batches"
            ) from None


@contextmanager
def numbers_as_they_are() -> Iterator[None]:
    """Has Python's numbers that are inputs stay so: tensors in their place round otherwise, and need kernels."""
    taken, graph_compile._apply_tensorify_python_scalars = graph_compile._apply_tensorify_python_scalars, lambda module: None
    try:
        yield
    finally:
        graph_compile._apply_tensorify_python_scalars = taken


@contextmanager
def first_calls_alike() -> Iterator[None]:
    """Has the first call of a graph run as later ones do. PyTorch looks there for custom operations that return their
    arguments, in a mode in which kernels as `pinv` compute other numbers, and others use more memory."""
    first: Any = getattr(runtime_wrappers, "_FirstInvocationContext", None)
    if first is None:
        yield
        return
    known = first.__init__

    def begin(self: Any) -> None:
        known(self)
        self._is_first = False

    first.__init__ = begin
    try:
        yield
    finally:
        first.__init__ = known


@contextmanager
def own_kernels() -> Iterator[None]:
    """Has operations be traced as themselves, or by kernels of ours."""
    packets = [getattr(aten, name) for name in SPELLED_OUT if hasattr(aten, name)]
    operations = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    operations += OURS
    before = [(of, dict(of.py_kernels)) for of in operations]
    for of, kernels in before:
        for key in TRACED_AS:
            of.py_kernels.pop(key, None)
        if of in OURS:
            of.py_kernels |= {key: OURS[of] for key in {*kernels, DispatchKey.Autograd} if key in TRACED_AS}
        of._dispatch_cache.clear()
    try:
        yield
    finally:
        for of, kernels in before:
            of.py_kernels.clear()
            of.py_kernels.update(kernels)
            of._dispatch_cache.clear()


def refuse_unknown(graph: fx.Graph) -> None:
    """Refuses formulas of gradients that PyTorch writes with a tensor where a number is unknown, as that of `pow` with its
    exponent: they round otherwise. A number that changes is built in then: see `_dynamo/sizes.py`."""
    for node in graph.find_nodes(op="call_function", target=aten.scalar_tensor.default):
        if isinstance(node.args[0], fx.Node) and node.meta.get("partitioner_tag") == "is_backward":
            raise CannotPlan(
                f"a gradient at {shortened(line_of(node))} depends on a number that item() takes out of a tensor, and would have other bits "
                "than in eager mode. Leave out item(): keep the number a tensor"
            )


def like_eager(graph: fx.Graph) -> None:
    refuse_unknown(graph)
    separate_results(graph)
    read_as_it_lies(graph)
    graph.eliminate_dead_code()
    price(graph)
    for inner in graphs_within(graph):
        spell_out_dropouts(inner.graph, traced_by_eager)
        inner.recompile()
    for node in graph.find_nodes(op="call_function", target=aten.bernoulli.p):
        value = node.args[0].meta["val"]
        if not value.is_contiguous():
            draw_in_order(graph, node, memory_order(value))


def spell_out_dropouts(graph: fx.Graph, kept: Callable[[fx.Node], bool]) -> None:
    """Spells out a graph's dropouts, but for those that are kept."""
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        value, p, train = cast(tuple[fx.Node, float, bool], node.args)
        if train is not False and on_cpu(node) and not is_exact(node.meta["val"][0].dtype, p) and not kept(node):
            spell_out(graph, node, value, p)


def traced_by_eager(dropout: fx.Node) -> bool:
    """Whether eager PyTorch runs a dropout of a branch or a loop as it is traced, which it does where autograd
    differentiates the branch: then its mask is used."""
    return any(item.args[1] == 1 for item in dropout.users)


def on_cpu(node: fx.Node) -> bool:
    value = node.meta["val"]
    return (value if isinstance(value, Tensor) else value[0]).device.type == "cpu"


def spell_out(graph: fx.Graph, node: fx.Node, value: fx.Node, p: float) -> None:
    """The same draws, times eager's factor."""
    out, mask = node.meta["val"]
    with graph.inserting_before(node):
        empty = graph.call_function(aten.empty_like.default, (value,), {"dtype": torch.bool})
        drawn = graph.call_function(aten.bernoulli.p, (empty, 1 - p))
        kept = graph.call_function(aten.mul.Tensor, (value, drawn))
        scaled = graph.call_function(aten.mul.Tensor, (kept, rounded_scale(out.dtype, 1 - p)))
    with out.fake_mode:
        for made, like in [(empty, mask), (drawn, mask), (kept, out), (scaled, out)]:
            made.meta = {**node.meta, "val": torch.empty_like(like)}
    for item in list(node.users):
        assert item.target is operator.getitem, item
        item.replace_all_uses_with(drawn if item.args[1] else scaled)
        graph.erase_node(item)
    graph.erase_node(node)


def draw_in_order(graph: fx.Graph, node: fx.Node, order: list[int]) -> None:
    """Has what was `bernoulli_` draw in the order of a tensor's memory. Others than `bernoulli` below do not come here."""
    value, p = node.args
    with graph.inserting_before(node), node.meta["val"].fake_mode:
        inputs: list[Any] = [value]
        calls: list[tuple[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]]] = [
            (aten.permute.default, (order,), {}),
            (aten.bernoulli.p, (p,), {}),
            (aten.permute.default, (inverse(order),), {}),
            (aten.clone.default, (), {"memory_format": torch.contiguous_format}),
        ]
        for target, args, kwargs in calls:
            made = graph.call_function(target, (inputs[-1], *args), kwargs)
            made.meta = {**node.meta, "val": target(inputs[-1].meta["val"], *args, **kwargs)}
            inputs.append(made)
    node.replace_all_uses_with(inputs[-1])
    graph.erase_node(node)


def bernoulli(value: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """`torch.bernoulli`, which draws in the order of a contiguous tensor in eager PyTorch too."""
    return value.clone(memory_format=torch.contiguous_format).bernoulli_(p, generator=generator)


def dropout(value: Tensor, p: float, train: bool) -> Tensor:
    """`torch.dropout` as eager PyTorch computes it."""
    draws = train and 0 < p < 1 and value.numel() > 0
    if draws and (value.device.type != "cpu" or is_in_branch()):
        return torch.native_dropout(value, p, train)[0]
    if draws and value.dtype.is_floating_point:
        return cast(Tensor, Dropout.apply(value, p))
    return cast(Tensor, aten.dropout.default._op_dk(DispatchKey.CompositeImplicitAutograd, value, p, train))


def is_in_branch() -> bool:
    """Whether a graph within a graph is traced, whose dropouts `like_eager` judges."""
    tracer = proxy_tensor._CURRENT_MAKE_FX_TRACER
    return tracer is not None and tracer.is_hop_subgraph_tracer()


class Dropout(torch.autograd.Function):
    """Eager PyTorch's draws and factors, with a mask of one byte for each element."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, p: float) -> Tensor:
        ctx.scale = rounded_scale(value.dtype, 1 - p)
        if is_exact(value.dtype, p):
            result, mask = torch.native_dropout(value, p, True)
        else:
            order = memory_order(value)
            empty = torch.empty_like(value.permute(order), dtype=torch.bool, memory_format=torch.contiguous_format)
            mask = empty.bernoulli_(1 - p).permute(inverse(order))
            result = value * mask * ctx.scale
        ctx.save_for_backward(mask)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradients[0] * mask * ctx.scale, None


def rounded_scale(dtype: torch.dtype, keep: float) -> float:
    """What eager dropout multiplies by."""
    with _disable_current_modes():
        return float(torch.ones((), dtype=dtype).div_(keep))


@functools.cache
def is_exact(dtype: torch.dtype, p: float) -> bool:
    """Whether `native_dropout` answers what eager dropout does."""
    with _disable_current_modes(), torch.no_grad():
        state = torch.get_rng_state()
        numbers = torch.randn(1 << 12).to(dtype)
        keep = torch.get_rng_state()
        # `dropout` itself may be traced here too.
        ours = numbers * torch.empty_like(numbers).bernoulli_(1 - p).div_(1 - p)
        torch.set_rng_state(keep)
        theirs, _ = torch.native_dropout(numbers, p, True)
        torch.set_rng_state(state)
        return torch.equal(ours, theirs)


# Kernels of ours, for operations that are traced otherwise than eager PyTorch computes them.
OURS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.dropout.default: dropout,
    aten.bernoulli.p: bernoulli,
    **LAID_OUT,
}
