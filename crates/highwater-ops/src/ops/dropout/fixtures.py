"""`dropout` of x.

PyTorch's definition, with the elements drawn from our stream: its own draws differ from device to
device. Attributes: `p`; `seed` and `offset` of the stream of Philox 4x32-10.
"""

import torch
from torch import Tensor

from pytorch import Operation


def philox(seed: int, offset: int, count: int) -> list[int]:
    """The first words of a stream of Philox 4x32-10, as Salmon et al. (2011) define it."""
    words, low = [], 0xFFFF_FFFF
    for block in range(-(-count // 4)):
        c = [block & low, block >> 32, offset & low, offset >> 32]
        keys = [seed & low, seed >> 32]
        for _ in range(10):
            first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [second >> 32 ^ c[1] ^ keys[0], second & low, first >> 32 ^ c[3] ^ keys[1], first & low]
            keys = [(key + step) & low for key, step in zip(keys, (0x9E3779B9, 0xBB67AE85))]
        words += c
    return words[:count]


def dropout(op: Operation) -> None:
    def case(x: Tensor, p: float, seed: int, offset: int) -> None:
        drawn = torch.tensor(philox(seed, offset, x.numel()), dtype=torch.int64)
        kept = (drawn >= round(p * 2**32)).reshape(x.shape).double()
        scale = 1 / (1 - p) if p < 1 else 0.0
        op.case(lambda x: x * kept * scale, x, p=p, seed=seed, offset=offset)

    for shape, p in [((5, 37), 0.1), ((3, 5, 37), 0.5), ((0, 5), 0.5), ((), 0.3), ((7,), 0.0), ((7,), 1.0)]:
        case(op.normal(*shape), p, 0x1234_5678_9ABC, 3)
    case(op.normal(13, 7).t(), 0.25, 7, 0x1_0000_0001)


OPERATIONS = {"dropout": dropout}
