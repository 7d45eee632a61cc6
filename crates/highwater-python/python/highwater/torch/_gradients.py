"""Gradients that autograd takes over as they are.

Where a backward's answer is not laid out as its parameter, or is held by somebody else too, autograd copies it
when all is done: then the copy is beside all other gradients. Here it is a kernel of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx


def own_gradients(graph: fx.Graph, inputs: Sequence[Any], outputs: int) -> None:
    """Has a joint graph answer gradients of leaves in tensors of their own. `outputs`: of its forward."""
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    places = [node for node in graph.find_nodes(op="placeholder") if node.name.startswith("primals")]
    seen = set(answers[:outputs])
    for i, place in enumerate(places, outputs):
        gradient = answers[i] if i < len(answers) else None
        if not isinstance(gradient, fx.Node) or not is_leaf(place, inputs):
            continue
        like, value = place.meta["val"], gradient.meta["val"]
        layout = layout_of(like)
        alone = gradient.op == "call_function" and gradient not in seen
        if layout is not None and not (alone and value.is_contiguous(memory_format=layout)):
            with graph.inserting_before(end), value.fake_mode:
                copy = graph.call_function(torch.ops.aten.clone.default, (gradient,), {"memory_format": layout})
                copy.meta = {**gradient.meta, "val": value.clone(memory_format=layout)}
            answers[i] = gradient = copy
        seen.add(gradient)
    end.args = (answers,)


def is_leaf(place: fx.Node, inputs: Sequence[Any]) -> bool:
    """Whether an input is a parameter or another tensor that holds its gradient."""
    value = input_of(place, inputs)
    return isinstance(value, Tensor) and value.is_leaf and value.requires_grad


def input_of(place: fx.Node, inputs: Sequence[Any]) -> Any:
    """What a graph was called with for a placeholder, where that is known."""
    at = getattr(place.meta.get("desc"), "idx", None)
    return inputs[at] if at is not None and at < len(inputs) else None


def layout_of(leaf: Tensor) -> torch.memory_format | None:
    """The layout that autograd wants a gradient in: the leaf's, if that has no gaps. None if it has no name."""
    if not torch.ops.aten.is_non_overlapping_and_dense.default(leaf):
        return torch.contiguous_format
    formats = {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(leaf.dim(), [])
    return next((layout for layout in [torch.contiguous_format, *formats] if leaf.is_contiguous(memory_format=layout)), None)

