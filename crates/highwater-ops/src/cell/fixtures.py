"""`add_`, `copy_`: what is written to a tensor in place, tensor, value → tensor."""

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


OPERATIONS = {
    "add_": written(lambda held, value: held.add_(value), 1e-6),
    "copy_": written(lambda held, value: held.copy_(value), 0.0),
}
