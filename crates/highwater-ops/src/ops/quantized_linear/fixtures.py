"""`quantized_linear` of x, codes and scales, which get no gradient.

Attributes: `nf4` (else signed bytes), `width`. The codes are those that QLoRA's paper lists, two in a byte.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import HALVES, Operation, widen

NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]


def decode(codes: Tensor, scales: Tensor, nf4: bool, width: int) -> Tensor:
    scales = scales.repeat_interleave(64, 1)[:, :width]
    if nf4:
        both = torch.stack((codes >> 4, codes & 15), dim=-1).flatten(1)[:, :width]
        return torch.tensor(NF4)[both.long()] * scales
    return codes.view(torch.int8).float() / 127 * scales


def quantized_linear(op: Operation) -> None:
    op.tolerances = (1e-4, 1e-4)

    def case(x: Tensor, outs: int, nf4: bool) -> None:
        width = x.shape[-1]
        codes = op.numbers.integers(0, 256, outs, (width + 1) // 2 if nf4 else width).to(torch.uint8)
        # As every float type holds them.
        scales = (op.normal(outs, (width + 63) // 64).abs() + 0.1).bfloat16().float()
        weight = decode(codes, scales, nf4, width)
        if x.dtype in HALVES:
            weight = weight.to(x.dtype)
        wide = widen(x).requires_grad_()
        output = F.linear(wide, weight.double())
        grad_output = op.normal(*output.shape).to(x.dtype)
        (grad,) = torch.autograd.grad(output, wide, grad_output.double())
        op.record((x, codes, scales), [output], {"nf4": nf4, "width": width}, grad_output, {0: grad})

    for nf4 in (False, True):
        case(op.normal(5, 7), 3, nf4)
        case(op.normal(2, 3, 151), 37, nf4)
        case(op.normal(64, 9).t(), 5, nf4)
        for dtype in HALVES:
            case(op.normal(9, 130).to(dtype), 33, nf4)


OPERATIONS = {"quantized_linear": quantized_linear}
