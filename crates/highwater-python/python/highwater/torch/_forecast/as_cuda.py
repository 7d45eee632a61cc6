"""A step for a GPU, traced on a machine that has none: on tensors of the CPU's without bytes, as autograd wants a driver
for CUDA's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from .._device.device import Cuda
from .._plan.roofline import DEVICES, Rates

aten = torch.ops.aten


class Foretold(Cuda):
    """A GPU that is not there. All tensors are taken to be on it."""

    def __init__(self, device: torch.device, rates: Rates) -> None:
        newest = rates in (DEVICES["H100"], DEVICES["H200"])
        super().__init__(device, Answers((9, 0) if newest else (8, 0)))

    def counts(self, tensor: Tensor) -> bool:
        return True


class Answers:
    """What is asked of `torch.cuda` where nothing runs."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self.capability = capability

    def get_device_capability(self, device: torch.device) -> tuple[int, int]:
        return self.capability


def with_attention_of_cuda(module: fx.GraphModule) -> None:
    """Has a graph of Dynamo's compute attention as GPUs do, which hold no matrix of scores."""
    for node in module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention):
        node.target = attention
    module.recompile()


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The kernel that PyTorch takes on CUDA, where that is one of the two that are fused."""
    given = query, key, value
    half = all(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in given)
    single = all(tensor.dtype == torch.float32 for tensor in given)
    size = query.shape[-1]
    if query.dim() != 4 or not (half or single) or size % 8 or value.shape[-1] != size:
        kwargs: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **kwargs)
    if half and attn_mask is None and size <= 256:
        answer: Tensor = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return answer
    if enable_gqa:
        key, value = (tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1) for tensor in (key, value))
    bias = attn_mask
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            bias = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        assert bias is not None
        bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    answer = aten._scaled_dot_product_efficient_attention(query, key, value, bias, wanted, dropout_p, is_causal, scale=scale)[0]
    return answer
