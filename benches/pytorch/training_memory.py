#!/usr/bin/env python3
"""What less memory costs a PyTorch model: ours beside PyTorch's own means, on the CPU.

    python benches/pytorch/training_memory.py gpt2                        # or one of the others in zoo.py
    python benches/pytorch/training_memory.py densenet121 --size small --rounds 5 --json densenet.json
    python benches/pytorch/training_memory.py vit --size small --bits     # bits alone, in many loops
    python benches/pytorch/training_memory.py vit --only aot_eager        # one way in this process, with its RSS

Of each way to train: the most bytes that PyTorch's allocator has at once beside weights and inputs, told and
measured; the seconds of a step (the middle of some rounds, in which all ways take turns); and whether loss,
gradients and buffers are eager's. Ours are planned at budgets from the floor to plenty, and at the peaks that
the others reach. At the end it says which of the aims are missed. Needs torch, torchvision, and the package
`highwater` (crates/highwater-python).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import torch
from highwater.torch._device.allocated import allocated
from highwater.torch._device.device import Device
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from zoo import CASES, Case, checkpoint_blocks, save_memory

# Behind `zoo`, which knows where the tests are: `aot_eager`, but dropout rounds as eager's.
from test_torch_fuzz import aot_eager

# All ways are compiled in one process.
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


class Subject:
    """A model, its inputs, and the state that each way starts from."""

    def __init__(self, case: Case) -> None:
        self.case = case
        torch.manual_seed(0)
        self.model = case.model()
        self.inputs = case.inputs()
        self.buffers = {name: value.clone() for name, value in self.model.named_buffers()}

    def reset(self) -> None:
        self.model.zero_grad()
        for name, value in self.model.named_buffers():
            value.copy_(self.buffers[name])
        torch.manual_seed(2)

    def step(self, call: Callable[..., Tensor]) -> Tensor:
        loss = call(*self.inputs)
        loss.backward()
        return loss.detach()

    def answers(self, run: Callable[[], Tensor]) -> list[Tensor]:
        self.reset()
        answers = [run().clone(), *(p.grad.clone() for p in self.model.parameters() if p.grad is not None)]
        return [*answers, *(value.clone() for value in self.model.buffers()), torch.get_rng_state()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


class Way:
    """A way to train the subject."""

    def __init__(self, name: str, subject: Subject, call: Callable[..., Tensor], expected: list[Tensor] | None) -> None:
        self.name, self.subject, self.call = name, subject, call
        self.report: highwater.torch.Report | None = None
        start = time.perf_counter()
        self.answers = subject.answers(lambda: subject.step(call))
        self.compiling = time.perf_counter() - start
        self.bits = expected is None or same(self.answers, expected)
        if expected is not None:
            self.answers = []
        subject.reset()
        _, self.peak, _ = allocated(lambda: subject.step(call))
        # There are dozens of ways in one process.
        Device(torch.device("cpu")).tidy()
        self.times: list[float] = []

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    def time(self, clock: str) -> None:
        self.subject.reset()
        start = CLOCKS[clock]()
        self.subject.step(self.call)
        self.times.append(CLOCKS[clock]() - start)

    def row(self) -> dict[str, Any]:
        given = self.report.given_bytes if self.report else 0
        return {
            "way": self.name,
            "budget": self.report and self.report.budget_bytes - given,
            "told": self.report and self.report.live_bytes - given,
            "measured": self.peak,
            "seconds": self.seconds,
            "bits": self.bits,
            "compiling": self.compiling,
            "planning": self.report and self.report.planning_seconds,
            "kernels": self.report and self.report.kernels,
            "recomputed": self.report and self.report.recomputed_kernels,
            "predicted": self.report and self.report.seconds,
        }


def compiled(subject: Subject, backend: Any) -> Callable[..., Tensor]:
    call: Callable[..., Tensor] = torch.compile(subject.model, backend=backend, dynamic=False, fullgraph=True)
    return call


def min_cut() -> Any:
    """As Inductor has it: buffers are written inside the graph, so that what is saved of them is no error."""
    return aot_autograd(
        fw_compiler=boxed_nop,
        bw_compiler=boxed_nop,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )


def by_hand(case: Case, change: Callable[[nn.Module], None]) -> Subject:
    subject = Subject(case)
    change(subject.model)
    return subject


def theirs(name: str, case: Case, knobs: int) -> dict[str, Callable[[Subject, list[Tensor]], Way]]:
    """PyTorch's ways by name, each of which makes itself ready."""

    def at(knob: float) -> Callable[[Subject, list[Tensor]], Way]:
        def make(subject: Subject, expected: list[Tensor]) -> Way:
            with config.patch(activation_memory_budget=knob):
                return Way(f"min-cut at {knob:g}", subject, compiled(subject, min_cut()), expected)

        return make

    def hand(label: str, change: Callable[[nn.Module], None]) -> Callable[[Subject, list[Tensor]], Way]:
        def make(_: Subject, expected: list[Tensor]) -> Way:
            own = by_hand(case, change)
            return Way(label, own, own.model, expected)

        return make

    found = {"aot_eager": lambda subject, expected: Way("aot_eager", subject, compiled(subject, "aot_eager"), expected)}
    found |= {f"min-cut at {i / knobs:g}": at(i / knobs) for i in range(knobs, -1, -1)}
    found["checkpointed blocks"] = hand("checkpointed blocks", lambda model: checkpoint_blocks(model, case.blocks))
    if name.startswith("densenet"):
        found["memory_efficient"] = hand("memory_efficient", save_memory)
    return found


