"""Trains Hugging Face's GPT-2 (a preset's size, f32, random weights) on random tokens, and times each step.

Prints JSON lines: the memory after importing PyTorch, each step's seconds and loss, and at the end
the median of the steps after the first, with the peak memory.
"""

import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.utils.checkpoint import checkpoint

PRESETS = {
    "gpt2": {},
    "gpt2-nano": {"vocab_size": 256, "n_positions": 256, "n_embd": 128, "n_layer": 5, "n_head": 4,
                  "initializer_range": 0.06, "bos_token_id": 0, "eos_token_id": 0},
}
CHUNK = 256  # rows of logits alive at once with --chunked-loss


def current_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(**values: object) -> None:
    print(json.dumps(values), flush=True)


def plain_loss(model: transformers.GPT2LMHeadModel, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens, labels=tokens).loss


def chunked_loss(model: transformers.GPT2LMHeadModel, tokens: Tensor) -> Tensor:
    """The same loss, never holding more than CHUNK rows of logits."""

    def part(hidden: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model.lm_head(hidden), labels, reduction="sum")

    hidden = model.transformer(input_ids=tokens).last_hidden_state[:, :-1].flatten(0, 1)
    labels = tokens[:, 1:].flatten()
    parts = [
        checkpoint(part, rows, targets, use_reentrant=False)
        for rows, targets in zip(hidden.split(CHUNK), labels.split(CHUNK))
    ]
    return torch.stack(parts).sum() / labels.numel()


def optimize_in_backward(params: list[Tensor], settings: dict) -> None:
    """Updates each parameter as soon as its gradient is there, and frees the gradient."""
    optimizers = {param: torch.optim.AdamW([param], **settings) for param in params}

    def update(param: Tensor) -> None:
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in params:
        param.register_post_accumulate_grad_hook(update)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times training steps of GPT-2 in PyTorch.")
    parser.add_argument("--preset", choices=list(PRESETS), default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4, help="the first warms up and isn't counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--adamw", choices=["fused", "foreach", "loop"], default="fused")
    parser.add_argument("--chunked-loss", action="store_true", help="logits in chunks, computed twice")
    parser.add_argument("--checkpoint", action="store_true", help="recompute each block in backward")
    parser.add_argument("--optimizer-in-backward", action="store_true")
    parser.add_argument("--autocast", action="store_true", help="forward in bfloat16, as torch.autocast has it")
    args = parser.parse_args()
    if args.steps < 2:
        parser.error("--steps must be at least 2: the first isn't counted")
    return args


def main() -> None:
    args = parse()
    report(event="import", torch=torch.__version__, transformers=transformers.__version__,
           rss_mib=round(current_mib(), 1))
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        attn_implementation=args.attention, **PRESETS[args.preset],
    )
    model = transformers.GPT2LMHeadModel(config).float().train()
    if args.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    settings = {
        "lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1,
        "fused": args.adamw == "fused", "foreach": args.adamw == "foreach",
    }
    if args.optimizer_in_backward:
        optimize_in_backward(list(model.parameters()), settings)
        optimizer = None
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **settings)
    compute_loss = chunked_loss if args.chunked_loss else plain_loss

    times = []
    for step in range(args.steps):
        tokens = torch.randint(config.vocab_size, (args.batch, args.seq))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
            loss = compute_loss(model, tokens)
        loss.backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
        times.append(time.perf_counter() - start)
        report(step=step, seconds=round(times[-1], 6), loss=round(loss.item(), 5))
    report(event="end", median_seconds=round(statistics.median(times[1:]), 6), peak_rss_mib=round(peak_mib(), 1))


if __name__ == "__main__":
    main()
