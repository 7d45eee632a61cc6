"""What is another on each kind of device: how memory and time are measured, and whose random numbers are drawn."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from .._messages.locations import CannotPlan, where
from .allocated import allocated_by_kernel
from .in_place import OUT
from .repeatable import differs
from .timing import least_seconds

Answer = TypeVar("Answer")

aten = torch.ops.aten

# What cuBLAS computes.
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.dot, aten._scaled_mm}

# Measuring a kernel leaves so much of a GPU's memory alone.
SPARE = 64 << 20

# A GPU waits for what is timed so many seconds at most, and counts so many cycles in each.
BUSY, CLOCK = 0.05, 2e9


class Device:
    """The CPU."""

    timed_numbers = 1 << 18
    """An update is timed on a parameter of at most so many numbers: a large one takes as much longer as it is larger."""
    align = 1
    """What is allocated takes whole multiples of so many bytes."""
    caches = False
    """Whether PyTorch keeps what was freed, for later."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def name(self) -> str:
        """What times depend on, beside the kind of device."""
        return ""

    @property
    def state_bytes(self) -> int:
        """Bytes of the memory that a generator's state takes, which is kept for each random kernel that runs again."""
        return int(self.blank_state().nbytes)

    def counts(self, tensor: Tensor) -> bool:
        """Whether a tensor is in the memory that is planned."""
        return tensor.device.type == self.device.type

    def rounded(self, bytes: int) -> int:
        """What the allocator gives for so many bytes."""
        return -(-bytes // self.align) * self.align

    def repeats(self, node: fx.Node) -> bool:
        """Whether a kernel has the same bits when it runs again."""
        return True

    def overwrites(self, target: torch._ops.OpOverload) -> bool:
        """Whether a form of a kernel that writes over its input has the bits of the other."""
        return True

    def default_settings(self, kind: type) -> dict[str, Any]:
        """What an optimizer takes for settings that are None."""
        return {}

    def room(self) -> float:
        """Bytes that could be allocated now."""
        return math.inf

    def libraries(self, products: bool, threads: int) -> int:
        """Bytes that libraries hold for good once they have run: for matrix products, by so many threads."""
        return 0

    def seconds(self, run: Callable[[], Any], runs: int, enough: float) -> float:
        """The least seconds of some runs. See `least_seconds`."""
        return least_seconds(run, runs, enough)

    def allocated(self, run: Callable[[], Answer]) -> tuple[Answer, int, int]:
        """What a call answers, the most bytes that it has at once, and those that it still has at its end."""
        return allocated_by_kernel(run)

    def tidy(self) -> None:
        """Gives back what measuring took: glibc keeps what is freed below what is not."""
        if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
            trim(0)

    @contextmanager
    def same_numbers_after(self) -> Iterator[None]:
        """Leaves the generator as it was."""
        state = self._state()
        try:
            yield
        finally:
            self._set_state(state)

    def run_and_save(self, op: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        """Runs a random kernel. The generator's state before comes first."""
        return self._state(), op(*args, **kwargs)

    def run_again(self, state: Tensor, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs it with the numbers that it drew then."""
        with self.same_numbers_after():
            self._set_state(state)
            return op(*args, **kwargs)

    def blank_state(self) -> Tensor:
        """A tensor like a generator's state."""
        return torch.get_rng_state()

    def _state(self) -> Tensor:
        return torch.get_rng_state()

    def _set_state(self, state: Tensor) -> None:
        torch.set_rng_state(state)


class Cuda(Device):
    """A GPU of NVIDIA's. `driver`: `torch.cuda`, or what answers like it."""

    timed_numbers = 1 << 24  # less does not keep all of it busy
    align = 512
    caches = True
    state_bytes = 0
    """It is the host's memory that they are in."""

    def __init__(self, device: torch.device, driver: Any = torch.cuda) -> None:
        super().__init__(device)
        self.driver = driver

    @property
    def name(self) -> str:
        """The GPU, and the switches that have other kernels run."""
        major, minor = self.driver.get_device_capability(self.device)
        switches = [
            torch.backends.cuda.matmul.fp32_precision,
            torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
            torch.backends.cudnn.benchmark,
            torch.are_deterministic_algorithms_enabled(),
        ]
        return f"{self.driver.get_device_name(self.device)} {major}.{minor} {' '.join(map(str, switches))}"

    def repeats(self, node: fx.Node) -> bool:
        return not differs(node)

    def overwrites(self, target: torch._ops.OpOverload) -> bool:
        """Element by element they are one kernel. Libraries may take another where there is a result to add to."""
        return torch.Tag.pointwise in target.tags or target in OUT

    def default_settings(self, kind: type) -> dict[str, Any]:
        return {} if kind is torch.optim.Adafactor else {"foreach": True}

    def room(self) -> float:
        free, _ = self.driver.mem_get_info(self.device)
        cached = self.driver.memory_reserved(self.device) - self.driver.memory_allocated(self.device)
        return float(free + cached - SPARE)

    def libraries(self, products: bool, threads: int) -> int:
        """cuBLAS has a workspace for each thread that calls it, the user's and the backward's own, and cuBLASLt,
        which adds biases, another."""
        return threads * (self.rounded(self._workspace()) + self.rounded(self._lt_workspace())) if products else 0

    def _lt_workspace(self) -> int:
        said = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
        return (int(said) if said.isdecimal() else 1024) << 10

    def _workspace(self) -> int:
        said = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
        try:
            numbers = [int(word) for word in said.split(":") if word]
        except ValueError:
            numbers = []
        if numbers and len(numbers) % 2 == 0:
            return sum(size * count for size, count in zip(numbers[::2], numbers[1::2])) << 10
        major, _ = self.driver.get_device_capability(self.device)
        return 32 << 20 if major >= 9 else (2 * 4096 + 8 * 16) << 10

    def seconds(self, run: Callable[[], Any], runs: int, enough: float) -> float:
        """Once to wake it up (libraries load kernels when they are first called), once to see how long it takes,
        and as often as there is time for: one after the other, as a step has them. The GPU is kept busy while the
        host asks for those, so that what asking takes, which a step does meanwhile, does not count."""

        def timed(count: int, busy: float) -> tuple[float, float]:
            start, end = (self.driver.Event(enable_timing=True) for _ in range(2))
            stream = self.driver.current_stream(self.device)
            if busy:
                self.driver._sleep(int(min(busy, BUSY) * CLOCK))
            start.record(stream)
            began = time.perf_counter()
            for _ in range(count):
                run()
            asked = time.perf_counter() - began
            end.record(stream)
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3 / count, asked

        run()
        once, asked = timed(1, 0.0)
        more = min(runs, int(enough / max(once, 1e-6))) - 1
        return min(once, timed(more, 1.5 * more * asked)[0]) if more > 0 else once

    def allocated(self, run: Callable[[], Answer]) -> tuple[Answer, int, int]:
        """By counters that only grow: nothing that a user reads is reset. What is freed again on the way counts
        as if it was all there at once, and each of it by whole multiples."""
        before = self.driver.memory_stats(self.device)
        answer = run()
        after = self.driver.memory_stats(self.device)

        def more(counter: str) -> int:
            return int(after.get(counter, 0) - before.get(counter, 0))

        freed = more("requested_bytes.all.freed")
        now = more("requested_bytes.all.allocated") - freed
        return answer, max(now, 0) + freed + (self.align - 1) * more("allocation.all.freed"), now

    def tidy(self) -> None:
        self.driver.empty_cache()

    def blank_state(self) -> Tensor:
        return torch.empty(16, dtype=torch.uint8)  # a seed and an offset, in the host's memory

    def _state(self) -> Tensor:
        if self.driver.is_current_stream_capturing():
            raise RuntimeError(
                "this plan recomputes random operations, which a CUDA graph cannot capture. Run the step "
                "outside torch.cuda.graph, or remove dropout."
            )
        state: Tensor = self.driver.get_rng_state(self.device)
        return state

    def _set_state(self, state: Tensor) -> None:
        self.driver.set_rng_state(state.cpu(), self.device)


def has_products(nodes: Iterable[fx.Node]) -> bool:
    """Whether some of a graph's kernels are matrix products."""
    return any(isinstance(node.target, torch._ops.OpOverload) and node.target.overloadpacket in PRODUCTS for node in nodes)


KINDS: dict[str, Callable[[torch.device], Device]] = {"cpu": Device, "cuda": Cuda}


def device_of(leaves: Iterable[Any]) -> Device:
    """The device that tensors are on: the GPU, if some are, beside which the CPU's do not count."""
    found = {leaf.device for leaf in leaves if isinstance(leaf, Tensor) and leaf.device.type != "meta"}
    kinds = {device.type for device in found}
    if unknown := sorted(kinds - set(KINDS)):
        raise CannotPlan(f"tensors are on {unknown[0]}: only CPUs and CUDA GPUs can be planned. Move the model to one of these.")
    fastest = max(found, key=lambda device: device.type != "cpu", default=torch.device("cpu"))
    return KINDS[fastest.type](fastest)


def device_of_graph(graph: fx.Graph) -> Device:
    """The device that a graph runs on. Refuses one on several GPUs."""
    first: torch.device | None = None
    leaves: list[Tensor] = []
    for node in graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            if not isinstance(leaf, Tensor):
                continue
            leaves.append(leaf)
            if leaf.device.type in ("cpu", "meta"):
                continue
            first = first or leaf.device
            if leaf.device != first:
                raise CannotPlan(
                    f"{where(node)} is on {leaf.device}, and others are on {first}: a plan covers the memory of one device. "
                    "Put the whole model on one device, or compile each part on its own."
                )
    return device_of(leaves)


def device_of_node(node: fx.Node) -> Device:
    """The device that a kernel runs on."""
    leaves = [leaf for other in (node, *node.all_input_nodes) for leaf in pytree.tree_leaves(other.meta.get("val"))]
    return device_of(leaves)
