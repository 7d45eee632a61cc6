"""Clipping by the norm of all gradients, cut into nodes: `torch.nn.utils.clip_grad_norm_` to the same bits, but
that each gradient is scaled where it is used, so that parameters may be updated one by one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch.utils._foreach_utils import _has_foreach_support

from .._device.device import Device, device_of
from .._graph.nodes import COST, nbytes

# Bytes that a norm reads in a second, about: it is never dear beside what made the gradient.
READ = 1e10


def norm_of(gradient: Tensor) -> Tensor:
    """The norm of one gradient, by the kernel that PyTorch takes for many."""
    if _has_foreach_support([gradient], gradient.device):
        return torch._foreach_norm([gradient], 2.0)[0]
    norm: Tensor = torch.linalg.vector_norm(gradient, 2.0)
    return norm


class Coefficient:
    """What gradients are multiplied by, of their norms."""

    __name__ = "clip_coefficient"

    def __init__(self, max_norm: float) -> None:
        self.max_norm = max_norm

    def __call__(self, norms: list[Tensor]) -> Tensor:
        total = torch.linalg.vector_norm(torch.stack(norms), 2.0)
        return torch.clamp(self.max_norm / (total + 1e-6), max=1.0)


def scratch_bytes(norms: int, device: Device) -> int:
    """Bytes that the norm of all takes for a while beside so many norms: these once more in one tensor, and a few numbers."""
    return device.rounded(4 * norms) + 8 * device.rounded(4)


def is_one_kind(gradients: Sequence[fx.Node]) -> bool:
    """Whether all are of one device and dtype: others are grouped before their norms are added up."""
    return len({(node.meta["val"].device, node.meta["val"].dtype) for node in gradients}) == 1


def add_coefficient(graph: fx.Graph, gradients: Sequence[fx.Node], max_norm: float) -> fx.Node:
    """The factor for some gradients, in the order of the model's parameters."""
    norms = []
    for gradient in gradients:
        value = gradient.meta["val"]
        norm = graph.call_function(norm_of, (gradient,))
        with value.fake_mode:
            norm.meta = {"val": torch.linalg.vector_norm(value, 2.0), COST: (nbytes(value) / READ, 0)}
        norms.append(norm)
    last = norms[-1].meta["val"]
    made = graph.call_function(Coefficient(max_norm), (norms,))
    with last.fake_mode:
        made.meta = {"val": torch.empty_like(last), COST: (1e-6, scratch_bytes(len(norms), device_of([last])))}
    return made
