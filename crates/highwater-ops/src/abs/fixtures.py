"""`abs` of x."""

import torch

from pytorch import unary

OPERATIONS = {"abs": lambda op: unary(torch.abs, op)}