def ours(subject: Subject, memory: int, name: str, expected: list[Tensor]) -> Way:
    backend = highwater.torch.backend(memory)
    way = Way(name, subject, compiled(subject, backend), expected)
    (way.report,) = backend.reports
    return way


def measure(args: argparse.Namespace) -> None:
    case = CASES[args.model][args.size]
    subject = Subject(case)
    eager = Way("eager", subject, subject.model, None)
    ways, failed = [eager], []
    for name, make in theirs(args.model, case, args.knobs).items():
        try:
            ways.append(make(subject, eager.answers))
        except Exception as error:  # A setting of theirs may not run.
            failed.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
    others = list(ways)
    plenty = ours(subject, 1 << 40, "highwater, plenty", eager.answers)
    report = plenty.report
    assert report is not None
    given, floor, most = report.given_bytes, report.floor_bytes, report.live_bytes
    ways.append(plenty)
    budgets = {floor + (most - floor) * i // args.budgets for i in range(args.budgets)}
    peaks = {way.peak + given for way in others if floor <= way.peak + given < most}
    for memory in sorted(budgets | peaks, reverse=True):
        label = f"highwater at {(memory - given) / 1e6:.1f} MB" + (", its floor" if memory == floor else "")
        ways.append(ours(subject, memory, label, eager.answers))
    for _ in range(args.rounds):
        for way in ways:
            way.time(args.clock)
    table(ways)
    for words in failed:
        print(f"fails: {words}")
    missed = misses(ways, others, given)
    print("\n".join(missed) or "No aim is missed.")
    if args.json:
        about = {"model": args.model, "size": args.size, "given": given, "floor": floor - given, "failed": failed, "missed": missed}
        Path(args.json).write_text(json.dumps({**about, "ways": [way.row() for way in ways]}, indent=1))


def table(ways: list[Way]) -> None:
    print("| way | told, MB | measured, MB | s/step | recomputed | as eager |\n|---|---:|---:|---:|---:|---|")
    for row in map(Way.row, ways):
        told = "" if row["told"] is None else f"{row['told'] / 1e6:.1f}"
        again = "" if row["recomputed"] is None else row["recomputed"]
        bits = "yes" if row["bits"] else "no"
        print(f"| {row['way']} | {told} | {row['measured'] / 1e6:.1f} | {row['seconds']:.3f} | {again} | {bits} |")


def misses(ways: list[Way], others: list[Way], given: int) -> list[str]:
    """What the aims ask for and was not measured."""
    own = [way for way in ways if way.report]
    found = []
    for way in own:
        told, budget = way.report.live_bytes - given, way.report.budget_bytes - given
        if abs(way.peak - told) > 0.01 * told:
            found.append(f"told {told}, measured {way.peak}: {way.name}")
        if way.peak > budget:
            found.append(f"above its budget of {budget}: {way.name}, {way.peak}")
        if not way.bits:
            found.append(f"other bits: {way.name}")
        # The first plan measures the kernels.
        if way is not own[0] and way.report.planning_seconds > max(1.0, way.report.kernels / 1000):
            found.append(f"planning takes {way.report.planning_seconds:.2f} s for {way.report.kernels} kernels: {way.name}")
    by_budget = sorted(own, key=lambda way: way.report.budget_bytes)
    for less, more in itertools.pairwise(by_budget):
        if more.report.seconds > 1.0001 * less.report.seconds:
            found.append(f"predicted slower with more memory: {more.name}, {less.name}")
    for other in others:
        # Plenty is what a budget of more than it needs comes to.
        fits = [way for way in own if min(way.report.budget_bytes - given, own[0].peak if way is own[0] else 1 << 60) <= other.peak]
        best = min((way.seconds for way in fits), default=None)
        if best is None:
            found.append(f"nothing of ours fits the peak of {other.name}")
        elif best > other.seconds:
            found.append(f"slower at the peak of {other.name}, {other.peak / 1e6:.1f} MB: {best:.3f} s, {other.seconds:.3f} s")
    least, floor = min(way.peak for way in others), min(way.peak for way in own)
    if floor > 0.9 * least:
        found.append(f"the floor is {floor / 1e6:.1f} MB, theirs {least / 1e6:.1f} MB: {1 - floor / least:.1%} less")
    aot, plenty = (next(way for way in ways if way.name == name) for name in ("aot_eager", "highwater, plenty"))
    if plenty.seconds > 1.05 * aot.seconds:
        found.append(f"with plenty {plenty.seconds:.3f} s, aot_eager {aot.seconds:.3f} s")
    return found


def bits(args: argparse.Namespace) -> None:
    """Loops as people write them, at budgets from the floor to plenty, beside eager PyTorch and aot_eager."""
    subject = Subject(CASES[args.model][args.size])
    counts = {"as eager": 0, "as aot_eager alone": 0, "different": 0}

    def loop(call: Callable[..., Tensor], half: bool, parts: int, clip: bool) -> list[Tensor]:
        def run() -> Tensor:
            losses = []
            for _ in range(parts):
                with torch.autocast("cpu", torch.bfloat16, enabled=half):
                    loss = call(*subject.inputs)
                loss.backward()
                losses.append(loss.detach())
            if clip:
                losses.append(nn.utils.clip_grad_norm_(subject.model.parameters(), 1.0))
            return torch.stack([loss.float() for loss in losses])

        return subject.answers(run)

    for half in (False, True):
        torch._dynamo.reset()
        first = highwater.torch.backend(1 << 40)
        traced, *own = compiled(subject, aot_eager), compiled(subject, first)
        loop(own[0], half, 1, False)
        floor, most = first.reports[0].floor_bytes, first.reports[0].live_bytes
        for i in range(args.budgets):
            own.append(compiled(subject, highwater.torch.backend(floor + (most - floor) * i // args.budgets)))
        for parts, clip in itertools.product((1, 3), (False, True)):
            eager, other, *found = (loop(call, half, parts, clip) for call in (subject.model, traced, *own))
            for one in found:
                counts["as eager" if same(one, eager) else "as aot_eager alone" if same(one, other) else "different"] += 1
            words = f"autocast {half}, {parts} micro-batches, clip {clip}: {sum(same(one, eager) for one in found)} of {len(found)} as eager"
            print(f"{words}; aot_eager {'too' if same(other, eager) else 'is not'}", flush=True)
    print(f"{args.model}: {counts}")
    raise SystemExit(counts["different"] > 0)


def alone(args: argparse.Namespace) -> None:
    """One way in this process, with the most that it has resident in a repeated step."""
    case = CASES[args.model][args.size]
    subject = Subject(case)
    known = theirs(args.model, case, args.knobs)
    if args.only == "eager":
        way = Way("eager", subject, subject.model, None)
    elif args.only in known:
        way = known[args.only](subject, [])
    else:
        way = ours(subject, int(args.only), f"highwater in {args.only} bytes", [])
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(args.rounds):
        way.time(args.clock)
    status = Path("/proc/self/status").read_text()
    most = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"{way.name}: {way.peak / 1e6:.1f} MB, {way.seconds:.3f} s, resident {most * 1024 / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and seconds of ways to train a PyTorch model.")
    parser.add_argument("model", choices=CASES)
    parser.add_argument("--size", choices=["full", "small"], default="full")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--knobs", type=int, default=20, help="steps of PyTorch's activation_memory_budget from 1 to 0")
    parser.add_argument("--budgets", type=int, default=10, help="budgets of ours from the floor up, beside plenty")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: of all threads, where other work runs beside it")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--bits", action="store_true", help="bits alone: autocast, accumulation and clipping")
    parser.add_argument("--only", help="one way alone, by name, or ours by its bytes; tells resident memory")
    args = parser.parse_args()
    (bits if args.bits else alone if args.only else measure)(args)


if __name__ == "__main__":
    main()
