"""What PyTorch is set to while something is planned or runs."""

from __future__ import annotations

from typing import Any

import torch


def check_modes() -> None:
    """Refuses modes in which nothing would be planned, or in which PyTorch looks at gradients that a plan keeps to itself."""
    stance = getattr(getattr(torch._dynamo.eval_frame, "_stance", None), "stance", "default")
    if torch._dynamo.config.disable or stance in ("force_eager", "eager_on_recompile", "eager_then_compile"):
        how = "torch._dynamo.config.disable, or TORCH_COMPILE_DISABLE" if torch._dynamo.config.disable else f'torch.compiler.set_stance("{stance}")'
        raise RuntimeError(f"torch.compile is turned off ({how}), and without it a step keeps to no memory: turn it on again for step")
    if mode := dispatch_mode():
        raise RuntimeError(
            f"{mode} is on, under which torch.compile compiles nothing, and without it a step keeps to no memory: use it around the model in eager mode"
        )
    if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
        raise RuntimeError(
            "detect_anomaly() looks for NaN in gradients, which step does not return: run the model in eager mode for that, or give it check_nan=False"
        )


def dispatch_mode() -> str | None:
    """The kind of a `TorchDispatchMode` that is on, such as `FlopCounterMode`: torch.compile compiles nothing then."""
    for i in range(torch._C._len_torch_dispatch_stack()):
        mode: Any = torch._C._get_dispatch_stack_at(i)
        if not mode.is_infra_mode() and not mode.ignore_compile_internals():
            # FlopCounterMode has one of its own.
            return type(mode).__name__.lstrip("_")
    return None


def attention_kernels() -> tuple[bool, ...]:
    """Among which kernels `scaled_dot_product_attention` chooses, as `torch.nn.attention.sdpa_kernel` sets: what is
    traced has the choice in it, and Dynamo does not look at it again."""
    of: Any = torch.backends.cuda
    return of.flash_sdp_enabled(), of.mem_efficient_sdp_enabled(), of.math_sdp_enabled(), of.cudnn_sdp_enabled()
