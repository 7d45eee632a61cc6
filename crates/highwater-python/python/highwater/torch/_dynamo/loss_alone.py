"""Models whose losses alone are differentiated: what else they answer gets no gradients.

Autograd gives a compiled graph a gradient of zeros, in full size, for each output that could have had one. For
logits beside a loss that is as much as the logits, where the backward has the most anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx


class NotDifferentiated(torch.autograd.Function):
    """Hands on a tensor, and refuses a gradient for it: one that is a part of a larger loss would be lost otherwise."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor) -> Tensor:
        """`anchor`: anything that requires a gradient."""
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            'this model was compiled with gradients="loss", so only scalar outputs (losses) have gradients, and '
            'the backward reached another output. Compute its loss in the model, or leave out gradients="loss".'
        )


def detach_others(module: fx.GraphModule) -> list[int]:
    """Has a graph of Dynamo's answer what is no single number without gradients. Answers where those are."""
    end = module.graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    others = []
    for i, node in enumerate(answers):
        value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
        if not isinstance(value, Tensor) or not value.requires_grad or not value.dim():
            continue
        with module.graph.inserting_before(end):
            answers[i] = module.graph.call_method("detach", (node,))
        answers[i].meta = {**node.meta, "example_value": value.detach()}
        others.append(i)
    end.args = (tuple(answers),)
    module.recompile()
    return others


def refusing(run: Callable[..., Any], others: list[int]) -> Callable[..., Any]:
    """A graph that was compiled so, of whose answers some cannot be differentiated."""
    anchor = torch.empty(0, requires_grad=True)

    def ran(*arguments: Any) -> Any:
        answers = list(run(*arguments))
        for i in others:
            answers[i] = NotDifferentiated.apply(anchor, answers[i])
        return answers

    return ran
