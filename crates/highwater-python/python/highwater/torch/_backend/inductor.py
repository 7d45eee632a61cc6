"""Plans for Inductor's kernels: what the forward saves and what the backward computes again is the plan's. Which
kernels are fused, and in which order they run, is Inductor's: so this is a plan, and no bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch._functorch.config
import torch._inductor.config
from torch import fx
from torch._functorch.partitioners import choose_saved_values_set, classify_nodes
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from .._autograd.inlined import open_regions
from .._dynamo.generators import OURS as GENERATORS
from .._graph.joint import JointGraph
from .._graph.nested import is_random
from .._graph.nodes import ONCE
from .._messages.errors import while_compiling
from .._messages.locations import CannotPlan, where
from .._plan.plan_cache import maker

Wish = Callable[[JointGraph], None]
Plan = Callable[[fx.GraphModule, int, Wish], tuple[fx.GraphModule, fx.GraphModule]]
"""Plans a joint graph, with the number of its forward's outputs, and what Inductor wishes for."""


class Partitioner(CustomPartitionerFn):
    """Cuts Inductor's joint graphs in two."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        graph, outputs, static = gm.graph, kwargs["num_fwd_outputs"], kwargs.get("static_lifetime_input_indices") or []
        settle(graph)
        saved = saved_by_inductor(gm, outputs, static)
        places = [node for node in graph.find_nodes(op="placeholder") if node.name.startswith("primals")]
        for i, node in enumerate(places):
            # As Inductor's own partitioner says it to the compiler of the backward.
            node.meta["is_static_input"] = i in static
        forward, backward = self._plan(gm, outputs, partial(wish, saved=saved))
        for node in backward.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                node.meta["autograd_backward"] = True
        return forward, backward

    def uuid(self) -> str:
        """Inductor keeps what it compiled by the graphs that a plan gave it: this says who wrote them."""
        return maker()

    def __deepcopy__(self, known: Any) -> Partitioner:
        return self  # settings are copied, and this is one

    def __getstate__(self) -> dict[str, Any]:
        return {}  # and written out for keys of caches


def compile_by_inductor(module: fx.GraphModule, inputs: Sequence[Any], plan: Plan) -> Callable[..., Any]:
    """What Inductor makes of a graph, with a plan for its forward and backward. A graph without gradients is
    Inductor's alone."""
    if torch._inductor.config.custom_partitioner_fn is not None:
        raise while_compiling(ValueError, "torch._inductor.config.custom_partitioner_fn is set, but a plan would replace it: set it to None")
    open_regions(module)
    # A graph out of AOTAutograd's cache would have another plan.
    with torch._functorch.config.patch(enable_autograd_cache=False):
        compiled = compile_fx(module, inputs, config_patches={"custom_partitioner_fn": Partitioner(plan)})
    assert callable(compiled)
    return compiled


def settle(graph: fx.Graph) -> None:
    """Has what draws random numbers run once. Inductor draws seeds, and what it computes from a seed is the same
    each time."""
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise CannotPlan(f"{where(node)} contains further graphs, which cannot be planned for Inductor. Leave out kernels=\"inductor\".")
        if node.target in GENERATORS:
            raise CannotPlan(f"{where(node)} sets or reads a generator, and Inductor draws numbers of its own. Leave out kernels=\"inductor\".")
        if is_random(node):
            node.meta[ONCE] = True


def saved_by_inductor(module: fx.GraphModule, outputs: int, static: list[int]) -> set[fx.Node]:
    """What Inductor would save if it was asked for no memory: the rest is fused into its users for next to nothing."""
    known = classify_nodes(module, static, outputs)
    if not known.required_bw_nodes:
        return set()
    for node in reversed(module.graph.nodes):
        far = node.op == "output" or known.is_required_fw(node)
        nearest = min((user.dist_from_bw + 1 for user in node.users if user.op != "output"), default=int(1e9))
        node.dist_from_bw = (nearest if node.op != "output" else int(1e9)) if far else 0
    return set(choose_saved_values_set(module.graph, known, 1))


def wish(joint: JointGraph, saved: set[fx.Node]) -> None:
    """Has plans recompute what Inductor would not save, as long as such a plan fits."""
    kept = {joint.of[node] for node in saved if node in joint.of}
    for kernel in joint.kernels:
        if not kernel.once and kernel.node not in joint.backward:
            joint.wishes |= {storage: "prefer_recompute" for storage in kernel.outputs if storage not in kept}
