"""PyTorch's own list of operations (`op_db`), forward and backward, compared with eager PyTorch: the same bits with
plenty of memory and at the floor, and no more bytes than predicted.

``python tests/test_torch_op_db.py --processes 2`` tries all samples of all operations and dtypes, ``--shard 3/8`` a part of
them, ``--ops mul,nn.functional.gelu --dtypes float32`` some. It counts the verdict of each sample, and lists what is not
the same. A difference is a failure unless `KNOWN` or `SOMETIMES` has its reason; one in `KNOWN` that nothing needs is a failure too.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import fnmatch
import hashlib
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import pytest
import torch
from highwater.torch._autograd.like_eager import traced_like_eager
from highwater.torch._backend.backend import Backend
from highwater.torch._backend.compiled import Planned
from highwater.torch._device.allocated import allocated
from highwater.torch._emit.boxed import boxed, compile_graph
from highwater.torch._graph.nodes import is_tangent
from highwater.torch._plan import costs as _costs
from highwater.torch._plan.costs import Costs
from test_torch_fuzz import aot_eager
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch.utils import _pytree as pytree

PLENTY = 1 << 30
DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float32", "bfloat16", "complex64", "int64", "float64", "float16", "complex128", "bool", "uint8", "int8", "int16", "int32",
        "complex32", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
    )
}  # fmt: skip
# In how many parts continuous integration tries all of it, one each day, with so many samples of each.
SHARES, EACH = 700, 4
# So many samples are one graph at most.
AT_ONCE = 32

# What their results hold is nobody's to say.
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")

# Verdicts that are as they should be: what eager PyTorch or its tracer does not do is counted, and no fault of ours.
FINE = {"same", "nothing to plan", "eager refuses", "eager differs from eager", "refused by PyTorch", "cannot plan", "no samples"}

# Other verdicts, by operation and dtypes, with their reason. What is listed has to occur.
KNOWN: dict[tuple[str, str, str], str] = {
    ("prod", "*float*", "differs as aot_eager"): "eager PyTorch chooses the formula of its gradient by whether there are zeros, which no trace knows",
    ("prod", "complex*", "differs as aot_eager"): "the same",
    ("masked_prod", "*float*", "differs as aot_eager"): "the same",
    ("masked_prod", "complex*", "differs as aot_eager"): "the same",
    ("istft", "complex128", "differs as aot_eager"): "the last bit of a complex window's gradient; the cause is not found",
}
# The same, on some processors: what is listed may occur.
SOMETIMES: dict[tuple[str, str, str], str] = {
    ("masked_fill", "float32", "differs as aot_eager"): "eager PyTorch adds up what the mask selects, whose size no trace knows",
    ("masked_fill", "complex64", "differs as aot_eager"): "the same",
}


@cache
def operations() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db  # which takes seconds to import

    # Those that draw random numbers set a seed for themselves, which would happen while they are traced.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            vars(module)["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {op.formatted_name: op for op in op_db}


@dataclass
class Case:
    """A call of an operation. `leaves`: the tensors among its arguments."""

    op: Any
    arguments: Any
    leaves: list[Tensor]
    spec: Any
    process: Callable[[Any], Any]
    weights: list[Tensor]
    """Of each differentiable result, by what its elements are multiplied in the loss."""
    about: str
    count: int = 0
    """How many results it has."""

    @staticmethod
    def of(op: Any, sample: Any) -> Case | None:
        """A sample that eager PyTorch takes; None where it does not."""
        arguments = (sample.input, *sample.args), sample.kwargs
        flat, spec = pytree.tree_flatten(arguments)
        leaves = [leaf for leaf in flat if isinstance(leaf, Tensor)]
        case = Case(op, flat, leaves, spec, sample.output_process_fn_grad, [], sample.summary().replace("\n", " ")[:300])
        try:
            numbers = torch.Generator().manual_seed(len(flat))
            for result in differentiable(case.results(leaves)[1]):
                case.weights.append(torch.randn(result.shape, generator=numbers).to(result.dtype))
            terms, found = case.call(leaves + case.weights)
            case.count = len(found)
            if terms:
                torch.autograd.grad(total(terms), case.trained, allow_unused=True)
        except Exception:
            return None
        return case

    @property
    def inputs(self) -> list[Tensor]:
        return self.leaves + self.weights

    @property
    def trained(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if leaf.requires_grad]

    def results(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        """The operation's results, and what its loss is computed from."""
        given = iter(leaves)
        flat = [next(given) if isinstance(value, Tensor) else value for value in self.arguments]
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        # What nobody else reads may be overwritten.
        first = pytree.tree_map_only(Tensor, torch.clone, args[0]) if args else None
        result = self.op(first, *args[1:], **kwargs)
        found = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        return found, self.process(result) if any(leaf.requires_grad for leaf in found) else None

    def call(self, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The terms of a loss, and the results."""
        count = len(self.leaves)
        found, processed = self.results(inputs[:count])
        return [(part * weight).sum() for part, weight in zip(differentiable(processed), inputs[count:], strict=True)], found


def total(terms: Sequence[Tensor]) -> Tensor:
    """The sum of their real parts."""
    sums = []
    for dtype in dict.fromkeys(term.dtype for term in terms):
        same = torch.stack([term for term in terms if term.dtype == dtype]).sum()
        sums.append((same.real if dtype.is_complex else same).double())
    return torch.stack(sums).sum()


def differentiable(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor) and leaf.requires_grad]


def samples(op: Any, dtype: torch.dtype) -> list[Any]:
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    return list(op.sample_inputs("cpu", dtype, requires_grad=grad, include_conjugated_inputs=dtype.is_complex and op.test_conjugated_samples))


class Batch:
    """Some cases as one function, whose loss is the sum of theirs."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self.__name__ = "batch"  # graphs ask functions for it
        self.inputs = [tensor for case in cases for tensor in case.inputs]
        self.trained = [tensor for case in cases for tensor in case.trained]
        self.before = [(tensor._version, tensor.detach().clone()) for tensor in self.inputs]
        self.terms, self.results = sum(len(case.weights) for case in cases), sum(case.count for case in cases)

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        at, terms, results = 0, [], []
        for case in self.cases:
            ours, found = case.call(inputs[at : at + len(case.inputs)])
            at += len(case.inputs)
            terms += ours
            results += [leaf.detach() for leaf in found]
        return [total(terms), *results] if terms else results

    @property
    def module(self) -> fx.GraphModule:
        """As Dynamo would hand it to a backend."""
        graph = fx.Graph()
        places = [graph.placeholder(f"x{i}") for i in range(len(self.inputs))]
        graph.output(graph.call_function(self, tuple(places)))
        return fx.GraphModule(torch.nn.Module(), graph)

    def eager(self) -> list[Tensor | None]:
        """What eager PyTorch computes."""
        found = [leaf if leaf is None else leaf.clone() for leaf in self.step(self)()]
        self.restore()
        return found

    def restore(self) -> None:
        """Undoes what operations have written to their inputs."""
        for tensor, (version, kept) in zip(self.inputs, self.before, strict=True):
            if tensor._version != version:
                with torch.no_grad():
                    tensor.copy_(kept)
        self.before = [(tensor._version, kept) for tensor, (_, kept) in zip(self.inputs, self.before, strict=True)]

    def step(self, call: Callable[..., Any]) -> Callable[[], list[Tensor | None]]:
        """What gives all results and gradients."""

        def run() -> list[Tensor | None]:
            torch.manual_seed(1)
            answers = list(call(*self.inputs))
            if not answers or not answers[0].requires_grad:
                return answers
            return [*answers, *torch.autograd.grad(answers[0], self.trained, allow_unused=True)]

        return run

    def by_hand(self, forward: fx.GraphModule, backward: fx.GraphModule) -> Callable[[], list[Tensor | None]]:
        """The same by graphs as AOTAutograd calls them."""
        ahead, back = boxed(forward), boxed(backward)
        def run() -> list[Tensor | None]:
            torch.manual_seed(1)
            with torch.no_grad():
                answers = list(ahead(list(self.inputs)))
                if not self.terms:
                    return answers
                saved = answers[1 + self.results :]
                del answers[1 + self.results :]
                saved.append(torch.ones((), dtype=torch.float64))
                gradients = back(saved)
            return [*answers, *(gradient for gradient, tensor in zip(gradients, self.inputs, strict=True) if tensor.requires_grad)]

        return run


class UntimedCosts(Costs):
    """Measures bytes; kernels take a time that is drawn."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))
        self.save = lambda: None  # type: ignore[method-assign]

    def _measure(self, node: fx.Node, device: Any) -> tuple[float, int, int]:
        drawn = hashlib.sha256(_costs.describe(node).encode()).digest()[0]
        return 1e-6 * (1 + drawn), *super()._measure(node, device)[1:]


class Both(Backend):
    """Plans a graph with plenty of memory, and at the floor, from one trace."""

    floor: tuple[fx.GraphModule, fx.GraphModule] | None = None
    """The forward and the backward of the second plan."""
    outputs = 0
    """Of the forward, for its caller."""

    def __init__(self, costs: Costs) -> None:
        super().__init__(PLENTY, graph_breaks="separate")
        self._costs = costs

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        planned = Planned(self, inputs, 0, 0)

        def both(joint: fx.GraphModule, outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
            twin = fx.GraphModule(joint, copy.deepcopy(joint.graph))
            plenty = planned._plan(joint, outputs)
            self.memory = self.reports[0].floor_bytes
            self.floor, self.outputs = planned._plan(twin, outputs), outputs
            return plenty

        compile = aot_autograd(
            fw_compiler=planned.forward,
            bw_compiler=compile_graph,
            inference_compiler=lambda module, inputs: boxed(both(module, len(module.graph.output_node().args[0]))[0]),
            partition_fn=lambda module, inputs, *, num_fwd_outputs, **kwargs: both(module, num_fwd_outputs),
        )
        return traced_like_eager(compile, module, inputs)


def is_same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors have the same bits. A NaN is like another."""
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_quantized or a.layout is not torch.strided:
        return torch.equal(a.dequantize() if a.is_quantized else a.to_dense(), b.dequantize() if b.is_quantized else b.to_dense())
    a, b = a.detach().resolve_conj().resolve_neg(), b.detach().resolve_conj().resolve_neg()
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    none, size = a.isnan() if a.itemsize > 1 else a.float().isnan(), {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.itemsize]
    other = b.isnan() if b.itemsize > 1 else b.float().isnan()
    bits = [tensor.contiguous().view(size).masked_fill(none, 0) for tensor in (a, b)]
    return torch.equal(none, other) and torch.equal(*bits)


def all_same(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> bool:
    return len(a) == len(b) and all(map(is_same, a, b))


def compare(batch: Batch, costs: Costs, expected: Sequence[Tensor | None]) -> str:
    """The verdict of some cases: "same", or what is not."""
    both = Both(costs)
    call = both._compile(batch.module, batch.inputs)
    if not both.floor:
        return "nothing to plan"
    steps = {"plenty": batch.step(call)}
    forward, backward = both.floor
    inputs, tangents = forward.graph.find_nodes(op="placeholder"), filter(is_tangent, backward.graph.find_nodes(op="placeholder"))
    loss = int(batch.terms > 0)

    def by_autograd() -> Callable[[], list[Tensor | None]]:
        apart = Backend(both.memory, graph_breaks="separate")
        apart._costs = costs
        return batch.step(apart._compile(batch.module, batch.inputs))

    # It may write to inputs, or have others. Gradients that autograd leaves out are there by hand.
    is_plain = (both.outputs, len(inputs), len(list(tangents))) == (loss + batch.results, len(batch.inputs), loss)
    is_plain = is_plain and all(leaf is not None for leaf in expected)
    steps["floor"] = batch.by_hand(forward, backward) if is_plain else by_autograd()
    for (name, step), report in zip(steps.items(), both.reports, strict=True):
        found, most, _ = allocated(step)
        batch.restore()
        if not all_same(found, expected):
            wrong = [i for i, pair in enumerate(zip(found, expected)) if not is_same(*pair)]
            return f"DIFFERS at {name}: {wrong} of {len(expected)}"
        if name == "floor" and report.given_bytes + most > report.live_bytes:
            most = allocated(by_autograd())[1]  # by hand, the loss's gradient is there too early
            batch.restore()
        if report.given_bytes + most > report.live_bytes:
            return f"ABOVE at {name}: {report.given_bytes + most} bytes measured, {report.live_bytes} predicted"
    return "same"


def is_repeatable(batch: Batch) -> bool:
    """Whether eager PyTorch computes the same numbers again, with other memory."""
    first = batch.eager()
    other = [torch.full((1 << 12,), 7.0) for _ in range(8)]
    del other
    return all_same(first, batch.eager())


def verdict(case: Case, costs: Costs) -> str:
    """What becomes of one case."""
    batch = Batch([case])
    if case.op.formatted_name in UNINITIALIZED or not is_repeatable(batch):
        return "eager differs from eager"
    expected = batch.eager()
    try:
        found = compare(batch, costs, expected)
    except Exception as error:
        found = f"FAILS: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if isinstance(error, highwater.torch.CannotPlan):
            return f"cannot plan: {error}"
    if found == "same" or found.startswith("ABOVE"):
        return found
    try:
        theirs = batch.step(traced_like_eager(aot_eager, batch.module, batch.inputs))()
        batch.restore()
    except Exception as error:
        return f"refused by PyTorch: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if found.startswith("DIFFERS") and not all_same(theirs, expected):
        return f"differs as aot_eager: {found}"
    return found


def verdicts(cases: Sequence[Case], costs: Costs) -> list[tuple[Case, str]]:
    """Tries many cases at once, and halves of them where that fails."""
    if not cases:
        return []
    if len(cases) == 1:
        return [(cases[0], verdict(cases[0], costs))]
    try:
        if len(cases) > AT_ONCE:
            raise OverflowError
        batch = Batch(cases)
        if compare(batch, costs, batch.eager()) == "same":
            return [(case, "same") for case in cases]
    except Exception:
        pass
    middle = len(cases) // 2
    return verdicts(cases[:middle], costs) + verdicts(cases[middle:], costs)


def try_operation(name: str, dtype_name: str, most: int) -> list[tuple[str, str]]:
    """The verdicts of all samples of an operation, each with a line about it."""
    op, dtype = operations()[name], DTYPES[dtype_name]
    found: list[tuple[str, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases: list[Case] = []
        try:
            taken = samples(op, dtype)
            for sample in taken[:: max(1, -(-len(taken) // most))]:
                case = Case.of(op, sample)
                if case is None:
                    found.append(("eager refuses", ""))
                else:
                    cases.append(case)
        except Exception as error:
            found.append(("no samples", f"{type(error).__name__}: {error}"))
        costs = UntimedCosts()
        for case, text in verdicts(cases, costs):
            kind, _, rest = text.partition(":")
            kind = kind.removesuffix(" at plenty").removesuffix(" at floor")
            found.append((kind, text if rest else ""))
    return found


def attempt(pair: tuple[str, str], most: int = 1 << 30) -> tuple[tuple[str, str], list[tuple[str, str]], float]:
    torch.set_num_threads(1)
    start = time.perf_counter()
    _costs.RUNS = 1
    try:
        found = try_operation(*pair, most)
    except Exception:
        found = [("FAILS", traceback.format_exc())]
    torch._dynamo.reset()
    return pair, found, time.perf_counter() - start


def pairs(dtypes: Sequence[str], pattern: Sequence[str]) -> list[tuple[str, str]]:
    """Operations and dtypes that CPUs support, in a drawn order, so that shards take equally long."""
    found = [
        (name, dtype)
        for name, op in operations().items()
        if any(fnmatch.fnmatch(name, one) for one in pattern)
        for dtype in dtypes
        if DTYPES[dtype] in op.supported_dtypes("cpu")
    ]
    return sorted(found, key=lambda pair: hashlib.sha256(" ".join(pair).encode()).digest())


def faults(pair: tuple[str, str], kinds: Sequence[str], whole: bool) -> list[str]:
    """Verdicts of an operation that are not as they should be, and reasons that nothing needs."""
    name, dtype = pair

    def listed(reasons: dict[tuple[str, str, str], str]) -> set[str]:
        return {kind for (op, of, kind) in reasons if fnmatch.fnmatch(name, op) and fnmatch.fnmatch(dtype, of)}

    unneeded = listed(KNOWN) - set(kinds) if whole else set()
    return sorted(set(kinds) - FINE - listed(KNOWN) - listed(SOMETIMES)) + [f"listed, and does not occur: {kind}" for kind in sorted(unneeded)]


def test_todays_share_of_pytorchs_operations() -> None:
    """`HIGHWATER_OP_DB_SHARD` says another day's."""
    pytest.importorskip("expecttest")  # by which PyTorch's own tests import
    share = int(os.environ.get("HIGHWATER_OP_DB_SHARD") or datetime.date.today().toordinal()) % SHARES
    print(f"python tests/test_torch_op_db.py --shard {share}/{SHARES} --samples {EACH}")
    for pair in pairs(list(DTYPES), ["*"])[share::SHARES]:
        _, found, _ = attempt(pair, EACH)
        assert not faults(pair, [kind for kind, _ in found], whole=False), (share, pair, found)


def main() -> None:
    parser = argparse.ArgumentParser(description="PyTorch's own list of operations compared with eager PyTorch.")
    parser.add_argument("--shard", default="0/1", help="which part of how many: 3/8")
    parser.add_argument("--ops", default="*", help="names, with wildcards, separated by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--samples", type=int, default=1 << 30, help="at most so many of each operation and dtype, evenly spaced")
    args = parser.parse_args()
    shard, shards = map(int, args.shard.split("/"))
    chosen = pairs(args.dtypes.split(","), args.ops.split(","))[shard::shards]
    start, counts, wrong = time.perf_counter(), Counter[str](), list[str]()
    with ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn")) as pool:
        for pair, found, seconds in pool.map(partial(attempt, most=args.samples), chosen):
            kinds = [kind for kind, _ in found]
            print(f"{' '.join(pair)} {seconds:.1f} s {dict(Counter(kinds))}", flush=True)
            counts.update(kinds)
            for text, times in Counter(text for _, text in found if text).most_common():
                print(f"    {times} x {text}", flush=True)
            wrong += [f"{' '.join(pair)}: {fault}" for fault in faults(pair, kinds, args.samples == 1 << 30)]
    print(f"{len(chosen)} operations and dtypes in {time.perf_counter() - start:.0f} s: {dict(counts)}")
    print("\n".join(wrong))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
