"""`square` of x; its gradient `square_backward` of g and x, differentiated again."""

import torch

from pytorch import Operation, unary

def again(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-5)
    for shape in [(5, 37), (0, 5), (), (13, 7)]:
        op.case(lambda g, x: g * 2 * x, op.normal(*shape), op.normal(*shape))


OPERATIONS = {"square_backward": again, "square": lambda op: unary(torch.square, op)}
