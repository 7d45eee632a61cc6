"""`grid_sample` of images and a grid.

Attributes: `mode`, `padding`, `align_corners`.
"""

import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def grid_sample(op: Operation) -> None:
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for align_corners in (False, True):

                def run(x: Tensor, grid: Tensor) -> Tensor:
                    return F.grid_sample(x, grid, mode, padding, align_corners)

                attrs = {"mode": mode, "padding": padding, "align_corners": align_corners}
                op.case(run, op.normal(2, 3, 4, 5), op.normal(2, 6, 7, 2), **attrs)
                op.case(run, op.normal(1, 2, 1, 6), op.normal(1, 2, 3, 2) * 3, **attrs)
            # A grid that shows images as they are, and another half a pixel beside it.
            theta = op.numbers.integers(0, 1, 2, 2, 3).float()
            theta[:, 0, 0] = theta[:, 1, 1] = 1
            theta[1, 0, 2] = 0.25
            grid = F.affine_grid(theta, [2, 3, 4, 4], align_corners=False)
            x, attrs = op.normal(2, 3, 4, 4), attrs | {"align_corners": False}
            seen = F.grid_sample(x.double(), grid.double(), mode, padding, align_corners=False)
            op.record((x, grid), [seen], attrs)
    x, grid = op.normal(2, 3, 4, 4), op.normal(2, 3, 3, 2)
    attrs = {"mode": "bilinear", "padding": "zeros", "align_corners": False}
    op.halves(lambda x, grid: F.grid_sample(x, grid, align_corners=False), x, grid, **attrs)


OPERATIONS = {"grid_sample": grid_sample}
