"""`square` of x."""

import torch

from pytorch import unary

OPERATIONS = {"square": lambda op: unary(torch.square, op)}
