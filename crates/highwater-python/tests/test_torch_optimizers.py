"""Whole training steps with every kind of optimizer, compared with eager PyTorch in random trials.

``python tests/test_torch_optimizers.py --trials 2000 --processes 2`` runs many, ``--first 17 --trials 1`` one of them
again, and ``--shrink`` finds a plainer one that fails in the same way.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import pytest
import torch
from optimizer_makers import USUAL
from optimizer_trials import Spec, check, drawn, shrunk
from torch import Tensor, nn, optim

# What passes.
GOOD = ("same", "refused, as", "not installed")


@pytest.mark.parametrize("seed", range(12))
def test_random_trials(seed: int) -> None:
    spec = drawn(seed, USUAL)
    verdict = check(spec)
    assert verdict.startswith(GOOD), f"{verdict}, {spec}"


# These once used more memory than predicted.
ABOVE = [
    Spec(layout="turned", first=(("fused", True),), optimizer="SGD", seed=88),
    Spec(layout="turned", first=(("fused", True), ("amsgrad", True)), optimizer="AdamW"),
    Spec(layout="bf16", optimizer="float momentum"),
    Spec(extra="frozen", optimizer="Muon with Adam", seed=10121),
    Spec(extra="unused", optimizer="Muon with Adam", seed=3),
    Spec(life="reload", optimizer="float momentum", seed=197),
]


@pytest.mark.parametrize("spec", ABOVE, ids=lambda spec: f"{spec.optimizer} {spec.layout} {spec.extra}{spec.life}")
def test_these_stay_within_what_is_told(spec: Spec) -> None:
    assert check(replace(spec, share=0.0)) == "same"


def test_a_hook_sees_gradients_of_a_later_optimizer_still_scaled() -> None:
    assert check(Spec(optimizer="list", hooks=("pre",), scaler="plain", share=0.0)) == "same"


class Late(nn.Module):
    """A model whose first layer is used later than the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor, first: int) -> Tensor:
        for layer in self.layers[first:]:
            x = layer(x).tanh()
        return x.square().mean()


def test_states_stand_in_the_order_of_first_updates() -> None:
    def orders(planned: bool) -> list[list[int]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Late()
        optimizer = torch.optim.AdamW(model.parameters())
        step = highwater.torch.step(model, optimizer=optimizer, memory="1GiB") if planned else None
        found = []
        for first in (2, 1, 0):
            if step:
                step(torch.ones(4, 8), first)
            else:
                model(torch.ones(4, 8), first).backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append(list(optimizer.state_dict()["state"]))
        return found

    assert orders(True) == orders(False) == [[4, 5], [4, 5, 2, 3], [4, 5, 2, 3, 0, 1]]


def attempt(task: tuple[int, list[str], bool]) -> tuple[int, str, float]:
    torch.set_num_threads(1)
    seed, among, shrink = task
    start = time.perf_counter()
    spec = drawn(seed, among)
    try:
        verdict = check(spec)
        if not verdict.startswith(GOOD):
            # Each line can be pasted into `check`.
            verdict += f"\n    {shrunk(spec) if shrink else spec}"
    except Exception:
        verdict = f"BROKEN: {spec}\n{traceback.format_exc()}"
    if not gc.get_freeze_count():
        gc.freeze()  # What is imported by now stays, and need not be looked at after each plan.
    return seed, verdict, time.perf_counter() - start


# So many trials are run by one set of processes, so that what PyTorch remembers of them is dropped.
EACH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description="Random trials of whole steps, compared with eager PyTorch.")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first trial's seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--optimizer", action="append", default=[], help="only optimizers of this name")
    parser.add_argument("--verbose", action="store_true", help="shows all trials")
    parser.add_argument("--shrink", action="store_true", help="shows plainer trials that fail in the same way")
    args = parser.parse_args()
    start, counts, seconds = time.perf_counter(), Counter[str](), 0.0
    spawn, end = multiprocessing.get_context("spawn"), args.first + args.trials
    for first in range(args.first, end, EACH):
        tasks = [(seed, args.optimizer, args.shrink) for seed in range(first, min(first + EACH, end))]
        with ProcessPoolExecutor(args.processes, spawn) as pool:
            for seed, verdict, taken in pool.map(attempt, tasks):
                seconds += taken
                counts[verdict.split(":")[0].split(" (")[0]] += 1
                if args.verbose or not verdict.startswith(GOOD):
                    print(f"{seed}: {verdict}", flush=True)
        print(f"seeds {args.first} to {tasks[-1][0]}: {dict(counts)}", flush=True)
    print(f"{args.trials} trials in {time.perf_counter() - start:.0f} s, {seconds / args.trials:.2f} s each: {dict(counts)}")
    raise SystemExit(any(not verdict.startswith(GOOD) for verdict in counts))


if __name__ == "__main__":
    main()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_adafactor_takes_eps_by_the_first_dtype(dtype: torch.dtype) -> None:
    """As PyTorch's own, which keeps that of the first parameter for all of a group."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16).to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).to(dtype)).float().square().mean()  # type: ignore[no-any-return]

    def run(ours: bool) -> list[Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, x = Mixed(), torch.randn(4, 16)
        optimizer = optim.Adafactor(model.parameters(), lr=0.1)
        step = highwater.torch.step(model, None, optimizer, memory="1GiB")
        for _ in range(3):
            if ours:
                step(x)
                continue
            model(x).backward()
            optimizer.step()
            optimizer.zero_grad()
        return list(model.parameters())

    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(run(True), run(False), strict=True))
