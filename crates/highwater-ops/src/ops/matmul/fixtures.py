"""`matmul` of a and b, as `torch.matmul` has it."""

import torch

from pytorch import Operation


def matmul(op: Operation) -> None:
    n = op.normal
    for a, b in [
        ((5, 7), (7, 3)),
        ((37, 48), (48, 19)),
        ((1, 33), (33, 1)),
        ((9, 1), (1, 11)),
        ((3, 513), (513, 5)),
        ((3, 5, 7), (3, 7, 4)),
        ((2, 3, 9, 16), (2, 3, 16, 9)),
        ((2, 5, 7), (7, 3)),
        ((5, 7), (2, 7, 3)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((7,), (7, 5)),
        ((5, 7), (7,)),
        ((7,), (7,)),
        ((0, 5), (5, 3)),
        ((4, 0), (0, 3)),
        ((0, 4, 5), (0, 5, 3)),
    ]:
        op.case(torch.matmul, n(*a), n(*b))
    op.case(torch.matmul, n(17, 13).t(), n(17, 19))
    op.case(torch.matmul, n(13, 17), n(19, 17).t())
    op.case(torch.matmul, n(17, 13).t(), n(19, 17).t())
    op.case(torch.matmul, n(11, 20)[2:9, 3:16], n(13, 22)[:, 1::3])
    op.case(torch.matmul, n(3, 17, 5).transpose(1, 2), n(3, 6, 17).transpose(1, 2))
    heads = [n(2, 9, 3, 8).transpose(1, 2) for _ in range(2)]
    op.case(torch.matmul, heads[0], heads[1].transpose(2, 3))
    op.case(torch.matmul, n(1, 5, 7).expand(3, 5, 7), n(3, 7, 2))
    op.halves(torch.matmul, n(9, 513), n(513, 5))
    op.halves(torch.matmul, n(2, 1, 4, 5), n(3, 5, 6))


OPERATIONS = {"matmul": matmul}
