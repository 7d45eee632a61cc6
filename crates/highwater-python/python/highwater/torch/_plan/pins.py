"""What a model itself says is to be kept or recomputed: `torch.utils.checkpoint` with a policy.

A plain `checkpoint` wishes for memory, which the plan is made for: it is the planner's to decide there, and
so it is in a region whose policy says `PREFER_RECOMPUTE` of everything, which is the same.
"""

from __future__ import annotations

from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from .._graph.joint import JointGraph, Kernel, Pin

PINS: dict[CheckpointPolicy, Pin] = {
    CheckpointPolicy.MUST_SAVE: "keep",
    CheckpointPolicy.PREFER_SAVE: "prefer_keep",
    CheckpointPolicy.MUST_RECOMPUTE: "recompute",
    CheckpointPolicy.PREFER_RECOMPUTE: "prefer_recompute",
}


def pins(joint: JointGraph) -> dict[int, Pin]:
    """What policies say of storages that the forward fills."""
    tagged = [kernel for kernel in joint.kernels if kernel.node not in joint.backward and region(kernel.node) is not None]
    selective = {region(kernel.node) for kernel in tagged if policy(kernel.node) is not CheckpointPolicy.PREFER_RECOMPUTE}
    readers: dict[int, list[Kernel]] = {}
    for kernel in joint.kernels:
        for storage in kernel.inputs:
            readers.setdefault(storage, []).append(kernel)
    found: dict[int, Pin] = {}
    for kernel in tagged:
        said = PINS.get(policy(kernel.node), "free") if region(kernel.node) in selective else "free"
        for storage in kernel.outputs:
            forward = [reader.node for reader in readers.get(storage, []) if reader.node not in joint.backward]
            # What a region hands on is no business of its policy.
            leaves = any(region(reader) != region(kernel.node) for reader in forward)
            if said in ("keep", "prefer_keep") or said != "free" and not leaves and not kernel.once:
                found[storage] = said
    return found


def region(node: fx.Node) -> object:
    """Which call of `checkpoint` a node is in, None if in none."""
    return node.meta.get("ac_graph_id") if "recompute" in node.meta else None


def policy(node: fx.Node) -> CheckpointPolicy:
    said: CheckpointPolicy = node.meta["recompute"]
    return said
