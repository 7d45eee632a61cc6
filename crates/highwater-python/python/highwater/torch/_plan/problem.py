"""From a joint graph to the planner's problem."""

from __future__ import annotations

from highwater import Link, Problem

from .._graph.joint import JointGraph, Kernel, Pin
from .._graph.nodes import ONCE, tensors
from .costs import Prices
from .pins import pins
from .plan_cache import Said


# What is copied before it is overwritten, and is no larger, stays.
SMALL = 64 << 10


def statistics_before(joint: JointGraph) -> set[int]:
    """Small copies of what the forward overwrites, as running statistics are. Who reads them may run again at
    any time: they are none of the plan's to let go of, and are told as what is alive beside it."""
    given = joint.given
    made = [i for kernel in joint.kernels if ONCE in kernel.node.meta for i in kernel.outputs]
    return {i for i in made if joint.storages[i].bytes <= SMALL and i not in given}


def pose(joint: JointGraph, costs: Prices, host: Link | None = None) -> tuple[Problem, Said]:
    """The problem of a joint graph, and all that was said of it: values are its storages and nodes its kernels,
    in order. `host`: the way to host memory, where tensors may wait.

    Behind the storages there is a value of no bytes for each kernel that draws random numbers, or may do something
    that others notice, which the next one reads: so they run in the order in which they stand.
    """
    device = joint.device
    told = Said()
    problem = told(Problem)(align=device.align, host=host)
    add_value, add_node = told(problem.add_value), told(problem.add_node)

    def is_there(kernel: Kernel) -> bool:
        """Whether it runs where the memory is, and not on the CPU beside a GPU."""
        leaves = [leaf for node in (kernel.node, *kernel.node.all_input_nodes) for leaf in tensors(node)]
        return any(map(device.counts, leaves)) if leaves else device.device.type == "cpu"

    given = joint.given
    of_forward = joint.given_by_forward
    small = 2 * device.state_bytes
    random = [kernel.outputs for kernel in joint.kernels if kernel.random]
    drawn_small = {i for made in random if sum(joint.storages[i].bytes for i in made) <= small for i in made}
    for kernel in joint.kernels:
        if kernel.outputs and is_there(kernel):
            more = costs.held(kernel) - sum(joint.storages[i].bytes for i in kernel.outputs)
            # Which of its results holds more than was traced is not known: each may, for longer than others.
            for made in kernel.outputs:
                joint.storages[made].bytes += max(0, more)
    said = joint.wishes | pins(joint)
    statistics = statistics_before(joint)
    for i, storage in enumerate(joint.storages):
        if storage.always or i in statistics:
            add_value(storage.bytes, home="external")
        else:
            # Who called holds the forward's outputs. What is drawn is not drawn again where the generator's
            # state would take more than it.
            pin: Pin = "keep" if storage.late or i in of_forward or i in drawn_small else said.get(i, "free")
            add_value(storage.bytes, pin=pin, wanted=i in given)
    drawn: int | None = None
    joint.cells = {}
    cells = {storage for kernel in joint.kernels for storage in kernel.writes}
    for kernel in joint.kernels:
        inputs, outputs = list(kernel.inputs), list(kernel.outputs)
        if kernel.ordered:
            inputs += [] if drawn is None else [drawn]
            drawn = add_value(0, home="external")
            outputs.append(drawn)
        writes = [(storage, 0) for storage in sorted(set(kernel.writes))]
        rewrites = []
        if kernel.cell_bytes and host:
            cell = add_value(kernel.cell_bytes, home="cell")
            joint.cells[cell] = kernel
            rewrites.append(len(inputs))
            inputs.append(cell)
            writes.append((cell, 0))
        seconds, scratch = costs.of(kernel)
        kernel.scratch = scratch if is_there(kernel) else 0
        add_node(
            inputs,
            outputs,
            seconds,
            scratch_bytes=kernel.scratch,
            in_place=[(kernel.in_place.input, 0)] if kernel.in_place and kernel.inputs[kernel.in_place.input] not in statistics else [],
            reads=[(storage, 0) for storage in kernel.inputs if storage in cells],
            rewrites=rewrites,
            writes=writes,
            # What must be saved is not made again, not even for a part of the backward that is.
            effect="once" if kernel.once or any(said.get(i) == "keep" for i in outputs) else "repeatable",
        )
    costs.save()
    return problem, told
