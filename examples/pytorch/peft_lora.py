"""LoRA on a small Llama: what is frozen has no gradients, and the memory is what activations take."""

import highwater.torch
import torch
from beside import Run, check, peak_bytes
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

MEMORY = 9 << 20
CONFIG = LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4
)
IDS = torch.randint(256, (5, 8, 64))


def run(memory: int | None) -> Run:
    torch.manual_seed(1)
    model = get_peft_model(
        LlamaForCausalLM(CONFIG), LoraConfig(r=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
    )
    if memory is not None:
        model.compile(backend=highwater.torch.backend(memory), dynamic=False, fullgraph=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for ids in IDS:
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = [p.detach().clone() for p in trained]
    return losses, weights, peak_bytes(model, lambda: model(input_ids=IDS[0], labels=IDS[0]).loss.backward())


check(run(None), run(MEMORY), MEMORY)
