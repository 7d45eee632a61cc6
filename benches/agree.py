#!/usr/bin/env python3
"""Whether `plan` and `train` agree, on random small models. Needs only Python.

    cargo build --release
    benches/agree.py                          # 500 models
    benches/agree.py --models 20 --seed 7     # the first 20 of another seed
    benches/agree.py --only 17                # model 17 again, told in commands, its files left

Of each model `plan --json` is asked for the floor. Then some steps are trained with the same flags at the
floor, and at 1.02, 1.1, 1.5 and 4 times it: nothing may be refused, no process may take more than its
budget (by the system's count and by the program's own), and all runs must come to the same bits. One MiB
under the floor, `train` must end with exit code 3 before it leaves anything behind. The last lines count;
the exit code is 1 if anything was wrong. `--work FOLDER` should be on a disk if tiers are to use one.
"""

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launch import launch

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
TIMES = [1.0, 1.02, 1.1, 1.5, 4.0]
PLENTY = 1 << 30


def tensors(config: dict) -> dict[str, list[int]]:
    """The shapes of a GPT-2's weights, as Hugging Face names them."""
    width, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    shapes = {"wte.weight": [config["vocab_size"], width], "wpe.weight": [config["n_positions"], width]}
    for layer in range(config["n_layer"]):
        parts = {
            "ln_1": [width],
            "attn.c_attn": [width, 3 * width],
            "attn.c_proj": [width, width],
            "ln_2": [width],
            "mlp.c_fc": [width, inner],
            "mlp.c_proj": [inner, width],
        }
        for name, shape in parts.items():
            shapes[f"h.{layer}.{name}.weight"] = shape
            shapes[f"h.{layer}.{name}.bias"] = shape[-1:]
    return shapes | {"ln_f.weight": [width], "ln_f.bias": [width]}


