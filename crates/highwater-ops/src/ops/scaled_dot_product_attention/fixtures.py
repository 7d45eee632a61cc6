"""`scaled_dot_product_attention` of q, k, v: [batch, heads, length, width].

Attributes: `is_causal`, `scale` (null: 1/√width), `window` (absent: all). Keys and values may have fewer heads.
A fourth input has the lengths of documents: [batch, count].
"""

import torch

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytorch import Operation


def scaled_dot_product_attention(op: Operation) -> None:
    def case(
        q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None = None, half: bool = False
    ) -> None:
        def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

        add = op.halves if half else op.case
        add(forward, q, k, v, is_causal=causal, scale=scale)

    def windowed(q: Tensor, k: Tensor, v: Tensor, window: int | None, half: bool = False) -> None:
        def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            length = q.shape[2]
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            if window is not None:
                mask = mask.triu(1 - window)
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

        add = op.halves if half else op.case
        add(forward, q, k, v, is_causal=True, scale=None, window=window)

    def documents(
        q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, causal: bool, window: int | None = None, half: bool = False
    ) -> None:
        def forward(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
            position = torch.arange(q.shape[2])
            # How many documents end at a position or before it.
            document = (position[None, :, None] >= lengths.cumsum(1)[:, None, :]).sum(2)
            mask = document[:, :, None] == document[:, None, :]
            if causal:
                mask = mask & (position[:, None] >= position[None, :])
            if window is not None:
                mask = mask & (position[:, None] - position[None, :] < window)
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v, mask[:, None], enable_gqa=True)

        add = op.halves if half else op.case
        add(forward, q, k, v, lengths, is_causal=causal, scale=None, window=window)

    n = op.normal
    for batch, heads, length, width, causal in [
        (1, 2, 1, 16, True),
        (1, 2, 1, 16, False),
        (2, 3, 5, 16, True),
        (2, 3, 5, 16, False),
        (1, 2, 33, 64, True),
        (1, 3, 33, 16, False),
        (1, 2, 130, 16, True),
        (1, 2, 130, 16, False),
    ]:
        case(*(n(batch, heads, length, width) for _ in range(3)), causal)
    for queries, keys in [(1, 33), (5, 33), (33, 5)]:
        case(n(1, 2, queries, 16), n(1, 2, keys, 16), n(1, 2, keys, 16), False)
    case(n(1, 2, 5, 64), n(1, 2, 5, 64), n(1, 2, 5, 64), True, scale=0.25)
    case(n(1, 2, 9, 16) * 30, n(1, 2, 9, 16) * 30, n(1, 2, 9, 16), True)
    # Scores in the thousands: an f32 of that size is off by up to 2e-4, and so is its exponential,
    # relatively.
    op.entries[-1]["tolerances"] = (5e-4, 5e-4)
    fused = n(2, 9, 3, 3, 16)
    case(*(fused[:, :, part].transpose(1, 2) for part in range(3)), True)
    case(n(0, 2, 5, 16), n(0, 2, 5, 16), n(0, 2, 5, 16), True)
    case(n(1, 2, 70, 16), n(1, 2, 70, 16), n(1, 2, 70, 16), True, half=True)
    for heads, shared, length, window in [(4, 2, 33, None), (6, 1, 70, 9), (4, 4, 130, 65), (4, 2, 5, 1)]:
        windowed(n(2, heads, length, 16), n(2, shared, length, 16), n(2, shared, length, 16), window)
    windowed(n(1, 4, 70, 16), n(1, 2, 70, 16), n(1, 2, 70, 16), 33, half=True)
    for heads, shared, causal, window, rows in [
        (2, 2, True, None, [[3, 0, 4], [1, 1, 1]]),
        (4, 2, True, None, [[64, 66], [0, 130]]),
        (2, 1, False, None, [[20, 40, 5], [65, 0, 0]]),
        (2, 2, True, 9, [[30, 7, 20, 8], [1, 2, 3, 4]]),
    ]:
        lengths = torch.tensor(rows)
        length = max(33, int(lengths.sum(1).max()))
        q, k, v = (n(2, count, length, 16) for count in (heads, shared, shared))
        documents(q, k, v, lengths, causal, window)
    documents(n(1, 2, 70, 16), n(1, 2, 70, 16), n(1, 2, 70, 16), torch.tensor([[30, 25]]), True, half=True)


OPERATIONS = {"scaled_dot_product_attention": scaled_dot_product_attention}
