"""The backend of `torch.compile`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import highwater
import torch
from highwater import Family, Floor, Plan
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback

from ._boxed import boxed
from ._costs import Costs
from ._emit import emit, replays
from ._graph import JointGraph
from ._memory import MOST, parse, show
from ._problem import pose, state_bytes

class OverBudget(highwater.OverBudget, ShortenTraceback):
    """No plan of a graph fits the memory that was stated: says the least that would do, and who needs it."""

    def __init__(self, message: str, budget: int, floor: Floor) -> None:
        ShortenTraceback.__init__(self, message, first_useful_frame=None)
        self.budget, self.floor = budget, floor


@dataclass(frozen=True, slots=True)
class Report:
    """What was planned for one graph. Bytes are live ones: what the allocator rounds up to is its own."""

    budget_bytes: int
    """The memory that was stated."""
    given_bytes: int
    """Of that, what is there before the forward and not the plan's: parameters, buffers, inputs."""
    live_bytes: int
    """The most bytes alive at once, with those."""
    floor_bytes: int
    """The least memory that a plan was found for, with those."""
    seconds: float
    """Predicted seconds of forward and backward together, of kernels alone."""
    recomputed_kernels: int
    """How many runs are repetitions."""
    recompute_seconds: float
    """Predicted seconds of those."""
    kernels: int
    """Kernels of forward and backward."""
    planning_seconds: float
    """What it took to plan."""


class Backend:
    """A backend for `torch.compile` that keeps to an amount of memory. See `backend`."""

    def __init__(self, memory: int | str) -> None:
        self.memory = parse(memory)
        self.reports: list[Report] = []
        """One for each graph that was planned, in order."""
        self._costs = Costs()
        self._compile = aot_autograd(
            fw_compiler=compile_graph, bw_compiler=compile_graph, partition_fn=self._partition
        )

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = self._compile(module, inputs)
        return compiled

    def _partition(
        self, module: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Plans a joint graph, and cuts it in two where the plan goes from forward to backward."""
        start = time.perf_counter()
        module.graph.eliminate_dead_code()
        joint = JointGraph(module, num_fwd_outputs)
        problem = pose(joint, self._costs)
        given = sum(storage.bytes for storage in joint.storages if storage.external)
        family = Family(problem)
        # Keeping all replays nothing, and needs no states.
        ends = (Fit.of(joint, family.choose(room)) for room in (family.floor.bytes, MOST))
        least = min(ends, key=lambda fit: fit.needed)
        floor = least.needed
        if given + floor > self.memory:
            raise OverBudget(self._refusal(joint, family.floor, given, floor), self.memory, family.floor)
        fit = choose(joint, family, self.memory - given) or least
        plan = fit.plan
        self.reports.append(
            Report(
                budget_bytes=self.memory,
                given_bytes=given,
                live_bytes=plan.live_bytes + fit.states + given,
                floor_bytes=floor + given,
                seconds=plan.seconds,
                recomputed_kernels=plan.recomputed_nodes,
                recompute_seconds=plan.recompute_seconds,
                kernels=len(joint.kernels),
                planning_seconds=time.perf_counter() - start,
            )
        )
        return emit(joint, plan)

    def _refusal(self, joint: JointGraph, floor: Floor, given: int, bytes_needed: int) -> str:
        needed = given + bytes_needed
        words = [f"this does not fit into {show(self.memory, needed)}: it needs {show(needed, self.memory)} ({needed} bytes)"]
        if given:
            words.append(f"{show(given)} of that are parameters and inputs")
        if floor.node is not None:
            words.append(f"the most is held at {where(joint.kernels[floor.node].node)}")
        if floor.holders:
            storage, size = floor.holders[0]
            words.append(f"of which {show(size)} are the result of {where(joint.storages[storage].first)}")
        return "; ".join(words) + ". State more memory, or take a smaller batch."


@dataclass(frozen=True, slots=True)
class Fit:
    """A plan, and what its replays of random kernels take beside it."""

    plan: Plan
    states: int
    """Bytes of the generator's states that are kept for them."""

    @staticmethod
    def of(joint: JointGraph, plan: Plan) -> Fit:
        return Fit(plan, len(replays(joint, plan)) * state_bytes())

    @property
    def needed(self) -> int:
        """Bytes that it needs beside what is given."""
        return self.plan.arena_bytes + self.states


def choose(joint: JointGraph, family: Family, budget: int) -> Fit | None:
    """The fastest plan that was found to fit, with the states that its replays need."""
    most = sum(kernel.random for kernel in joint.kernels) * state_bytes()
    for room in (budget, budget - most):
        if room >= family.floor.bytes:
            fit = Fit.of(joint, family.choose(room))
            if fit.needed <= budget:
                return fit
    return None


def where(node: fx.Node) -> str:
    """A node for people: the operation, its module, and the line of the user's code."""
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path = next((path for path, _ in reversed(modules.values())), "")
    module = re.sub(r"^L\['\w+'\]\.?|_modules\.", "", path)
    frames = re.findall(r'File "(.+?)", line (\d+)', node.meta.get("stack_trace") or "")
    ours = [(file, line) for file, line in frames if "/torch/" not in file]
    words = [str(node.target)] + ([f"in {module}"] if module else [])
    return " ".join(words + [f"at {file}:{line}" for file, line in ours[-1:]])


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    return boxed(module)


def backend(memory: int | str) -> Backend:
    """A backend for `torch.compile` that keeps the tensors of a compiled model within `memory`.

    `memory`: bytes, or text like "8GiB". It is for what a forward and its backward hold: parameters and
    buffers that the model reads, its inputs, activations, and gradients. An optimizer's state is beside it.

    Where a graph needs more, compiling it raises `OverBudget`, before anything has run.
    """
    return Backend(memory)


def named(module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The backend by its name: `torch.compile(model, backend="highwater", options={"memory": "8GiB"})`, or
    with the memory in the environment, as `HIGHWATER_MEMORY`."""
    options = kwargs.get("options") or {}
    unknown = sorted(set(options) - {"memory"})
    if unknown:
        raise ValueError(f"options={options!r}: the backend highwater knows memory, not {', '.join(unknown)}")
    memory = options.get("memory", os.environ.get("HIGHWATER_MEMORY"))
    if memory is None:
        raise ValueError('say how much memory there is: options={"memory": "8GiB"}, or HIGHWATER_MEMORY=8GiB')
    return backend(memory)(module, inputs)
