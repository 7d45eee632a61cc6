#!/usr/bin/env python3
"""What training from disk costs, measured in memory cgroups: seconds per step, traffic, waits.

    cargo build --release
    benches/disk.py --disk /data=8GiB                                   # GPT-2 at 4 x 512
    benches/disk.py --disk /data=24GiB --model gpt2-xl --batch 1 \\
        --memory 4GiB,2560MiB --free 21GiB --rounds 1

Each round runs each budget once, inside a cgroup of exactly that size without swap, and once without a
disk in as much memory as --free says (unless that is none), every other round backwards. A run's time is
the median of its steps after the first --skip. The least that a step could take is the larger of its
computation and its traffic over what the disk moves both ways at once, by fio over --area GiB just before
(without fio, there is no such figure). Computation is measured twice: as the step without a disk of that
round, and as what the step itself was busy, without what it waited for transfers; in the latter is what
transfers take of the processors. Limits must never be hit (failcnt 0). Needs root, for cgroups, and
Python. The machine should have nothing else to do.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from predict import ROOT, write_tokens

CGROUPS = Path("/sys/fs/cgroup")


def size(text: str) -> int:
    number, unit = re.fullmatch(r"([0-9.]+)([KMGT]iB)", text).groups()
    return int(float(number) * 1024 ** (1 + "KMGT".index(unit[0])))


class Cgroup:
    """A memory cgroup of so many bytes, of version 1 or 2."""

    def __init__(self, limit: int):
        self.new = (CGROUPS / "cgroup.controllers").exists()
        self.path = CGROUPS / ("" if self.new else "memory") / f"highwater-{os.getpid()}"
        self.path.mkdir()
        names = ["memory.max"] if self.new else ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        for name in names:
            if (self.path / name).exists():
                (self.path / name).write_text(str(limit))

    def hits(self) -> int:
        if self.new:
            events = (self.path / "memory.events").read_text().split()
            events = dict(zip(events[::2], events[1::2]))
            return int(events["max"]) + int(events["oom"])
        return int((self.path / "memory.failcnt").read_text())

    def enter(self):
        (self.path / "cgroup.procs").write_text("0")

    def remove(self):
        self.path.rmdir()


def mixed(folder: str, gigabytes: int) -> tuple[float, float] | None:
    """Bytes per second of reading and of writing at once, by fio."""
    if not shutil.which("fio"):
        return None
    file = Path(folder) / "fio.tmp"
    common = ["--direct=1", "--ioengine=io_uring", "--bs=1M", "--iodepth=16", f"--filename={file}", "--minimal"]
    half = f"{gigabytes // 2}g"
    try:
        subprocess.run(["fio", *common, "--name=w", "--rw=write", f"--size={gigabytes}g"], capture_output=True, check=True)
        both = ["--name=r", "--rw=read", f"--size={half}", "--name=w", "--rw=write", f"--size={half}", f"--offset={half}"]
        lines = subprocess.run(["fio", *common, *both], capture_output=True, check=True, text=True).stdout.splitlines()
        fields = [line.split(";") for line in lines if line.count(";") > 50]
        read, write = max(int(f[6]) for f in fields), max(int(f[47]) for f in fields)
        return read * 1024.0, write * 1024.0
    finally:
        file.unlink(missing_ok=True)


def run(program: Path, flags: list[str], memory: str | None, args, out: Path) -> dict:
    group = Cgroup(size(memory)) if memory else None
    words = ["train", *flags, "--memory", memory or args.free, "--steps", str(args.steps), "--out", str(out), "--force"]
    if memory:
        words += ["--disk", args.disk]
    child = subprocess.Popen(
        [program, *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=group.enter if group else None,
    )
    # What it prints at its end is a line: nobody has to read both at once.
    errors, summary = child.stderr.read().decode(), child.stdout.read()
    status = child.wait()
    hits = group.hits() if group else 0
    if group:
        group.remove()
    if status:
        sys.exit(f"{memory}: {errors}")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(out)
    phases = {phase["phase"]: phase["peak_rss_bytes"] for phase in json.loads(summary)["phases"]}
    settled = records[args.skip :] or records[-1:]
    middle = lambda key: statistics.median(record[key] or 0 for record in settled)
    names = ["seconds", "bytes_read", "bytes_written", "io_wait_seconds", "predicted_seconds", "recompute_seconds"]
    found = {name: middle(name) for name in names}
    return found | {"phases": phases, "peak": max(phases.values()), "hits": hits, "loss": [record["loss"] for record in records]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what training from disk costs.")
    parser.add_argument("--disk", required=True, help="DIR=SIZE, as for `highwater train`")
    parser.add_argument("--model", default="gpt2", help="a preset or a model folder")
    parser.add_argument("--batch", default="4")
    parser.add_argument("--memory", default="1GiB,768MiB,512MiB", help="sizes of the cgroups")
    parser.add_argument("--free", default="64GiB", help="what a run without a disk may take, or none for no such run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--skip", type=int, default=4, help="steps that do not count: rates settle in them")
    parser.add_argument("--area", type=int, default=8, help="GiB that fio moves")
    parser.add_argument("--flags", default="", help="more flags of `highwater train`")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/highwater")
    args = parser.parse_args()
    budgets = args.memory.split(",")
    names = ([None] if args.free != "none" else []) + budgets
    results = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        tokens, out = Path(folder) / "tokens.bin", Path(folder) / "run"
        write_tokens(tokens)
        shape = ["--batch", args.batch, "--seq", "512", "--data", str(tokens), "--lr", "1e-4"]
        flags = ["--model", args.model, *shape, *args.flags.split()]
        for i in range(args.rounds):
            rates = mixed(args.disk.rpartition("=")[0], args.area)
            for name in names if i % 2 == 0 else reversed(names):
                found = run(args.program.resolve(), flags, name, args, out) | {"rates": rates}
                results[name].append(found)
                print(f"{name}: {found}", file=sys.stderr, flush=True)
    losses = [found["loss"] for runs in results.values() for found in runs]
    print(f"Losses of all runs the same: {all(loss == losses[0] for loss in losses)}.\n")
    print("| budget | s/step | slower, % | predicted, s | waited, s | read, GB | written, GB | traffic, s | over the larger | busy, s | over the larger | peak RSS, MiB | limit hit |")
    print("|---" + "|---:" * 12 + "|")
    for name, runs in results.items():
        free = results.get(None) or [None] * len(runs)
        rows = [row(found, other) for found, other in zip(runs, free)]
        cells = [f"{statistics.median(column):.2f}" if None not in column else "-" for column in zip(*rows)]
        peak = max(found["peak"] for found in runs) / (1 << 20)
        print(f"| {name or 'none'} | {' | '.join(cells)} | {peak:.0f} | {sum(found['hits'] for found in runs)} |")


def row(found: dict, free: dict | None) -> list[float | None]:
    """The figures of a run, beside one without a disk in the same round."""
    seconds, waited = found["seconds"], found["io_wait_seconds"]
    moved = [found["bytes_read"], found["bytes_written"]]
    # Both at once for as long as there is both; what is left goes at the same rate.
    traffic = sum(moved) / sum(found["rates"]) if found["rates"] else None
    slower, over_alone = None, None
    if free:
        slower = 100 * (seconds / free["seconds"] - 1)
        over_alone = seconds / max(free["seconds"], traffic or 0.0)
    busy = seconds - waited
    over_busy = seconds / max(busy, traffic or 0.0)
    gigabytes = [bytes / 1e9 for bytes in moved]
    return [seconds, slower, found["predicted_seconds"], waited, *gigabytes, traffic, over_alone, busy, over_busy]


if __name__ == "__main__":
    main()
