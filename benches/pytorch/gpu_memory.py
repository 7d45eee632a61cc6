#!/usr/bin/env python3
"""What less memory costs on a GPU: ours beside PyTorch's own means. Ten minutes on an H100 or H200.

    python benches/pytorch/gpu_memory.py --out report                  # all of it, what matters first
    python benches/pytorch/gpu_memory.py --out report --only gpt2-xl   # parts whose names begin so
    python benches/pytorch/gpu_memory.py --device cpu --tiny           # the same on small models, anywhere

Each part is a process of its own with a time limit, and leaves a file in the folder: what fails, or has no time
left, is named in `report.md` and takes nothing else with it. Bits are checked first, of small models with dropout, in
bf16 under autocast, with PyTorch's deterministic kernels. Then whole training steps of large models in bf16: the most
bytes that were asked for (`requested`), given (`max_memory_allocated`) and taken from the GPU
(`max_memory_reserved`), beside what was told before. At the end, what of the aims is missed. Needs torch,
torchvision, and the package `highwater` (crates/highwater-python).
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products, for bits

FOLDER = Path(__file__).resolve().parent
GIB = 1 << 30
MODELS = ("gpt2-xl", "llama-1b")
# Of each model in this order; those of ours know what the first of ours was told.
WAYS = ("plain", "ours-plenty", "ours-half", "checkpoint", "knob-0.5", "ours-quarter", "ours-least", "knob-0.1", "ours-half-host", "ours-least-host")
SECONDS = {"checks": 200, "told": 60, "tenth": 90}
AIM = 0.9


class Gpu:
    """How memory and time are measured."""

    def __init__(self) -> None:
        import torch

        self.torch, self.device = torch, torch.device("cuda", 0)
        self.total = torch.cuda.get_device_properties(self.device).total_memory

    def about(self) -> dict[str, Any]:
        cuda = self.torch.cuda
        return {"device": cuda.get_device_name(), "memory": self.total, "torch": self.torch.__version__, "cuda": self.torch.version.cuda}

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def peaks(self, run: Callable[[], Any], standing: int) -> dict[str, int]:
        cuda = self.torch.cuda
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        run()
        self.wait()
        stats = cuda.memory_stats()
        return {
            "requested": stats["requested_bytes.all.peak"],
            "allocated": cuda.max_memory_allocated(),
            "reserved": cuda.max_memory_reserved(),
        }

    def limit(self, share: float) -> int:
        self.torch.cuda.set_per_process_memory_fraction(share)
        return int(self.total * share)

    def states(self) -> list[Any]:
        return [self.torch.get_rng_state(), self.torch.cuda.get_rng_state()]


class Cpu(Gpu):
    """The same words for a machine without one: `requested` alone, and no limit but the one that is told."""

    def __init__(self) -> None:
        import torch

        self.torch, self.device, self.total = torch, torch.device("cpu"), 40 << 20

    def about(self) -> dict[str, Any]:
        return {"device": "cpu", "memory": self.total, "torch": self.torch.__version__, "cuda": None}

    def wait(self) -> None: ...

    def peaks(self, run: Callable[[], Any], standing: int) -> dict[str, int]:
        from highwater.torch._device.allocated import allocated

        return {"requested": standing + allocated(run)[1]}

    def limit(self, share: float) -> int:
        return int(self.total * share)

    def states(self) -> list[Any]:
        return [self.torch.get_rng_state()]


def large(name: str, tiny: bool) -> Any:
    """A model in bf16 and its inputs, by name."""
    from zoo import Block, Case, Gpt2, Llama, LlamaBlock, partial, texts

    sizes: dict[str, Any] = {
        "gpt2-xl": (lambda: Gpt2(48, 1600, 25, 50257, 1024), partial(texts, 50257, 8, 1024), (Block,)),
        "gpt2-large": (lambda: Gpt2(36, 1280, 20, 50257, 1024), partial(texts, 50257, 8, 1024), (Block,)),
        "llama-1b": (lambda: Llama(22, 2048, 32, 32000, adapted=False), partial(texts, 32000, 4, 2048), (LlamaBlock,)),
    }
    if tiny:
        gpt = (lambda: Gpt2(3, 64, 2, 500, 64), partial(texts, 500, 8, 64), (Block,))
        sizes = {"gpt2-xl": gpt, "gpt2-large": gpt, "llama-1b": (lambda: Llama(3, 64, 2, 500, adapted=False), partial(texts, 500, 4, 64), (LlamaBlock,))}
    return Case(*sizes[name])


def made(case: Any, gpu: Gpu, half: bool) -> tuple[Any, tuple[Any, ...]]:
    torch = gpu.torch
    torch.manual_seed(0)
    with gpu.device:
        model = case.model()
        inputs = case.inputs()
    return (model.to(torch.bfloat16) if half else model), inputs


def report_of(step: Any) -> dict[str, Any]:
    report = step.reports[-1]
    names = ("budget_bytes", "given_bytes", "live_bytes", "floor_bytes", "reserved_bytes", "seconds", "recomputed_kernels", "kernels", "planning_seconds")
    return {name: getattr(report, name) for name in names}


def trained(args: argparse.Namespace, gpu: Gpu, name: str, way: str) -> dict[str, Any]:
    """Some steps of a large model, one way."""
    import highwater.torch
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from zoo import checkpoint_blocks

    case = large(name, args.tiny)
    model, inputs = made(case, gpu, half=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    call: Any = model
    kind, _, rest = way.partition("-")
    if kind == "checkpoint":
        checkpoint_blocks(model, case.blocks)
    if kind == "knob":
        config.activation_memory_budget = float(rest)
        backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=min_cut_rematerialization_partition)
        call = torch.compile(model, backend=backend, dynamic=False, fullgraph=True)

    def plain() -> Any:
        loss = call(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step: Any = plain
    if kind == "ours":
        memory, more = amount(args.out, name, rest)
        if more and "host_memory" not in inspect.signature(highwater.torch.step).parameters:
            return {"left out": "this version has no host_memory"}
        whole = highwater.torch.step(model, None, optimizer, memory=memory, **more)

        def step() -> Any:
            return whole(*inputs)

    start = time.perf_counter()
    losses = [float(step())]
    gpu.wait()
    first = time.perf_counter() - start
    losses.append(float(step()))
    tokens = inputs[0].numel()
    standing = sum(p.nbytes for p in model.parameters()) * 3 + sum(t.nbytes for t in inputs)
    peaks = gpu.peaks(step, standing)
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        gpu.wait()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    answer = {"first": first, "seconds": seconds, "tokens/s": tokens / seconds, "losses": losses, **peaks}
    return {**answer, **(report_of(whole) if kind == "ours" else {})}


def amount(out: Path, name: str, words: str) -> tuple[int, dict[str, Any]]:
    """The memory of one of our ways: shares of the activations that everything kept takes."""
    if words == "plenty":
        return 1 << 50, {}
    told = json.loads((out / f"{name}.ours-plenty.json").read_text())
    given, live, floor = told["given_bytes"], told["live_bytes"], told["floor_bytes"]
    share, _, host = words.partition("-")
    shares = {"half": given + (live - given) // 2, "quarter": given + (live - given) // 4, "least": floor + (live - floor) // 50}
    return max(shares[share], floor), ({"host_memory": 64 * GIB} if host else {})


def checks(args: argparse.Namespace, gpu: Gpu) -> dict[str, Any]:
    """Bits of small models at five budgets: losses, gradients, buffers and random numbers of two steps."""
    import highwater.torch
    import torch
    from zoo import CASES

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024
    names = ["gpt2"] if args.tiny else ["gpt2", "llama-lora", "unet", "resnet50"]
    found: dict[str, Any] = {"different": [], "equal": 0, "above": []}
    for name in names:
        for half in (False, True):
            case = CASES[name]["small"]
            model, inputs = made(case, gpu, half=False)
            buffers = {key: value.clone() for key, value in model.named_buffers()}

            def answers(call: Any) -> list[Any]:
                for key, value in model.named_buffers():
                    value.copy_(buffers[key])
                torch.manual_seed(2)
                found = []
                for _ in range(2):
                    model.zero_grad()
                    with torch.autocast(gpu.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
                        loss = call(*inputs)
                    loss.backward()
                    found += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
                return found + [value.clone() for value in model.buffers()] + gpu.states()

            eager = answers(model)
            if not all(map(torch.equal, eager, answers(model))):
                found["different"].append(f"{name}, autocast {half}: eager PyTorch itself, from run to run")
                continue
            budgets: list[int] = [1 << 40]
            for memory in budgets:
                torch._dynamo.reset()
                backend = highwater.torch.backend(memory)
                call = torch.compile(model, backend=backend, dynamic=False, fullgraph=True)
                ours = answers(call)
                (report,) = backend.reports
                if len(budgets) == 1:
                    floor, most = report.floor_bytes, report.live_bytes
                    budgets += [floor + (most - floor) * i // 4 for i in range(4)]
                same = len(eager) == len(ours) and all(map(torch.equal, eager, ours))
                found["equal"] += same
                if not same:
                    found["different"].append(f"{name}, autocast {half}, {memory} bytes")
                if report.live_bytes > memory:
                    found["above"].append(f"{name}, autocast {half}, {memory} bytes: told {report.live_bytes}")
    return found


def told(args: argparse.Namespace, gpu: Gpu) -> dict[str, Any]:
    """What was told of a middling model at five budgets, beside what is measured."""
    import highwater.torch
    import torch
    from zoo import CASES

    model, inputs = made(CASES["gpt2"]["small" if args.tiny else "full"], gpu, half=False)
    rows: list[dict[str, Any]] = []
    budgets: list[int] = [1 << 40]
    for memory in budgets:
        torch._dynamo.reset()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        step = highwater.torch.step(model, None, optimizer, memory=memory)
        step(*inputs)
        standing = sum(p.nbytes for p in model.parameters()) + sum(t.nbytes for t in inputs)
        rows.append({**report_of(step), **gpu.peaks(lambda: step(*inputs), standing)})
        if len(budgets) == 1:
            floor, most = rows[0]["floor_bytes"], rows[0]["live_bytes"]
            budgets += [floor + (most - floor) * i // 4 for i in range(4)]
    return {"rows": rows}


def tenth(args: argparse.Namespace, gpu: Gpu) -> dict[str, Any]:
    """A model that plain PyTorch cannot hold in a tenth of the GPU."""
    import highwater.torch
    import torch

    case = large("gpt2-large", args.tiny)
    limit = gpu.limit(0.1)
    model, inputs = made(case, gpu, half=True)
    # What the limit bounds is what the allocator takes, which is more than what is alive.
    memory = limit * 9 // 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step = highwater.torch.step(model, None, optimizer, memory=memory)
    losses = [float(step(*inputs)) for _ in range(3)]
    standing = sum(p.nbytes for p in model.parameters()) * 3 + sum(t.nbytes for t in inputs)
    answer = {"limit": limit, "ours": losses, **report_of(step), **gpu.peaks(lambda: step(*inputs), standing)}
    optimizer.zero_grad()

    def plain() -> None:
        loss = model(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    try:
        peak = gpu.peaks(plain, standing)
        answer["plain"] = f"needs {peak['requested']} bytes" if peak["requested"] > limit else "fits"
    except torch.OutOfMemoryError as error:
        answer["plain"] = f"fails: {str(error)[:120]}"
    return answer


def part(args: argparse.Namespace) -> None:
    """One part, in this process: leaves a file."""
    sys.path.insert(0, str(FOLDER))
    gpu = Cpu() if args.device == "cpu" else Gpu()
    name, _, way = args.part.partition(".")
    alone: dict[str, Callable[[argparse.Namespace, Gpu], dict[str, Any]]] = {"checks": checks, "told": told, "tenth": tenth}
    answer = alone[name](args, gpu) if name in alone else trained(args, gpu, name, way)
    (args.out / f"{args.part}.json").write_text(json.dumps({**answer, "about": gpu.about()}, indent=1))


def run(args: argparse.Namespace, name: str, limit: float) -> dict[str, Any]:
    """A part in a process of its own: what it left, or why there is nothing."""
    path, log = args.out / f"{name}.json", args.out / f"{name}.log"
    path.unlink(missing_ok=True)
    words = [sys.executable, __file__, "--part", name, "--out", str(args.out), "--device", args.device, "--steps", str(args.steps)]
    start = time.perf_counter()
    with log.open("w") as file:
        try:
            # Tiny models only show that the script runs, however busy the machine is.
            timeout = None if args.tiny else limit
            code = subprocess.run(words + ["--tiny"] * args.tiny, stdout=file, stderr=file, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            return {"failed": f"took more than {limit:.0f} s"}
    if not path.exists():
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return {"failed": f"exit {code}: {last[-1][:300] if last else ''}"}
    return {**json.loads(path.read_text()), "wall": time.perf_counter() - start}


def gb(count: float | None) -> str:
    return "" if count is None else f"{count / 1e9:.2f}" if count > 1e8 else f"{count / 1e9:.4f}"


def tables(found: dict[str, dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    about = next((one["about"] for one in found.values() if "about" in one), None)
    if about:
        lines += [f"{about['device']}, {gb(about['memory'])} GB; torch {about['torch']}, CUDA {about['cuda']}", ""]
    if "equal" in found.get("checks", {}):
        one = found["checks"]
        lines += [f"Bits: {one['equal']} loops equal to eager PyTorch's, {len(one['different'])} different.", ""]
        lines += [f"- {words}" for words in one["different"] + one["above"]] + [""]
    if "rows" in found.get("told", {}):
        lines += ["| memory, GB | told live | requested | allocated | told reserved | reserved |", "|---:|---:|---:|---:|---:|---:|"]
        columns = ("budget_bytes", "live_bytes", "requested", "allocated", "reserved_bytes", "reserved")
        for row in found["told"]["rows"]:
            row = {**row, "budget_bytes": min(row["budget_bytes"], row["live_bytes"])}
            lines.append("| " + " | ".join(gb(row.get(column)) for column in columns) + " |")
        lines.append("")
    if "limit" in found.get("tenth", {}):
        one = found["tenth"]
        words = f"In a tenth of the memory, {gb(one['limit'])} GB: plain PyTorch {one['plain']}; ours trains, losses {one['ours']}"
        lines += [f"{words}, {gb(one.get('reserved', one['requested']))} GB at most.", ""]
    for model in MODELS:
        rows = {name.partition(".")[2]: one for name, one in found.items() if name.startswith(f"{model}.") and "tokens/s" in one}
        if rows:
            lines += [f"{model}, in bf16, whole training steps:", "", "| way | tokens/s | requested, GB | allocated | reserved | told live | told reserved | recomputed | first step, s |"]
            lines += ["|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
        for way, one in rows.items():
            sizes = [gb(one.get(key)) for key in ("requested", "allocated", "reserved", "live_bytes", "reserved_bytes")]
            lines.append(f"| {way} | {one['tokens/s']:.0f} | {' | '.join(sizes)} | {one.get('recomputed_kernels', '')} | {one['first']:.1f} |")
        lines.append("")
    failed = {name: one.get("failed") or one.get("left out") for name, one in found.items() if "failed" in one or "left out" in one}
    return lines + [f"- {name}: {words}" for name, words in failed.items()]


def misses(found: dict[str, dict[str, Any]]) -> list[str]:
    """What the aims ask for and was not measured."""
    missed = [f"{name} {one['failed']}" for name, one in found.items() if "failed" in one]
    missed += [f"other bits: {words}" for words in found.get("checks", {}).get("different", [])]
    rows = {f"told.{i}": row for i, row in enumerate(found.get("told", {}).get("rows", []))} | found
    for name, one in rows.items():
        if "live_bytes" not in one or "requested" not in one:
            continue
        if one["requested"] > one["budget_bytes"]:
            missed.append(f"{name}: {gb(one['requested'])} GB in a budget of {gb(one['budget_bytes'])}")
        if abs(one["requested"] - one["live_bytes"]) > 0.01 * one["live_bytes"]:
            missed.append(f"{name}: told {gb(one['live_bytes'])} GB, measured {gb(one['requested'])}")
        if one.get("reserved") and one["reserved"] > one["reserved_bytes"]:
            missed.append(f"{name}: told {gb(one['reserved_bytes'])} GB reserved, measured {gb(one['reserved'])}")
    for model in MODELS:
        plenty, half = (found.get(f"{model}.{way}", {}).get("tokens/s") for way in ("ours-plenty", "ours-half"))
        if plenty and half and half < AIM * plenty:
            missed.append(f"{model}: {half / plenty:.2f} of the tokens/s at half of the activations")
        for way in ("plain", "checkpoint", "knob-0.5", "knob-0.1"):
            other = found.get(f"{model}.{way}", {})
            peak = other.get("requested")
            fits = [one["tokens/s"] for name, one in found.items() if peak and name.startswith(f"{model}.ours") and one.get("requested", 1 << 60) <= peak]
            if peak and max(fits, default=0) < other["tokens/s"]:
                missed.append(f"{model}: at the peak of {way} {max(fits, default=0):.0f} tokens/s, it {other['tokens/s']:.0f}")
    return missed


def everything(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    names = ["checks", "told", "tenth", *(f"{model}.{way}" for model in MODELS for way in WAYS)]
    if args.tiny:
        kept = {"plain", "ours-plenty", "ours-half", "checkpoint", "knob-0.5", "ours-half-host"}
        names = [name for name in names if "." not in name or name.startswith(MODELS[0]) and name.partition(".")[2] in kept]
    if args.only:
        names = [name for name in names if name.startswith(args.only)]
    end, found = time.perf_counter() + args.seconds, {}
    for name in names:
        left = end - time.perf_counter()
        plenty = name.partition(".")[0] + ".ours-plenty"
        if ".ours-" in name and name != plenty and not (args.out / f"{plenty}.json").exists():
            found[name] = {"left out": f"it wants what {plenty} tells"}
        elif left < 5:
            found[name] = {"left out": "no time left"}
        else:
            found[name] = run(args, name, min(left, SECONDS.get(name, args.limit)))
        one = found[name]
        words = one.get("failed") or one.get("left out") or f"{one['wall']:.0f} s"
        print(f"{name}: {words}", flush=True)
        # As far as it has come, in case that it ends here.
        missed = [f"- {words}" for words in misses(found)]
        text = ["# A GPU's memory", "", *tables(found), "", "Missed:" if missed else "No aim is missed.", "", *missed]
        (args.out / "report.md").write_text("\n".join(text) + "\n")
        (args.out / "report.json").write_text(json.dumps(found, indent=1))
    print((args.out / "report.md").read_text())
    raise SystemExit(any("failed" in one for one in found.values()) or bool(found.get("checks", {}).get("different")))


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and tokens/s of ways to train PyTorch models on a GPU.")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "gpu_memory", help="a folder for figures and the report")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script itself")
    parser.add_argument("--seconds", type=float, default=600, help="for all of it")
    parser.add_argument("--limit", type=float, default=90, help="for one way to train one model")
    parser.add_argument("--steps", type=int, default=4, help="steps that are timed")
    parser.add_argument("--only", help="parts whose names begin so")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out.resolve()
    (part if args.part else everything)(args)


if __name__ == "__main__":
    main()
