"""`add_scalar`, `sub_scalar`, `mul_scalar`, `div_scalar`, of x and the number `value`."""

from collections.abc import Callable

from torch import Tensor

from pytorch import Operation


def of_number(forward: Callable[[Tensor, float], Tensor]) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        n = op.normal
        for x, value in [
            (n(5, 37), 0.75),
            (n(13, 7).t(), -3.0),
            (n(1, 6).expand(4, 6), 0.1),
            (n(0, 5), 2.0),
            (n(), 1e-3),
        ]:
            op.case(lambda x: forward(x, value), x, value=value)

    return cases


OPERATIONS = {
    "add_scalar": of_number(lambda x, value: x + value),
    "sub_scalar": of_number(lambda x, value: x - value),
    "mul_scalar": of_number(lambda x, value: x * value),
    "div_scalar": of_number(lambda x, value: x / value),
}
