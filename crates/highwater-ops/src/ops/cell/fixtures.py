"""`add_`, `copy_`, `lerp_`: what is written to a tensor in place, tensor, value → tensor.

Attributes: `weight` of `lerp_`.
"""

from collections.abc import Callable

from torch import Tensor

from pytorch import Operation, widen


def written(forward: Callable[[Tensor, Tensor], Tensor], tolerance: float) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        op.tolerances = (tolerance, tolerance)
        for value in (op.normal(5, 37), op.normal(37, 5).t(), op.normal(1, 37).expand(5, 37)):
            held = op.normal(5, 37)
            op.record((held, value), [forward(widen(held).clone(), widen(value))], {})
        held, value = op.normal(0, 5), op.normal(0, 5)
        op.record((held, value), [forward(widen(held).clone(), widen(value))], {})

    return cases


def lerp_(op: Operation) -> None:
    op.tolerances = (1e-6, 1e-6)
    for weight in (0.0, 0.1, 0.5, 0.999, 1.0):
        held, value = op.normal(5, 37), op.normal(37, 5).t()
        op.record((held, value), [widen(held).clone().lerp_(widen(value), weight)], {"weight": weight})


OPERATIONS = {
    "add_": written(lambda held, value: held.add_(value), 1e-6),
    "copy_": written(lambda held, value: held.copy_(value), 0.0),
    "lerp_": lerp_,
}
