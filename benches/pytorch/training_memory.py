#!/usr/bin/env python3
"""What less memory costs a PyTorch model: ours beside PyTorch's own means, on the CPU.

    python benches/pytorch/training_memory.py gpt2          # or unet
    python benches/pytorch/training_memory.py gpt2 --rounds 5

Of each way to train: the most bytes that PyTorch's allocator has at once beside weights and inputs, the
seconds of a step (the middle of some rounds, in which all ways take turns), and whether losses, gradients
and buffers are eager's. Ours are planned at the peaks that the others reach, and at the floor. Needs
torch, and the package `highwater` (crates/highwater-python).
"""

import argparse
import copy
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import torch
from highwater.torch._allocated import allocated
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crates/highwater-python/tests"))
from models import Case, Gpt, UNet

CASES = {
    "gpt2": Case(lambda: Gpt(layers=6, width=384), lambda: (torch.randint(0, 97, (16, 64)),), lambda loss: loss),
    "unet": Case(lambda: UNet(channels=32), lambda: (torch.randn(4, 3, 96, 96),)),
}
# All ways are compiled in one process.
torch._dynamo.config.recompile_limit = 64
BUDGETS = [0.75, 0.5, 0.25, 0.1, 0.05, 0.0]


class Way:
    """A model trained in some way."""

    def __init__(self, name: str, case: Case, model, backend=None, knob: float | None = None) -> None:
        self.name, self.case, self.model = name, case, copy.deepcopy(model)
        torch.manual_seed(1)
        self.inputs = case.inputs()
        self.call = self.model
        if backend is not None:
            self.call = torch.compile(self.model, backend=backend, dynamic=False, fullgraph=True)
        with config.patch(activation_memory_budget=1.0 if knob is None else knob):
            self.answers = [self.step(), *(p.grad.clone() for p in self.model.parameters())]
        self.answers += [value.clone() for value in self.model.buffers()]
        self.model.zero_grad()
        _, self.peak, _ = allocated(self.step)
        self.seconds: list[float] = []

    def step(self) -> torch.Tensor:
        torch.manual_seed(2)
        out = self.call(*self.inputs)
        loss = self.case.loss(*out) if isinstance(out, tuple) else self.case.loss(out)
        del out
        loss.backward()
        return loss.detach()

    def time(self) -> None:
        self.model.zero_grad()
        start = time.perf_counter()
        self.step()
        self.seconds.append(time.perf_counter() - start)


def min_cut():
    return aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=min_cut_rematerialization_partition)


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and seconds of ways to train a PyTorch model.")
    parser.add_argument("model", choices=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    case = CASES[args.model]
    torch.manual_seed(0)
    model = case.model()
    ways = [Way("eager", case, model), Way("aot_eager", case, model, "aot_eager")]
    for knob in BUDGETS:
        try:
            ways.append(Way(f"min-cut at {knob}", case, model, min_cut(), knob))
        except RuntimeError as error:  # It may save a buffer that the forward overwrites.
            print(f"min-cut at {knob} fails: {error}")
    first = highwater.torch.backend("1TiB")
    ways.append(Way("highwater, plenty", case, model, first))
    (report,) = first.reports
    given = report.given_bytes
    told = {way.peak + given for way in ways if report.floor_bytes < way.peak + given < report.live_bytes}
    for memory in [*sorted(told, reverse=True), report.floor_bytes]:
        ways.append(Way(f"highwater at {(memory - given) / 1e6:.1f} MB", case, model, highwater.torch.backend(memory)))
    for _ in range(args.rounds):
        for way in ways:
            way.time()
    print("| way | peak, MB | s/step | as eager |\n|---|---:|---:|---|")
    for way in ways:
        same = all(torch.equal(a, b) for a, b in zip(way.answers, ways[0].answers, strict=True))
        print(f"| {way.name} | {way.peak / 1e6:.1f} | {statistics.median(way.seconds):.3f} | {'yes' if same else 'no'} |")


if __name__ == "__main__":
    main()
