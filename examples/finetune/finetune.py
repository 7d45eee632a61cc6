"""Fine-tunes small models of transformers with `highwater`, fully, with LoRA and with QLoRA, and compares.

    cargo build --release && pip install torch transformers peft
    python examples/finetune/finetune.py [--program target/release/highwater] [--memory 128MiB] [--folder DIR]

Makes folders of a Llama and a Qwen 2 with random weights, a tokenizer and a chat template by the libraries themselves,
and a small set of conversations. Each model is trained for 20 steps by `highwater train`, and for as many by
transformers (and PEFT) on the same data in the same order: losses must agree to 1e-3. What came of it is loaded by
transformers and PEFT: the loss that they find on what was held out must be the one that `highwater` told, and the
logits of `highwater merge` those of the adapters. For QLoRA the frozen weights are rounded here as NF4 rounds them.
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

import peft
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

STEPS, SEQ, RECORDS, HELD_OUT = 20, 96, 40, 4
ADAMW = {"lr": 3e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
TEMPLATE = """{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}
        {{- '\\n' -}}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
SHAPE = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
CONFIGS = {"llama": LlamaConfig(**SHAPE), "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True)}
# The values of NF4 (Dettmers et al. 2023).
NF4 = [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803, 0.1609302,
       0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0]


def conversations() -> list[dict]:
    places = ["arena", "spool", "plan", "tape", "batch"]
    records = []
    for i in range(RECORDS):
        place, count = places[i % len(places)], 3 + i * 7 % 20
        turns = [{"role": "user", "content": f"How many pages has the {place}?"},
                 {"role": "assistant", "content": f"It has {count} pages."}]
        if i % 3 == 0:
            turns += [{"role": "user", "content": "And twice as many?"}, {"role": "assistant", "content": f"{2 * count}."}]
        records.append({"messages": turns})
    return records


def make(folder: Path) -> None:
    records = conversations()
    (folder / "chats.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SHAPE["vocab_size"], show_progress=False,
                                  special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([turn["content"] for record in records for turn in record["messages"]], trainer)
    for name, config in CONFIGS.items():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
        fast.chat_template = TEMPLATE
        fast.save_pretrained(folder / name)


class Data:
    def __init__(self, folder: Path, model: str) -> None:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / model)
        self.examples = []
        for line in (folder / "chats.jsonl").read_text().splitlines():
            found = tokenizer.apply_chat_template(json.loads(line)["messages"], return_dict=True,
                                                  return_assistant_tokens_mask=True)
            ids, mask = (torch.tensor(found[key])[:SEQ] for key in ("input_ids", "assistant_masks"))
            self.examples.append((ids[None], torch.where(mask.bool(), ids, -100)[None]))

    def train(self, step: int):
        return self.examples[step % (RECORDS - HELD_OUT)]

    def held_out(self):
        return self.examples[RECORDS - HELD_OUT :]


def loss_of(model: torch.nn.Module, example) -> torch.Tensor:
    ids, labels = example
    logits = model(input_ids=ids).logits
    return F.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100)


def held_out(model: torch.nn.Module, data: Data) -> float:
    with torch.no_grad():
        found = [(loss_of(model, example), int((example[1][0, 1:] != -100).sum())) for example in data.held_out()]
    return float(sum(loss * count for loss, count in found) / sum(count for _, count in found))


def round_to_nf4(model: torch.nn.Module) -> None:
    values = torch.tensor(NF4)
    for name, parameter in model.named_parameters():
        if re.search(r"(q|k|v|o|gate|up|down)_proj\.weight$", name):
            blocks = parameter.data.reshape(-1, 64)
            scales = blocks.abs().amax(1, keepdim=True)
            nearest = ((blocks / scales)[..., None] - values).abs().argmin(-1)
            parameter.data = (values[nearest] * scales).reshape(parameter.shape)


