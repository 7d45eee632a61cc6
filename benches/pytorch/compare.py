"""Times Highwater and PyTorch on the same training step, in turn, and prints a table.

    python3 compare.py [--rounds 7] [--variants installed,avx512,tuned] [--table FILE]

Every round runs Highwater and each variant of PyTorch once, each in its own process; every other
round runs them backwards. The ratio of a variant is PyTorch's seconds over Highwater's in the same
round, so that a machine that slows down slows both.
"""

import argparse
import json
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from array import array
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HIGHWATER = (
    f"{shlex.quote(str(ROOT / 'target/release/highwater'))} train --model gpt2 --data {{data}} "
    "--batch {batch} --seq {seq} --steps {steps} --threads {threads} --optimizer adamw --out {out} --json"
)
VOCABULARY = 50257


@dataclass
class Contender:
    name: str
    command: list[str]
    environment: dict[str, str]
    metrics: Path | None = None  # where it writes its steps; None: to its standard output
    seconds: list[float] = field(default_factory=list)
    peak_mib: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Runs it once and keeps the median step and the peak memory."""
        with tempfile.TemporaryFile("w+") as output:
            try:
                process = subprocess.Popen(
                    self.command, stdout=output, cwd=ROOT, env=os.environ | self.environment
                )
            except OSError as error:
                sys.exit(f"{self.name}: {error}")
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                sys.exit(f"{self.name}: {shlex.join(self.command)} ended with {process.returncode}")
            output.seek(0)
            lines = (self.metrics.read_text() if self.metrics else output.read()).splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
        steps = [record["seconds"] for record in records if "step" in record and "seconds" in record]
        if len(steps) < 2:
            sys.exit(f"{self.name}: {len(steps)} timed steps; at least 2 are needed")
        self.seconds.append(statistics.median(steps[1:]))
        self.peak_mib.append(usage.ru_maxrss / 1024)


def write_tokens(path: Path, count: int) -> None:
    numbers = random.Random(0)
    tokens = array("H", (numbers.randrange(VOCABULARY) for _ in range(count)))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())


def preloads(variant: str, folder: Path) -> list[str]:
    """The libraries that a variant of PyTorch loads first."""
    libraries = []
    if variant in ("avx512", "tuned"):
        library = folder / "mkl_true.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "mkl_true.c"], check=True)
        libraries.append(str(library))
    if variant == "tuned":
        tcmalloc = find_library("tcmalloc_minimal")
        if tcmalloc is None:
            sys.exit("the variant `tuned` needs tcmalloc: apt-get install libtcmalloc-minimal4")
        libraries.append(tcmalloc)
    return libraries


def pytorch(variant: str, args: argparse.Namespace, folder: Path) -> Contender:
    command = [args.python, str(HERE / "gpt2_step.py")]
    for name in ("batch", "seq", "steps", "threads"):
        command += [f"--{name}", str(getattr(args, name))]
    environment = {"OMP_NUM_THREADS": str(args.threads)}
    if libraries := preloads(variant, folder):
        environment["LD_PRELOAD"] = ":".join(libraries)
    return Contender(f"PyTorch, {variant}", command + shlex.split(args.torch_args), environment)


def highwater(args: argparse.Namespace, folder: Path) -> Contender:
    out, data = folder / "out", args.data
    if data is None:
        data = folder / "tokens.bin"
        write_tokens(data, args.batch * args.seq * args.steps + args.batch + 1)
    sizes = {name: getattr(args, name) for name in ("batch", "seq", "steps", "threads")}
    command = args.highwater.format(data=shlex.quote(str(data)), out=shlex.quote(str(out)), **sizes)
    return Contender("Highwater", shlex.split(command), {}, out / "metrics.jsonl")


def spread(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def table(contenders: list[Contender]) -> str:
    first = contenders[0]
    lines = [
        "| | s/step, median | spread | times Highwater's, median of pairs | spread | peak RSS, MiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in contenders:
        ratios = [theirs / ours for theirs, ours in zip(one.seconds, first.seconds)]
        lines.append(
            f"| {one.name} | {statistics.median(one.seconds):.4f} | {spread(one.seconds, 4)} "
            f"| {statistics.median(ratios):.2f} | {spread(ratios, 2)} | {max(one.peak_mib):.0f} |"
        )
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times Highwater and PyTorch in interleaved runs.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4, help="of each process; the first isn't counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", default="installed,avx512,tuned", help="of PyTorch, separated by commas")
    parser.add_argument("--data", type=Path, help="u16 tokens for Highwater; random ones without it")
    parser.add_argument("--highwater", default=HIGHWATER, metavar="COMMAND",
                        help="Highwater's command line, with {data} {batch} {seq} {steps} {threads} {out}")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--torch-args", default="", help="more flags for gpt2_step.py, as one string")
    parser.add_argument("--table", type=Path, help="write the markdown table here too")
    args = parser.parse_args()
    args.data = args.data and args.data.resolve()
    if unknown := set(args.variants.split(",")) - {"installed", "avx512", "tuned"}:
        parser.error(f"unknown variants: {', '.join(sorted(unknown))}")
    return args


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contenders = [highwater(args, folder)]
        contenders += [pytorch(variant, args, folder) for variant in args.variants.split(",")]
        for number in range(args.rounds):
            for one in contenders if number % 2 == 0 else reversed(contenders):
                shutil.rmtree(folder / "out", ignore_errors=True)
                one.run()
                print(f"round {number + 1}: {one.name}: {one.seconds[-1]:.4f} s/step, "
                      f"peak {one.peak_mib[-1]:.0f} MiB", flush=True)
    text = (
        f"GPT-2, f32, batch {args.batch} × {args.seq}, AdamW, {args.threads} threads; "
        f"{args.rounds} rounds of {args.steps} steps, the first not counted.\n\n{table(contenders)}\n"
    )
    print(f"\n{text}", end="")
    if args.table:
        args.table.write_text(text)


if __name__ == "__main__":
    main()
