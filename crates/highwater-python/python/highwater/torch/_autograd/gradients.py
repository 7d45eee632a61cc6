"""Gradients that autograd takes over as they are.

Where a backward's answer is not laid out as its parameter, or is held by somebody else too, autograd copies it
when all is done: then the copy is beside all other gradients. Here it is a kernel of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten


def own_gradients(graph: fx.Graph, inputs: Sequence[Any], outputs: int) -> None:
    """Has a joint graph answer gradients of leaves in tensors of their own. `outputs`: of its forward."""
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    seen = set(answers[:outputs])
    for i, place in places_of_gradients(graph):
        gradient = answers[i]
        if not isinstance(gradient, fx.Node) or not is_leaf(place, inputs):
            continue
        alone = gradient.op == "call_function" and gradient not in seen
        like = place.meta["val"]
        if not (alone and is_laid_out(gradient.meta["val"], like)):
            with graph.inserting_before(end):
                answers[i] = gradient = laid_out(graph, gradient, like)
        seen.add(gradient)
    end.args = (answers,)


def without_written(graph: fx.Graph, inputs: Sequence[Any]) -> None:
    """Has a joint graph answer no gradient for leaves by what it writes to them. AOT hands on the gradient of the written
    value, which nobody has: what is written to a leaf is written without gradients."""
    places = described(graph)
    written = set[fx.Node]()
    for desc, tangent in places.items():
        leaf = places.get(getattr(getattr(desc, "output", None), "mutated_input", None))
        if leaf is not None and is_leaf(leaf, inputs):
            written.add(tangent)
    for tangent in written:
        for user in list(tangent.users):
            others = [value for value in user.args if value is not tangent]
            if user.target is torch.ops.aten.add.Tensor and len(others) == 1 and isinstance(others[0], fx.Node):
                user.replace_all_uses_with(others[0])
                graph.erase_node(user)
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    for i, _ in places_of_gradients(graph):
        if answers[i] in written:
            answers[i] = None
    end.args = (answers,)


def described(graph: fx.Graph) -> dict[Any, fx.Node]:
    """A joint graph's inputs by what AOT says that they are."""
    return {place.meta.get("desc"): place for place in graph.find_nodes(op="placeholder")}


def places_of_gradients(graph: fx.Graph) -> Iterator[tuple[int, fx.Node]]:
    """The positions of gradients among a joint graph's outputs, each with the input that it is of. Between them may be
    others, such as the tokens that keep effects in order."""
    places = described(graph)
    for i, output in enumerate(graph.output_node().meta.get("desc") or []):
        place = places.get(getattr(output, "grad_of", None))
        if place is not None:
            yield i, place


def is_leaf(place: fx.Node, inputs: Sequence[Any]) -> bool:
    """Whether an input is a parameter or another tensor that holds its gradient."""
    value = input_of(place, inputs)
    return isinstance(value, Tensor) and value.is_leaf and value.requires_grad


def input_of(place: fx.Node, inputs: Sequence[Any]) -> Any:
    """What a graph was called with for a placeholder, where that is known."""
    at = getattr(place.meta.get("desc"), "idx", None)
    return inputs[at] if at is not None and at < len(inputs) else None


def is_laid_out(gradient: Tensor, leaf: Tensor) -> bool:
    """Whether autograd takes a gradient over as it is: its strides are the leaf's, if that has no gaps, or else those of
    rows."""
    if not torch.ops.aten.is_non_overlapping_and_dense.default(leaf):
        return gradient.is_contiguous()
    return all(size == 1 or ours == theirs for size, ours, theirs in zip(leaf.shape, gradient.stride(), leaf.stride()))


def laid_out(graph: fx.Graph, gradient: fx.Node, leaf: Tensor) -> fx.Node:
    """A copy of a gradient in the layout that autograd wants, at the end of what was inserted."""
    order = list(range(leaf.dim()))
    if torch.ops.aten.is_non_overlapping_and_dense.default(leaf):
        strides = leaf.stride()
        order.sort(key=lambda i: -strides[i])
    back = [order.index(i) for i in range(leaf.dim())]
    rows: tuple[Any, ...] = (aten.clone.default, {"memory_format": torch.contiguous_format})
    steps = [rows] if order == back == sorted(order) else [(aten.permute.default, {}, order), rows, (aten.permute.default, {}, back)]
    for target, kwargs, *args in steps:
        value = gradient.meta["val"]
        made = graph.call_function(target, (gradient, *args), kwargs)
        with value.fake_mode:
            made.meta = {**gradient.meta, "val": target(value, *args, **kwargs)}
        gradient = made
    return gradient
