"""Transformers' models: the attention that eager PyTorch runs, also where masks are left out for what they hold."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import highwater.torch
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")

COMMON = dict(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def model_of(family: str, **settings: Any) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**COMMON, **settings})
    model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model.train()


def batches() -> list[dict[str, Tensor]]:
    """Without a mask, with one that masks nothing, and with padding on either side."""
    torch.manual_seed(1)
    ids = torch.randint(3, 97, (3, 12))
    ones = torch.ones_like(ids)
    right, left = ones.clone(), ones.clone()
    right[1, 8:], left[2, :5] = 0, 0
    found = [{"input_ids": ids, "labels": ids}]
    for mask in (ones, right, left):
        found.append({"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return found


def trained(model: nn.Module, call: Any) -> list[Tensor]:
    seen = []
    for batch in batches():
        model.zero_grad()
        loss = call(**batch).loss
        loss.backward()
        seen += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return seen


def test_attention_is_eagers() -> None:
    eager = model_of("qwen3", head_dim=8)
    expected = trained(eager, eager)
    memory: int | str = "1GiB"
    for _ in range(2):
        torch._dynamo.reset()
        model = model_of("qwen3", head_dim=8)
        backend = highwater.torch.backend(memory, gradients="loss")
        found = trained(model, torch.compile(model, backend=backend, dynamic=False))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        memory = max(report.floor_bytes for report in backend.reports)


@pytest.mark.parametrize("wanted", ["output_hidden_states", "output_attentions", "output_router_logits"])
def test_what_hooks_collect_is_in_the_graph(wanted: str) -> None:
    """Transformers installs them when a model is first called."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = {**COMMON, "num_local_experts": 4, "num_experts_per_tok": 2}
    torch.manual_seed(0)
    eager: Any = MixtralForCausalLM(MixtralConfig(**config, attn_implementation="eager")).train()
    model = MixtralForCausalLM(MixtralConfig(**config, attn_implementation="eager")).train()
    model.load_state_dict(eager.state_dict())
    ids = torch.randint(3, 97, (3, 12))
    answers = [call(input_ids=ids, labels=ids, **{wanted: True}) for call in (eager, torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=False))]
    for answer in answers:
        answer.loss.backward()
    collected = [answer[wanted.removeprefix("output_")] for answer in answers]
    assert len(collected[0]) == len(collected[1]) > 0
    assert torch.equal(answers[0].loss, answers[1].loss)
    assert all(torch.equal(a, b) for a, b in zip(*collected, strict=True))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(eager.parameters(), model.parameters(), strict=True) if a.grad is not None)
