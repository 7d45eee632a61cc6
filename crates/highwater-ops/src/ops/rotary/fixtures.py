"""`rotary` of x, cosines and sines, which get no gradient.

Attribute: `interleaved`. PyTorch's forms are Hugging Face's: `apply_rotary_pos_emb` of Llama, and of GPT-J
where it is interleaved, whose tables hold each angle twice.
"""

import torch
from torch import Tensor

from pytorch import Operation, widen


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def rotate_every_two(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def apply(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    rotated = 2 * cos.shape[-1]
    x, rest = x[..., :rotated], x[..., rotated:]
    if interleaved:
        y = x * cos.repeat_interleave(2, -1) + rotate_every_two(x) * sin.repeat_interleave(2, -1)
    else:
        y = x * torch.cat((cos, cos), -1) + rotate_half(x) * torch.cat((sin, sin), -1)
    return torch.cat((y, rest), dim=-1)


def rotary(op: Operation) -> None:
    def case(x: Tensor, *table: int, interleaved: bool) -> None:
        angles = op.normal(*table).double() * 3
        # As f32 holds them, in both.
        cos, sin = angles.cos().float(), angles.sin().float()
        wide = widen(x).requires_grad_()
        output = apply(wide, cos.double(), sin.double(), interleaved)
        grad_output = op.normal(*output.shape)
        (grad,) = torch.autograd.grad(output, wide, grad_output.double())
        attrs = {"interleaved": interleaved}
        op.record((x, cos, sin), [output], attrs, grad_output, {0: grad})

    for interleaved in (False, True):
        case(op.normal(5, 8), 5, 4, interleaved=interleaved)
        case(op.normal(2, 3, 7, 16), 7, 8, interleaved=interleaved)
        case(op.normal(2, 3, 7, 16), 7, 5, interleaved=interleaved)
        case(op.normal(2, 3, 7, 16), 2, 1, 7, 8, interleaved=interleaved)
        case(op.normal(2, 7, 3, 16).transpose(1, 2), 7, 8, interleaved=interleaved)
        case(op.normal(0, 8), 0, 4, interleaved=interleaved)


OPERATIONS = {"rotary": rotary}
