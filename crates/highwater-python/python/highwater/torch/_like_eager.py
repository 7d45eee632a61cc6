"""Has a joint graph compute what eager PyTorch does, where AOTAutograd traces something else.

A backward is called outside of `torch.autocast`; AOTAutograd traces it as if it was called where the forward is.
On CPUs eager dropout multiplies by a mask that was divided by 1 - p, rounded to the tensor's dtype; its trace
is `native_dropout`, which multiplies by 1 / (1 - p). Some operations are traced as others in Python that compute
the same, where eager PyTorch has kernels of its own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch._functorch.config
from torch import Tensor, fx
from torch._C import DispatchKey
from torch.utils._python_dispatch import _disable_current_modes

from ._aliases import apart
from ._autocast import share_casts

aten = torch.ops.aten

# Operations that have kernels, and are traced as others.
SPELLED_OUT = (
    "hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss_forward", "matmul",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
)  # fmt: skip
TRACED_AS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def traced_like_eager(compile: Callable[..., Any], module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """What AOTAutograd makes of a graph."""

    def traced(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        share_casts(module, inputs)
        with torch._functorch.config.patch(backward_pass_autocast="off"), own_kernels():
            compiled: Callable[..., Any] = compile(module, inputs)
            return compiled

    return apart(traced, module, inputs)


@contextmanager
def own_kernels() -> Iterator[None]:
    """Has operations be traced as themselves."""
    packets = [getattr(aten, name) for name in SPELLED_OUT if hasattr(aten, name)]
    operations = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    taken = [(of, key, of.py_kernels.pop(key)) for of in operations for key in TRACED_AS if key in of.py_kernels]
    for of in operations:
        of._dispatch_cache.clear()
    try:
        yield
    finally:
        for of, key, kernel in taken:
            of.py_kernels[key] = kernel
        for of in operations:
            of._dispatch_cache.clear()


def like_eager(graph: fx.Graph) -> None:
    graph.eliminate_dead_code()
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        value, p, train = cast(tuple[fx.Node, float, bool], node.args)
        if train is not False and on_cpu(node) and not is_exact(node.meta["val"][0].dtype, p):
            spell_out(graph, node, value, p)
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout_backward.default):
        gradient, mask, scale = cast(tuple[fx.Node, fx.Node, float], node.args)
        if on_cpu(node) and scale:
            node.args = (gradient, mask, rounded_scale(node.meta["val"].dtype, 1 / scale))


def on_cpu(node: fx.Node) -> bool:
    value = node.meta["val"]
    return (value if isinstance(value, Tensor) else value[0]).device.type == "cpu"


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
