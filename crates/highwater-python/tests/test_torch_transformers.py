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
    for mask in (ones, right, ones, left):
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


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_attention_is_eagers(family: str) -> None:
    settings = {"head_dim": 8} if family == "qwen3" else {}
    eager = model_of(family, **settings)
    expected = trained(eager, eager)
    memory: int | str = "1GiB"
    for _ in range(2):
        torch._dynamo.reset()
        model = model_of(family, **settings)
        backend = highwater.torch.backend(memory, gradients="loss")
        found = trained(model, torch.compile(model, backend=backend, dynamic=False))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        memory = max(report.floor_bytes for report in backend.reports)
