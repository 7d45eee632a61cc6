"""Times training steps of image models in Highwater and in PyTorch, in turn, and prints a table.

    cargo build --release -p highwater-models --example vision_step
    python3 vision.py [--models resnet50,densenet121] [--rounds 5] [--batch 16] [--steps 3] [--table FILE]

Contenders: Highwater with everything kept; with half of what it keeps (state, and half of the arena that it
takes otherwise); PyTorch eager, channels last; and, for DenseNets, torchvision's `memory_efficient=True`.
A ratio is of one round: its seconds over those of Highwater with everything kept.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from compare import HERE, ROOT, Contender, table

STEP = ROOT / "target/release/examples/vision_step"


def kept(command: list[str]) -> tuple[int, int]:
    """Bytes of the state, and of the arena, with everything kept."""
    lines = subprocess.run(command + ["--steps", "2"], check=True, capture_output=True, text=True).stdout
    last = [json.loads(line) for line in lines.splitlines()][-1]
    return last["state"], last["arena"]


def contenders(model: str, args: argparse.Namespace) -> list[Contender]:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("batch", "size", "steps", "threads")]
    ours = [str(args.step), model] + [word for size in sizes for word in size.split("=")]
    state, arena = kept(ours)
    half = (state + arena // 2) >> 20
    print(f"{model}: state {state >> 20} MiB, arena {arena >> 20} MiB, half: {half} MiB", flush=True)
    environment = {"OMP_NUM_THREADS": str(args.threads)}
    theirs = [args.python, str(HERE / "vision_step.py"), "--model", model] + sizes
    found = [
        Contender("Highwater", ours, {}),
        Contender("Highwater, half", ours + ["--arena", str(half)], {}),
        Contender("PyTorch, channels last", theirs, environment),
    ]
    if model.startswith("densenet"):
        found.append(Contender("PyTorch, memory_efficient", theirs + ["--memory-efficient"], environment))
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times image models in interleaved runs.")
    parser.add_argument("--models", default="resnet50,densenet121")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=3, help="of each process; the first isn't counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step", type=Path, default=STEP, help="the example `vision_step`, built")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torchvision")
    parser.add_argument("--table", type=Path, help="write the markdown tables here too")
    return parser.parse_args()


def main() -> None:
    args = parse()
    texts = []
    for model in args.models.split(","):
        all_of_them = contenders(model, args)
        for number in range(args.rounds):
            for one in all_of_them if number % 2 == 0 else reversed(all_of_them):
                one.run()
                print(f"round {number + 1}: {one.name}: {one.seconds[-1]:.3f} s/step, "
                      f"peak {one.peak_mib[-1]:.0f} MiB", flush=True)
        texts.append(f"{model}, f32, batch {args.batch} at {args.size}, SGD with momentum, {args.threads} "
                     f"threads; {args.rounds} rounds.\n\n{table(all_of_them)}\n")
        print(f"\n{texts[-1]}", flush=True)
    if args.table:
        args.table.write_text("\n".join(texts))


if __name__ == "__main__":
    main()
