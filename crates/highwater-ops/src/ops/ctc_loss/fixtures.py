"""`ctc_loss` of log_softmax(x), targets, input lengths and target lengths, without a reduction.

Attributes: `blank`, `zero_infinity`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch import Operation


def ctc_loss(op: Operation) -> None:
    def case(x: Tensor, targets: Tensor, frames: list[int], labels: list[int], blank: int = 0, zero: bool = False):
        def loss(x: Tensor, *of: Tensor) -> Tensor:
            return F.ctc_loss(x.log_softmax(2), *of, blank=blank, reduction="none", zero_infinity=zero)

        op.case(loss, x, targets, torch.tensor(frames), torch.tensor(labels), blank=blank, zero_infinity=zero)

    def targets(*shape: int, classes: int = 6) -> Tensor:
        return op.numbers.integers(1, classes, *shape)

    case(op.normal(12, 3, 6), targets(3, 4), [12, 12, 12], [4, 4, 4])
    case(op.normal(12, 3, 6), targets(3, 4), [12, 9, 7], [4, 2, 0])
    case(op.normal(12, 3, 6), targets(7), [12, 9, 7], [4, 2, 1])
    # Repeats need a blank between them.
    case(op.normal(9, 2, 4), torch.tensor([[1, 1, 2, 2], [3, 3, 3, 1]]), [9, 9], [4, 4])
    # Too few frames.
    case(op.normal(5, 3, 6), targets(3, 4), [3, 5, 4], [4, 3, 2], zero=True)
    case(op.normal(10, 2, 6), targets(2, 3) - 1, [10, 8], [3, 2], blank=5)
    case(op.normal(60, 2, 40), targets(2, 20, classes=40), [60, 50], [20, 11])
    case(op.normal(3, 10, 6).transpose(0, 1), targets(3, 3), [10, 10, 6], [3, 3, 2])
    x, of = op.normal(4, 2, 5), [targets(2, 4, classes=5), torch.tensor([4, 3]), torch.tensor([2, 4])]
    losses = F.ctc_loss(x.double().log_softmax(2), *of, reduction="none")
    op.record((x, *of), [losses], {"blank": 0, "zero_infinity": False})
    op.halves(
        lambda x, *of: F.ctc_loss(x.log_softmax(2), *of, reduction="none"),
        op.normal(8, 2, 5),
        targets(2, 3, classes=5),
        torch.tensor([8, 7]),
        torch.tensor([3, 2]),
        blank=0,
        zero_infinity=False,
    )


OPERATIONS = {"ctc_loss": ctc_loss}
