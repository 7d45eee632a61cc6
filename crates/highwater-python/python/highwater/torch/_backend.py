"""The backend of `torch.compile`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from ._boxed import boxed
from ._choices import Choices, Report
from ._costs import Costs
from ._distributed import refuse_cuts
from ._emit import emit
from ._graph import JointGraph, refuse_sparse
from ._like_eager import like_eager, traced_like_eager
from ._memory import parse
from ._sizes import for_each_size


class Backend:
    """A backend for `torch.compile` that keeps to an amount of memory. See `backend`."""

    def __init__(self, memory: int | str) -> None:
        self.memory = parse(memory)
        self.reports: list[Report] = []
        """One for each graph that was planned, in order."""
        self._costs = Costs()
        compile = aot_autograd(
            fw_compiler=compile_graph,
            bw_compiler=compile_graph,
            inference_compiler=self._infer,
            partition_fn=self._partition,
        )
        self._compile = functools.partial(traced_like_eager, compile)

    # `torch.compile` calls it at once: there may be no graph to call the backend with.
    _dynamo_backend_init = staticmethod(refuse_cuts)

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        refuse_cuts()
        if any(isinstance(value, (int, torch.SymInt)) for value in inputs):
            return for_each_size(module, self._compile)
        return self._compile(module, inputs)

    def _partition(
        self, module: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Plans a joint graph, and cuts it in two where the plan goes from forward to backward."""
        return self._planned(module, num_fwd_outputs)

    def _infer(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        """Plans a graph that nobody wants gradients of."""
        outputs: Any = module.graph.output_node().args[0]
        return boxed(self._planned(module, len(outputs))[0])

    def _planned(self, module: fx.GraphModule, outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        refuse_sparse(module.graph)
        like_eager(module.graph)
        joint = JointGraph(module, outputs)
        choices = Choices(joint, self._costs)
        choice = choices.at(self.memory)
        self.reports.append(choices.report(self.memory, choice))
        return emit(joint, choice.plan)


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