def write_weights(path: Path, config: dict, numbers: random.Random) -> None:
    pool = array("f", (numbers.gauss(0, 0.02) for _ in range(4099)))
    if sys.byteorder == "big":
        pool.byteswap()
    pool, header, data = pool.tobytes(), {}, bytearray()
    for name, shape in tensors(config).items():
        count = 4
        for extent in shape:
            count *= extent
        header["transformer." + name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [len(data), len(data) + count],
        }
        data += (pool * (count // len(pool) + 1))[:count]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_tokenizer(path: Path, count: int, numbers: random.Random) -> None:
    """A byte-level BPE of about so many tokens, as the `tokenizers` library reads it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    vocabulary, merges = {letters[byte]: byte for byte in range(256)}, []
    grown = [letters[byte] for byte in b" abcdefghijklmnopqrstuvwxyz"]
    while len(vocabulary) < count:
        left, right = numbers.choice(grown), numbers.choice(grown[:400])
        if left + right not in vocabulary and len(left + right) < 12:
            vocabulary[left + right] = len(vocabulary)
            merges.append(f"{left} {right}")
            grown.append(left + right)
    bytes_as_letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": bytes_as_letters,
        "post_processor": None,
        "decoder": bytes_as_letters,
        "model": {"type": "BPE", "unk_token": None, "vocab": vocabulary, "merges": merges},
    }
    path.write_text(json.dumps(tokenizer))


def write_text(path: Path, count: int, numbers: random.Random) -> None:
    words = ["".join(numbers.choices("etaoinshrdlu", k=numbers.randint(1, 9))) for _ in range(3000)]
    text = " ".join(numbers.choices(words, k=count // 5))
    path.write_text(text[:count])


def write_tokens(path: Path, count: int, vocabulary: int, numbers: random.Random) -> None:
    tokens = array("H", (numbers.randrange(vocabulary) for _ in range(count)))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())


def model(folder: Path, numbers: random.Random) -> list[str]:
    """Makes the files of a random model; answers the flags that train it."""
    pick, chance = numbers.choice, numbers.random
    kind = pick(["guide", "text", "text", "tokenizer", "tokenizer", "tokens", "tokens"])
    tokens = pick([300, 1000, 8000, 50257]) if kind == "tokenizer" else pick([256, 256, 300, 1000])
    heads = pick([1, 2, 3, 4])
    width = heads * pick([4, 8, 16, 24, 28, 32, 64])
    width = min(width, 48) // heads * heads if tokens > 8000 else width
    config = {
        "model_type": "gpt2",
        "vocab_size": tokens + pick([0, 0, 1, 47]) if kind == "tokenizer" else tokens,
        "n_positions": pick([64, 128, 200]),
        "n_embd": width,
        "n_layer": pick([1, 1, 2, 3, 4, 6]),
        "n_head": heads,
        "n_inner": pick([None, None, width, 3 * width + 1]),
        "activation_function": pick(["gelu_new", "gelu", "relu"]),
    }
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config))
    write_weights(folder / "model/model.safetensors", config, numbers)
    batch, seq = numbers.randint(1, 8), pick([numbers.randint(2, 64), config["n_positions"]])
    accumulate, steps = pick([1, 1, 2, 2, 3]), pick([3, 4, 6])
    flags = ["--model", "model", "--batch", str(batch), "--seq", str(seq), "--steps", str(steps)]
    flags += ["--accumulate", str(accumulate), "--threads", pick("12"), "--lr", "1e-3"]
    flags += ["--seed", str(numbers.randrange(100)), "--order", pick(["sequential", "shuffled"])]
    flags += ["--clip", pick(["0.5", "5"])] if chance() < 0.5 else []
    flags += ["--dropout", pick(["0.1", "0.3"])] if chance() < 0.4 else []
    flags += ["--optimizer", "sgd", "--momentum", pick(["0", "0.9"])] if chance() < 0.25 else []
    flags += ["--policy", "recompute"] if chance() < 0.1 else []
    needed = 12 * batch * (seq + 1) * accumulate
    if kind in ("text", "tokenizer"):
        write_text(folder / "data.txt", needed * 8 + pick([2000, 100_000, 1_500_000]), numbers)
        flags += ["--data", "data.txt"]
    if kind == "tokenizer":
        write_tokenizer(folder / "tokenizer.json", tokens, numbers)
        flags += ["--tokenizer", "tokenizer.json"]
    if kind == "tokens":
        write_tokens(folder / "data.bin", needed + pick([1000, 200_000]), config["vocab_size"], numbers)
        flags += ["--data", "data.bin"]
    flags += ["--held-out", pick(["0.1", "0.3"])] if chance() < 0.5 else []
    return flags + tiers(folder, numbers)


def tiers(folder: Path, numbers: random.Random) -> list[str]:
    flags = []
    if numbers.random() < 0.25:
        (folder / "spill").mkdir()
        flags += ["--disk", f"spill={numbers.choice([16, 64])}MiB"]
    if numbers.random() < 0.2:
        flags += ["--host-memory", f"{numbers.choice([1, 4, 16])}MiB"]
    return flags


def digest(run: Path) -> str:
    """What a run came to: its losses, and its weights."""
    whole = hashlib.sha256((run / "final/model.safetensors").read_bytes())
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        whole.update(repr((record["step"], record["loss"], record["grad_norm"])).encode())
    # Rounded, the held-out losses stand in the log.
    lines = (run / "run.log").read_text().splitlines()
    whole.update("".join(line.split("held-out")[-1] for line in lines if "held-out" in line).encode())
    return whole.hexdigest()


class Case:
    """One model, and what is wrong with it."""

    def __init__(self, index: int, args: argparse.Namespace):
        self.index, self.program, self.told = index, args.program.resolve(), args.only is not None
        self.folder = Path(tempfile.mkdtemp(prefix=f"agree-{index}-", dir=args.work))
        self.wrong: list[str] = []
        self.runs = self.refused = self.over = 0
        self.spare = PLENTY
        self.flags = model(self.folder, random.Random(args.seed * 1_000_003 + index))

    def call(self, words: list[str]) -> tuple[int, str, str, int]:
        """Exit code, what was said on each stream, and the most memory, of the program."""
        if self.told:
            print(f"in {self.folder}: highwater {' '.join(words)}", flush=True)
        said, news = self.folder / "said", self.folder / "news"
        with open(said, "w") as out, open(news, "w") as err:
            code, taken = launch(self.program, words, self.folder, out, err)
        return code, said.read_text(), news.read_text(), taken

    def plan(self) -> int:
        code, said, news, _ = self.call(["plan", *self.flags, "--memory", f"{PLENTY}", "--json"])
        if code != 0:
            self.wrong.append(f"plan ended with {code}: {news.strip()}")
            return 0
        return json.loads(said)["floor_bytes"]

    def train(self, memory: int) -> str | None:
        out = self.folder / "run"
        code, _, news, taken = self.call(["train", *self.flags, "--memory", f"{memory}", "--out", "run"])
        self.runs += 1
        if code != 0:
            self.refused += code == 3
            self.wrong.append(f"train at {memory} ended with {code}: {news.strip()[-600:]}")
        else:
            self.spare = min(self.spare, memory - taken)
            if taken > memory:
                self.over += 1
                self.wrong.append(f"train at {memory} took {taken}, {taken - memory} too much")
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()] if code == 0 else []
        for key in ("planned_process_bytes", "peak_rss_bytes"):
            most = max((record[key] for record in records), default=0)
            if most > memory:
                self.wrong.append(f"train at {memory}: {key} is {most}")
        found = digest(out) if code == 0 else None
        shutil.rmtree(out, ignore_errors=True)
        return found

    def below(self, memory: int) -> None:
        """A budget too small is refused before anything happens, in no more than it."""
        code, _, news, taken = self.call(["train", *self.flags, "--memory", f"{memory}", "--out", "run"])
        if code != 3 or "step 1" in news:
            self.wrong.append(f"train at {memory}, 1 MiB under the floor, ended with {code}: {news.strip()[-600:]}")
        if (self.folder / "run").exists():
            self.wrong.append("what was refused left a folder behind")
        if taken > memory:
            self.wrong.append(f"refusing {memory} took {taken}, {taken - memory} too much")

    def check(self) -> "Case":
        floor = self.plan()
        if floor:
            found = {self.train(int(floor * times)) for times in TIMES} - {None}
            if len(found) > 1:
                self.wrong.append(f"the bits differ: {len(found)} results")
            self.below(floor - MIB)
        if not self.told:
            shutil.rmtree(self.folder, ignore_errors=True)
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether plan and train agree.")
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="begin with this model")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time")
    parser.add_argument("--only", type=int, help="this model alone")
    parser.add_argument("--work", type=Path, help="where its files lie meanwhile")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/highwater")
    args = parser.parse_args()
    indices = range(args.first, args.first + args.models) if args.only is None else [args.only]
    runs = refused = over = wrong = 0
    spare = PLENTY
    with ThreadPoolExecutor(args.jobs) as pool:
        for case in pool.map(lambda index: Case(index, args).check(), indices):
            runs, refused, over = runs + case.runs, refused + case.refused, over + case.over
            wrong, spare = wrong + bool(case.wrong), min(spare, case.spare)
            for line in case.wrong:
                print(f"model {case.index} ({' '.join(case.flags)})\n  {line}", flush=True)
    print(f"{len(indices)} models, {runs} runs: {refused} refused, {over} over budget, {wrong} models wrong")
    print(f"the nearest that a run came to its budget: {spare} bytes below it")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
