"""A plan as two graphs: what the forward runs, and what the backward does, in the plan's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

from .._device.transfers import Transfers
from .._graph.joint import JointGraph
from .._graph.nodes import is_tangent, tensors
from .._plan.alive import Move, actions, replays
from .._plan.choice import Choice
from .boxed import Constant
from .moves import Moves
from .section import Names, Section

# What PyTorch says in the meta of what an `autograd.Function` keeps as an attribute of its `ctx`, and not by
# `save_for_backward`: autograd does not mind if it is written to meanwhile.
UNCHECKED = "saved_tensor_with_no_vc_check"


def emit(joint: JointGraph, choice: Choice, transfers: Transfers, overwrites: bool = True) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward's and the backward's module of a plan. `transfers`: what moves bytes, if the plan does.
    `overwrites`: whether kernels write over their inputs where the plan has them do it; or else they answer
    results of their own, as a compiler expects it."""
    replayed = {joint.kernels[i].node for i in replays(joint, choice.plan)}
    forward, backward = (Section(joint, replayed, compiled=not overwrites) for _ in range(2))
    _enter(joint, forward, lambda node: not is_tangent(node))
    section = forward
    moves = Moves(joint, choice, transfers, forward.graph)
    moves.begin()
    entered: Names = {}
    for run in actions(joint, choice.plan):
        moves.wait_before(run.at)
        if isinstance(run, Move):
            moves.carry_out(run, section)
            continue
        if section is forward and run.kernel.node in joint.backward:
            entered = _cross(joint, forward, backward, moves)
            section = backward
        if run.kernel.node.op == "placeholder":
            continue  # it has come in
        taken = run.taken if overwrites else None
        if taken is not None:
            section.overwrite(taken)
        section.run(run.kernel, taken is not None)
    if section is forward:
        entered = _cross(joint, forward, backward, moves)
    moves.end()
    return _finish(joint, forward, backward, entered)


def _enter(joint: JointGraph, section: Section, wanted: Callable[[fx.Node], bool]) -> None:
    """The graph's inputs of a kind, and what it holds as attributes."""
    for node in joint.module.graph.nodes:
        if node.op in ("placeholder", "get_attr") and wanted(node):
            _input(joint, section, node)


def _input(joint: JointGraph, section: Section, node: fx.Node) -> fx.Node:
    if node.op == "get_attr":
        name = section.graph.get_attr(str(node.target))
    else:
        name = section.graph.placeholder(node.name)
    section.put(node, name)
    if node in joint.of:
        # Several inputs may be views of one tensor.
        section.present.setdefault(joint.of[node], {})[node] = name
    else:
        section.symbols[node] = name
    return name


def _cross(joint: JointGraph, forward: Section, backward: Section, moves: Moves) -> Names:
    """What is there when the forward ends goes into the backward: answers its inputs, and what of the
    forward they are."""
    entered: Names = {}
    for node, name in forward.symbols.items():
        if node.op == "placeholder":
            entered[_input(joint, backward, node)] = name
    for storage, names in forward.present.items():
        inputs = [node for node in names if node.op != "call_function"]
        for node in inputs or [joint.storages[storage].first]:
            made = _input(joint, backward, node)
            if node.op != "get_attr":
                entered[made] = names[node]
    for node, state in forward.states.items():
        made = backward.graph.placeholder(f"rng_state_{node.name}")
        backward.states[node] = backward.put(state, made)
        entered[made] = state
    moves.wait_for_all()
    entered |= moves.go_on_in(backward.graph)
    _enter(joint, backward, is_tangent)
    return entered


def _finish(
    joint: JointGraph, forward: Section, backward: Section, entered: Names
) -> tuple[fx.GraphModule, fx.GraphModule]:
    count = joint.forward_outputs
    descriptions = joint.output.meta.get("desc") or [None] * len(joint.outputs)

    def answer(section: Section, nodes: list[Any]) -> list[Any]:
        return [section.get(node) if isinstance(node, fx.Node) else node for node in nodes]

    gradients = answer(backward, joint.outputs[count:])
    backward.graph.output(tuple(gradients)).meta["desc"] = descriptions[count:]
    saved = []
    for made, name in entered.items():
        if made.users:
            saved.append(name)
        else:
            backward.graph.erase_node(made)
    results = answer(forward, joint.outputs[:count])
    for name in saved:
        # PyTorch holds these until a backward has ended. Of what users cannot see, nothing is to be told apart.
        if name.op == "call_function" and name not in results:
            name.meta.pop(UNCHECKED, None)
    # Those come behind others, and numbers of shapes last.
    saved.sort(key=lambda name: (not tensors(name), bool(name.meta.get(UNCHECKED))))
    output = forward.graph.output((*results, *saved))
    names = [SavedForBackwardsAOTOutput(i) for i in range(len(saved))]
    output.meta["desc"] = [*descriptions[:count], *names]
    for section in (forward, backward):
        for node in section.graph.find_nodes(op="get_attr"):
            if not node.users:
                section.graph.erase_node(node)
        section.graph.lint()
    make = torch.fx._lazy_graph_module._make_graph_module
    return make(joint.module, forward.graph), with_one_copy(make(joint.module, backward.graph))


def with_one_copy(module: fx.GraphModule) -> fx.GraphModule:
    """Has PyTorch's copy of a backward, made when that first runs, share the constants."""
    for node in module.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        if (value := module._buffers.pop(name, None)) is not None:
            setattr(module, name, Constant(value))
    return module