def losses(folder: Path, name: str, kind: str, data: Data, run: Path) -> tuple[list[float], torch.nn.Module]:
    model = AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32)
    trained = list(model.parameters())
    if kind != "full":
        if kind == "qlora":
            round_to_nf4(model)
        # Adapters begin as drawn by `highwater`: with no step it writes them as they are.
        model = peft.PeftModel.from_pretrained(model, run.with_name(run.name + "-before") / "final", is_trainable=True)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if parameter.dim() > 1]
    plain = [parameter for parameter in trained if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], **ADAMW)
    found = []
    for step in range(STEPS):
        loss = loss_of(model, data.train(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss))
    return found, model


def run_program(program: str, *line: str) -> str:
    done = subprocess.run([program, *line], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)}\n{done.stderr}")
    return done.stdout + done.stderr


def check(what: str, found: float, expected: float, tolerance: float) -> None:
    if not abs(found - expected) <= tolerance * max(abs(expected), 1e-3):
        raise SystemExit(f"{what}: {found}, expected {expected}")


def tune(program: str, memory: str, folder: Path, name: str, kind: str) -> None:
    data, run = Data(folder, name), folder / f"{name}-{kind}"
    flags = ["train", "--model", str(folder / name), "--data", str(folder / "chats.jsonl"), "--memory", memory,
             "--no-packing", "--order", "sequential", "--batch", "1", "--seq", str(SEQ), "--val", f"{HELD_OUT / RECORDS}",
             "--lr", str(ADAMW["lr"]), "--weight-decay", str(ADAMW["weight_decay"]), "--schedule", "constant",
             "--warmup", "0", "--clip", "0"]
    flags += {"full": [], "lora": ["--lora", "4"], "qlora": ["--lora", "4", "--quantize", "nf4"]}[kind]
    if kind != "full":
        run_program(program, *flags, "--steps", "0", "--out", f"{run}-before")
    told = run_program(program, *flags, "--steps", str(STEPS), "--out", str(run))
    expected, model = losses(folder, name, kind, data, run)
    ours = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    for step, pair in enumerate(zip(ours, expected, strict=True)):
        check(f"{run.name}: loss of step {step + 1}", *pair, 1e-3)
    worst = max(abs(a - b) / b for a, b in zip(ours, expected, strict=True))
    after = float(re.search(r"held-out loss after: ([0-9.]+)", told)[1])
    if kind == "full":
        loaded = AutoModelForCausalLM.from_pretrained(run / "final", dtype=torch.float32)
    else:
        base = AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32)
        if kind == "qlora":
            round_to_nf4(base)
        loaded = peft.PeftModel.from_pretrained(base, run / "final")
    check(f"{run.name}: held-out loss as loaded", held_out(loaded, data), after, 1e-3)
    trained = held_out(model, data)
    check(f"{run.name}: held-out loss as trained", trained, after, 5e-3)
    text = PreTrainedTokenizerFast.from_pretrained(run / "final").apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert text == "<|im_start|>user\nHi<|im_end|>\n", text
    if kind == "lora":
        run_program(program, "merge", str(run), "--out", f"{run}-merged")
        merged = AutoModelForCausalLM.from_pretrained(f"{run}-merged", dtype=torch.float32)
        ids = data.train(0)[0]
        with torch.no_grad():
            apart = (merged(input_ids=ids).logits - loaded(input_ids=ids).logits).abs().max()
        assert apart <= 1e-4, apart
    print(f"{run.name}: loss {expected[0]:.4f} -> {expected[-1]:.4f}, held out {after:.4f}; losses agree to {worst:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tunes small models and compares with transformers and PEFT.")
    parser.add_argument("--program", default="target/release/highwater")
    parser.add_argument("--memory", default="192MiB")
    parser.add_argument("--folder", type=Path, help="where everything goes [default: a folder that goes]")
    args = parser.parse_args()
    program = str(Path(args.program).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
        for name in CONFIGS:
            for kind in ("full", "lora", "qlora"):
                tune(program, args.memory, folder, name, kind)


if __name__ == "__main__":
    main()
