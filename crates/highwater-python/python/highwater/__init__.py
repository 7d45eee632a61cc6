"""Plans training steps under a memory budget.

A :class:`Problem` says what a step computes, in plain numbers: nodes with seconds, values with bytes.
A :class:`Family` has the plans for it; :meth:`Family.choose` picks the fastest that fits a budget, says
which node runs when, what is freed, what is run again and at which offset each value lies, and proves
it before it answers. No tensor is seen.
"""

from __future__ import annotations

from highwater._errors import InvalidPlan, OverBudget
from highwater._native import (
    Decision,
    Family,
    Floor,
    Holders,
    Instruction,
    Link,
    Plan,
    Problem,
    Traffic,
    __version__,
    verify,
)

__all__ = [
    "Decision",
    "Family",
    "Floor",
    "Holders",
    "Instruction",
    "InvalidPlan",
    "Link",
    "OverBudget",
    "Plan",
    "Problem",
    "Traffic",
    "__version__",
    "verify",
]
