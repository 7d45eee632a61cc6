"""`add`, `sub`, `mul`, `div`, of a and b."""

from collections.abc import Callable

from torch import Tensor

from pytorch import Operation


def binary(forward: Callable[..., Tensor], tolerance: float) -> Callable[[Operation], None]:
    def cases(op: Operation) -> None:
        op.tolerances = (tolerance, 1e-5)
        n, second = op.normal, op.numbers.away_from_zero
        for a, b in [
            ((7, 37), (7, 37)),
            ((2, 5, 37), (37,)),
            ((37,), (2, 5, 37)),
            ((2, 1, 48), (2, 5, 1)),
            ((5, 37), ()),
            ((3, 1, 5, 1), (4, 1, 7)),
            ((1,), (1,)),
            ((0, 5), (5,)),
            ((3, 0, 1), (1, 4)),
        ]:
            op.case(forward, n(*a), second(*b))
        op.case(forward, n(9, 13).t(), second(13, 9))
        op.case(forward, n(6, 20)[1:5, 2:18:3], second(1, 6).expand(4, 6))
        op.case(forward, n(), second(5, 37))
        op.halves(forward, n(7, 37), second(7, 37))

    return cases


OPERATIONS = {
    "add": binary(lambda a, b: a + b, 1e-6),
    "sub": binary(lambda a, b: a - b, 1e-6),
    "mul": binary(lambda a, b: a * b, 1e-6),
    "div": binary(lambda a, b: a / b, 1e-5),
}
