"""What may go wrong beside bad arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highwater._native import Floor


class OverBudget(RuntimeError):
    """No plan fits the budget.

    It is no ``MemoryError``: no memory has been asked for, and code that gives some back and tries
    again would try in vain. A larger budget, or another problem, is what helps.
    """

    __module__ = "highwater"

    budget: int
    """Bytes that were offered."""

    floor: Floor
    """The least that would do, and what sets it."""

    def __init__(self, message: str, budget: int, floor: Floor) -> None:
        super().__init__(message)
        self.budget = budget
        self.floor = floor


class InvalidPlan(ValueError):
    """The verifier found that a plan does not compute its problem within its budget."""

    __module__ = "highwater"
