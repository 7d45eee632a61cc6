"""Methods of Dynamo's that ask us first, while something of ours is compiled."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._dynamo.variables.base import VariableTracker

active = threading.local()
"""`depth`: of contexts in which something of ours is compiled. `random_calls`: what Python's generators have drawn in what
is traced."""


@contextmanager
def branches_as_eager() -> Iterator[None]:
    """Compiles code within this context with eager PyTorch's branches."""
    active.depth = getattr(active, "depth", 0) + 1
    try:
        yield
    finally:
        active.depth -= 1


def is_active() -> bool:
    return getattr(active, "depth", 0) > 0


def instead(kind: Any, name: str, ours: Callable[..., VariableTracker | None]) -> None:
    """Has a method of Dynamo's ask a function of ours before."""
    known, is_inherited = getattr(kind, name), name not in vars(kind)

    @functools.wraps(known)
    def call(self: Any, tx: Any, *args: Any, **kwargs: Any) -> VariableTracker:
        args = (*args, *kwargs.values())
        # A class below may have the method from another base, which comes after this one.
        before = getattr(super(kind, self), name) if is_inherited else functools.partial(known, self)
        answer = ours(functools.partial(before, tx), self, tx, *args) if is_active() else None
        return before(tx, *args) if answer is None else answer

    setattr(kind, name, call)
