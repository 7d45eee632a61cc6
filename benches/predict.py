#!/usr/bin/env python3
"""Prints predicted beside measured seconds per step, under several budgets. Needs only Python.

    cargo build --release
    benches/predict.py                                    # the default run and GPT-2 124M, 4 x 512
    benches/predict.py --models gpt2-nano --budgets 5 --steps 40
    benches/predict.py --program PATH                     # another build

Each budget lies between the floor and what keeps everything, as `highwater plan` tells. "first" is
predicted before the first step, from the machine's rates; "last" is predicted at the end, when what
was seen in the run has corrected it; "measured" is the median of the steps after the last change of
the prediction. The machine should have nothing else to do.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = {"gpt2-nano": [], "gpt2": ["--batch", "4", "--seq", "512"]}
STEPS = {"gpt2-nano": 60, "gpt2": 8}
VOCABULARY = 50257


def write_tokens(path: Path) -> None:
    numbers = random.Random(0)
    tokens = array("H", (numbers.randrange(VOCABULARY) for _ in range(1 << 16)))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())


def highwater(program: Path, words: list[str], codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([program, *words], capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in codes:
        sys.exit(f"{program} {' '.join(words)} ended with {done.returncode}\n{done.stderr}")
    return done.stdout


def budgets(program: Path, flags: list[str], count: int) -> list[int]:
    """From the floor to plenty, in bytes, each a mebibyte above what it has to be."""
    plan = json.loads(highwater(program, ["plan", *flags, "--json", "--memory", "1TiB"]))
    least, most = plan["floor_bytes"], plan["peak_bytes"]
    mebibyte = 1 << 20
    return [least + (most - least) * i // max(count - 1, 1) + mebibyte for i in range(count)]


def row(program: Path, name: str, flags: list[str], budget: int, steps: int, out: Path) -> str:
    words = ["train", *flags, "--memory", f"{budget // 1024}KiB", "--steps", str(steps)]
    highwater(program, [*words, "--out", str(out), "--force", "--json"])
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    first, last = records[0]["predicted_seconds"], records[-1]["predicted_seconds"]
    # The first step under a plan makes it and touches its memory.
    settled, changed = [], True
    for before, record in zip([{}] + records, records):
        changed = record["predicted_seconds"] != before.get("predicted_seconds")
        settled = [] if changed else settled + [record["seconds"]]
    measured = statistics.median(settled or [records[-1]["seconds"]])
    return (
        f"| {name} | {budget / (1 << 20):.0f} | {records[-1]['recomputed_nodes']} | {first:.4f} "
        f"| {last:.4f} | {measured:.4f} | {100 * (first / measured - 1):+.0f}% "
        f"| {100 * (last / measured - 1):+.0f}% |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints predicted beside measured seconds per step.")
    parser.add_argument("--models", default="gpt2-nano,gpt2", help="presets, separated by commas")
    parser.add_argument("--budgets", type=int, default=3, help="how many, from the floor to plenty")
    parser.add_argument("--steps", type=int, help="of each run, instead of 60 and 8")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/highwater")
    args = parser.parse_args()
    print("| model | budget, MiB | recomputed | first, s | last, s | measured, s | first off | last off |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        tokens, out = Path(folder) / "tokens.bin", Path(folder) / "run"
        write_tokens(tokens)
        for name in args.models.split(","):
            if name not in FLAGS:
                parser.error(f"{name}: there are {', '.join(FLAGS)}")
            flags = ["--model", name, *FLAGS[name]]
            if name != "gpt2-nano":
                flags += ["--data", str(tokens)]
            steps = args.steps or STEPS[name]
            for budget in budgets(args.program.resolve(), flags, args.budgets):
                print(row(args.program.resolve(), name, flags, budget, steps, out), flush=True)


if __name__ == "__main__":
    main()
