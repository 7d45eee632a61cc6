#!/usr/bin/env python3
"""What budgets cost, measured: seconds per step and peak memory of GPT-2 124M at 4 x 512.

    cargo build --release
    benches/budgets.py                                  # a table in markdown
    benches/budgets.py --rounds 1 --shares 0.6,0.25 --flags "--clip 1"
    benches/budgets.py --model FOLDER --shares 0.12     # any model folder

A share f stands for a budget of the peak that keeps everything less (1 - f) of what backward reads
(both as `highwater plan --policy keep` tells them). Each round runs every budget once, every other
round backwards; a run's time is the median of its steps after the first three (the first plans and
touches its memory; predictions settle on the third). Slow-downs are taken within each round, against
the run with no budget to speak of. Peaks are those of the process, as the kernel reports them. The
machine should have nothing else to do. Needs only Python.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from launch import launch
from predict import ROOT, highwater, write_tokens

PLENTY = "64GiB"


def planned(program: Path, flags: list[str], memory: str, policy: str) -> dict:
    words = ["plan", *flags, "--memory", memory, "--policy", policy, "--json"]
    return json.loads(highwater(program, words, (0, 3)))


def run(program: Path, flags: list[str], memory: str, steps: int, out: Path) -> dict:
    """One run: its seconds per step, what was predicted, and its peak."""
    words = ["train", *flags, "--memory", memory, "--steps", str(steps), "--out", str(out), "--force", "--json"]
    with tempfile.TemporaryFile("w+") as news:
        code, peak = launch(program, words, ROOT, subprocess.DEVNULL, news)
        if code:
            news.seek(0)
            sys.exit(f"{memory}: {news.read()}")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    settled = records[3:] or records[-1:]
    return {
        "seconds": statistics.median(record["seconds"] for record in settled),
        "predicted": records[-1]["predicted_seconds"],
        "recomputed": records[-1]["recomputed_nodes"],
        "peak": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what budgets cost.")
    parser.add_argument("--model", default="gpt2", help="a preset or a model folder")
    parser.add_argument("--shares", default="0.6,0.5,0.25,0.0625", help="of what backward reads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--flags", default="", help="more flags of `highwater train`")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/highwater")
    args = parser.parse_args()
    program = args.program.resolve()
    with tempfile.TemporaryDirectory() as folder:
        tokens, out = Path(folder) / "tokens.bin", Path(folder) / "run"
        write_tokens(tokens)
        shape = ["--batch", "4", "--seq", "512", "--data", str(tokens), "--lr", "1e-4"]
        flags = ["--model", args.model, *shape, *args.flags.split()]
        keep = planned(program, flags, PLENTY, "keep")
        budgets = {"no budget": PLENTY}
        for share in map(float, args.shares.split(",")):
            less = int((1 - share) * keep["saved_bytes"])
            budgets[f"{100 * share:g}%"] = f"{(keep['peak_bytes'] - less) >> 10}KiB"
        floor = planned(program, flags, PLENTY, "auto")["floor_bytes"]
        budgets["floor"] = f"{(floor >> 10) + 1024}KiB"
        results = {name: [] for name in budgets}
        for i in range(args.rounds):
            order = list(budgets.items())
            for name, memory in order if i % 2 == 0 else reversed(order):
                results[name].append(run(program, flags, memory, args.steps, out))
                print(f"{name}: {results[name][-1]}", file=sys.stderr, flush=True)
    megabytes = keep["saved_bytes"] / 1e6
    print(f"Backward reads {megabytes:.0f} MB; all kept, the process peaks at {keep['peak_bytes'] / 1e6:.0f} MB.\n")
    print("| kept | budget, MiB | s/step | slower, median of rounds | spread | predicted, s | off | peak RSS, MiB | recomputed |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, runs in results.items():
        pairs = zip(runs, results["no budget"])
        slower = [100 * (run["seconds"] / free["seconds"] - 1) for run, free in pairs]
        seconds = statistics.median(run["seconds"] for run in runs)
        predicted = statistics.median(run["predicted"] for run in runs)
        off = statistics.median(100 * (run["predicted"] / run["seconds"] - 1) for run in runs)
        budget = budgets[name].removesuffix("KiB")
        budget = f"{int(budget) / 1024:.0f}" if budget.isdigit() else "-"
        print(
            f"| {name} | {budget} | {seconds:.3f} | {statistics.median(slower):.1f}% "
            f"| {min(slower):.1f} to {max(slower):.1f}% | {predicted:.3f} | {off:+.1f}% "
            f"| {max(run['peak'] for run in runs) / (1 << 20):.0f} | {runs[-1]['recomputed']} |"
        )


if __name__ == "__main__":
    main()
