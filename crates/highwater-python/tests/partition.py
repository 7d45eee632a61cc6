"""The forward and the backward of PyTorch's own trace, with eager PyTorch's random numbers: what plans are compared with."""

from __future__ import annotations

import copy
from typing import Any

import torch
from highwater.torch._autograd.like_eager import like_eager
from torch import fx
from torch._functorch.partitioners import default_partition


def partition(module: fx.GraphModule, *args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    # Eager dropout and the one that AOTAutograd traces round differently; ours is as eager.
    like_eager(module.graph)
    module.recompile()
    joint = copy.deepcopy(module.graph)
    with torch._inductor.config.patch(fallback_random=False):  # or both parts would draw
        forward, backward = default_partition(module, *args, **kwargs)
    draw_all(joint, forward)
    return forward, backward


def draw_all(joint: fx.Graph, forward: fx.GraphModule) -> None:
    """Puts back what draws numbers that nobody looks at: PyTorch leaves it out; ours is as eager."""
    joint.eliminate_dead_code()
    there = {node.name: node for node in forward.graph.nodes}
    missing = {node for node in joint.nodes if not node.users and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and node.name not in there}
    for node in reversed(joint.nodes):
        if node in missing:
            missing.update(one for one in node.all_input_nodes if one.name not in there)
    last = forward.graph.find_nodes(op="placeholder")[-1]
    for node in joint.nodes:
        if node in missing:
            with forward.graph.inserting_after(last):
                there[node.name] = forward.graph.node_copy(node, lambda one: there[one.name])
        if node.op != "placeholder" and node.op != "output":
            last = there.get(node.name, last)
    forward.recompile()
