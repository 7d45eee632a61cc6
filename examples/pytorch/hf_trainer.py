"""Fine-tunes a GPT-2 with Hugging Face's `Trainer` in half of what it takes above its weights."""

import tempfile

import highwater.torch
import torch
from beside import Run, check, peak_bytes
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

MEMORY = 16 << 20
CONFIG = GPT2Config(
    vocab_size=256, n_positions=64, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
)
DATA = [{"input_ids": ids, "labels": ids} for ids in torch.randint(256, (64, 64))]


def run(memory: int | None) -> Run:
    torch.manual_seed(1)
    model = GPT2LMHeadModel(CONFIG)
    # Unless it is told its loss it warns while it runs, where `torch.compile` would cut the graph.
    model.loss_type = "ForCausalLM"
    if memory is not None:
        # In place, and before: `TrainingArguments(torch_compile_backend=...)` knows none but its own list.
        # Its logits are looked at, and not differentiated.
        backend = highwater.torch.backend(memory, gradients="loss")
        model.compile(backend=backend, dynamic=False, fullgraph=True)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, max_steps=5, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True
        )
        trainer = Trainer(model, args, train_dataset=DATA)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    weights = [p.detach().clone() for p in model.parameters()]
    ids = torch.stack([row["labels"] for row in DATA[:8]])
    batch, tokens = {"input_ids": ids, "labels": ids}, torch.tensor(ids[:, 1:].numel())
    return losses, weights, peak_bytes(model, lambda: trainer.training_step(model, batch, tokens))


check(run(None), run(MEMORY), MEMORY, share=0.5)
