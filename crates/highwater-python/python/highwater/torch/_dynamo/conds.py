"""`torch.cond` by what eager PyTorch has as a Python value: a number that changes, a size, or a number that is drawn.

Eager PyTorch calls one of the functions then. Dynamo has such a value as a symbol or a tensor once it has changed, and
would trace an operation with both functions: it draws again for the backward, and gives zeros where eager has no gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo import symbolic_convert
from torch._dynamo.utils import specialize_symnode, unpack_iterable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.higher_order_ops import CondHigherOrderVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable

from .._messages.locations import CannotPlan, place_now
from .patches import instead, is_active
from .python_draws import is_of_python, taken

IDENTITY = {"is": True, "is not": False}
NAMES = ("pred", "true_fn", "false_fn", "operands")


def answer_of(tx: Any, value: VariableTracker) -> bool | None:
    """What a value comes to where eager PyTorch has one of Python's, for which the graph is then good. None if it is a tensor."""
    if value.is_python_constant():
        constant = value.as_python_constant()
        return bool(constant) if isinstance(constant, (bool, int, float)) else None
    if isinstance(value, SymNodeVariable):
        symbol: Any = value.sym_num
        truth = symbol if isinstance(symbol, torch.SymBool) else symbol != 0
        return bool(SymNodeVariable(value.proxy, truth).evaluate_expr(tx.output))
    if not isinstance(value, TensorVariable) or not is_of_python(value.proxy):
        return None
    answer = taken(tx, value)
    if answer is None:
        raise CannotPlan(
            f"torch.cond at {place_now()} is by a number that Python's random draws, within a checkpoint, a loop or another "
            "torch.cond. Draw it before the call and pass it in, or compare torch.rand(()) with it"
        )
    return answer


def chosen(tx: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
    """What eager PyTorch's own branch gives. None where it has an operation, too."""
    given = dict(zip(NAMES, args)) | kwargs
    if len(args) + len(kwargs) != len(NAMES) or set(given) != set(NAMES):
        return None
    answer = answer_of(tx, given["pred"].realize())
    if answer is None:
        return None
    branch = given["true_fn" if answer else "false_fn"]
    made: VariableTracker = branch.call_function(tx, unpack_iterable(tx, given["operands"].realize()), {})
    return made


def same(tx: Any, args: Sequence[VariableTracker]) -> bool | None:
    """What `coin is True` comes to, where the coin is a truth of Python's. None for what Dynamo knows itself."""
    truths = [answer_of(tx, value) for value in args if isinstance(value, TensorVariable) and value.dtype is torch.bool]
    constants = [value.as_python_constant() for value in args if value.is_python_constant()]
    if len(constants) != 1 or not isinstance(constants[0], bool) or len(truths) != 1 or truths[0] is None:
        return None
    return truths[0] is constants[0]


def cond_called(known: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    return chosen(tx, args, kwargs)


def formatted(known: Any, self: Any, spec: VariableTracker, flags: int) -> None:
    """Makes the top of a translator's stack a constant, where Dynamo would format the name of a symbol."""
    if not spec.is_python_constant() or spec.as_python_constant():
        self.stack[-1] = specialize_symnode(self.stack[-1])


def install() -> None:
    """Has Dynamo ask here, once for all: it does what it did outside of `branches_as_eager`."""
    instead(CondHigherOrderVariable, "_call_function", cond_called)
    instead(symbolic_convert.InstructionTranslatorBase, "_format_value", formatted)
    handlers: Any = symbolic_convert.compare_op_handlers
    for name in IDENTITY:
        handlers[name] = functools.partial(compared, handlers[name], name)


def compared(known: Any, name: str, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
    answer = same(tx, args) if is_active() else None
    return known(tx, args, kwargs) if answer is None else VariableTracker.build(tx, answer == IDENTITY[name])  # type: ignore[no-any-return]


install()
