"""Exports small models of transformers with `highwater export`, and has transformers read the GGUF files.

    cargo build --release && pip install torch transformers gguf accelerate
    python examples/gguf/check.py [--program target/release/highwater]

For each family that transformers reads from GGUF: a folder with random weights and a byte-level tokenizer, made by the
libraries themselves; `highwater export` as F32, F16, BF16 and Q8_0; the logits of the model in the file beside those
of the folder; texts as tokens by the tokenizer in the file beside those by the folder's. A Llama with pieces of
sentences, as Llama 2 has them, is read for its tokens alone.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

SHAPE = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 0,
         "eos_token_id": 1, "pad_token_id": None}
# Settings that transformers does not read from GGUF have its defaults.
FAMILIES = {
    "gpt2": {"vocab_size": 384, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 1024, "bos_token_id": 0,
             "eos_token_id": 1},
    "llama": {**SHAPE, "tie_word_embeddings": False},
    "mistral": {**SHAPE, "sliding_window": None},
    "qwen2": {**SHAPE, "tie_word_embeddings": True},
    "qwen3": {**SHAPE, "head_dim": 128},
    "phi3": {**SHAPE, "vocab_size": 32064},
    "gemma2": {**SHAPE, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 16},
    "gemma3_text": {**SHAPE, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 16, "num_hidden_layers": 6},
}
# How far logits may be off, as a share of the largest.
BOUNDS = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2, "q8_0": 5e-2}
TEXTS = ["Memory is what runs out first.", "  spaces\tand\nlines 12345", "naïve café — 日本語", "it's they'll WE'RE"]


def byte_level() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SHAPE["vocab_size"], special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def sentences() -> PreTrainedTokenizerFast:
    """Words with their space before them, and bytes for what has no token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=SHAPE["vocab_size"], special_tokens=special, show_progress=False,
                                  limit_alphabet=60)
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def logits(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default="target/release/highwater")
    program = parser.parse_args().program
    transformers.utils.logging.set_verbosity_error()
    tokens = torch.arange(96).mul(37).remainder(384).view(2, 48)
    with tempfile.TemporaryDirectory() as work:
        for i, (family, fields) in enumerate(FAMILIES.items()):
            # transformers goes by the name that a file has from its folder, and has no Mistral of that name.
            folder = Path(work) / f"model-{i}"
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
            model.save_pretrained(folder)
            tokenizer = byte_level()
            tokenizer.save_pretrained(folder)
            expected = logits(model, tokens)
            # By itself: nothing is known but what it says.
            files = Path(work) / f"files-{i}"
            files.mkdir()
            told = []
            for dtype, bound in BOUNDS.items():
                out = files / f"{dtype}.gguf"
                subprocess.run([program, "export", folder, "--out", out, "--dtype", dtype], check=True,
                               stdout=subprocess.DEVNULL)
                read = AutoModelForCausalLM.from_pretrained(files, gguf_file=out.name, dtype=torch.float32)
                off = ((logits(read, tokens) - expected).abs().max() / expected.abs().max()).item()
                assert off < bound, (family, dtype, off)
                told.append(f"{dtype} {off:.1e}")
            read = AutoTokenizer.from_pretrained(files, gguf_file="f16.gguf")
            for text in TEXTS:
                ids = [x(text, add_special_tokens=False).input_ids for x in (tokenizer, read)]
                assert ids[0] == ids[1], (family, text, ids)
            print(f"{family}: off by {', '.join(told)}; the same tokens")

        folder = Path(work) / f"model-{list(FAMILIES).index('llama')}"
        tokenizer = sentences()
        tokenizer.save_pretrained(folder)
        subprocess.run([program, "export", folder, "--out", folder / "sentences.gguf"], check=True)
        read = AutoTokenizer.from_pretrained(folder, gguf_file="sentences.gguf")
        for text in TEXTS:
            ids = [x(text, add_special_tokens=False).input_ids for x in (tokenizer, read)]
            assert ids[0] == ids[1], (text, ids)
        print("pieces of sentences: the same tokens")


if __name__ == "__main__":
    main()
