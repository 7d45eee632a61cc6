"""Kernels of CUDA's that have other bits when they run again: sums in whatever order threads come in.

What has them is run once, so that nothing is computed from one sum in the forward and another in the backward.
The list is that of `torch.use_deterministic_algorithms`, by the names that kernels have in graphs, and backwards of
attention and of convolutions, whose libraries choose.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

ALWAYS = {
    "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "_cdist_backward", "_ctc_loss_backward",
    "_cudnn_attention_backward", "_cudnn_ctc_loss", "_efficient_attention_backward", "_embedding_bag_backward",
    "_embedding_bag_dense_backward", "_embedding_bag_per_sample_weights_backward", "_flash_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_fused_attention_overrideable_backward",
    "_upsample_bicubic2d_aa_backward", "_upsample_bilinear2d_aa_backward", "_weight_norm_interface_backward",
    "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "avg_pool3d_backward", "bincount", "convolution_backward",
    "cudnn_convolution_transpose", "embedding_dense_backward", "embedding_renorm", "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward", "grid_sampler_2d_backward", "grid_sampler_3d_backward", "histc", "index_add",
    "index_copy", "index_reduce", "kthvalue", "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
    "max_unpool2d", "max_unpool3d", "median", "mode", "nanmedian", "nll_loss2d_forward", "put", "reflection_pad1d_backward",
    "reflection_pad2d_backward", "reflection_pad3d_backward", "repeat_interleave", "replication_pad1d_backward",
    "replication_pad2d_backward", "replication_pad3d_backward", "scatter_add", "scatter_reduce",
    "upsample_bicubic2d_backward", "upsample_bilinear2d_backward", "upsample_linear1d_backward", "upsample_trilinear3d_backward",
}  # fmt: skip
"""Whatever they are called with. Not all of them always differ; what is here needlessly costs a choice alone."""

OF_FLOATS = {"cumsum", "cumprod", "logcumsumexp"}
"""Those that add up in pieces, of whole numbers exactly."""

WRITING = {"index_put", "_unsafe_index_put", "_index_put_impl", "scatter"}
"""Those that write tensors to places that may be the same."""


def differs(node: fx.Node) -> bool:
    """Whether a kernel may have other bits when it runs again on a GPU."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_bitwise in target.tags:
        return True
    if torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled():
        return False
    name = target._schema.name.removeprefix("aten::").removesuffix("_") if target.namespace == "aten" else ""
    if name == "convolution_backward" and torch.backends.cudnn.deterministic:
        return False
    return name in ALWAYS or (name in OF_FLOATS and is_float(node.meta.get("val"))) or (name in WRITING and writes_tensor(node))


def is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def writes_tensor(node: fx.Node) -> bool:
    """Whether more than one number is written, which of them wins (or in which order they are added) being chance."""
    written = node.args[2] if len(node.args) > 2 and "index_put" in str(node.target) else node.args[-1]
    if not isinstance(written, fx.Node):
        return False
    accumulates = len(node.args) > 3 and node.args[3] is True
    value = written.meta.get("val")
    return accumulates or (isinstance(value, torch.Tensor) and value.numel() > 1)
