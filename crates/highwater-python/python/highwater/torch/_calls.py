"""What is true while something is called that was compiled with a backend."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, ContextManager

import torch
from torch._dynamo.exc import FailOnRecompileLimitHit

from . import _traces as _traces  # which changes what Dynamo traces
from ._branches import branches_as_eager

# A plan for each size of inputs, up to so many.
SIZES = 64

LIMITS = ("recompile_limit", "accumulated_recompile_limit")


class NothingPlanned(UserWarning):
    """Something was compiled with a backend, and nothing of it was planned: it runs without a bound."""


class Call:
    """A call of what was compiled with a backend: a context that Dynamo enters and leaves around it.
    `planned` says whether anything in it was."""

    def __init__(self, planned: Callable[[], bool]) -> None:
        self._planned = planned
        config: Any = torch._dynamo.config
        limits = {name: max(getattr(config, name), SIZES * (1 + 3 * i)) for i, name in enumerate(LIMITS)}
        # What is not compiled runs without a bound: that is an error, also where others would be content.
        bounded = {"fail_on_recompile_limit_hit": True, "suppress_errors": False}
        self._patch = config._make_closure_patcher(**limits, **bounded, ignore_logging_functions=logs())
        self._restore: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self._restore += [entered(branches_as_eager()), self._patch()]

    def __exit__(self, *_: object) -> None:
        self._restore.pop()()
        self._restore.pop()()
        # Dynamo tells its contexts of no error.
        error = sys.exc_info()[1]
        if isinstance(error, FailOnRecompileLimitHit):
            error.args = (
                f"there are plans for as many sizes of inputs as there may be, and what has no plan has no bound: {error.args[0]}. "
                f"Let sizes be symbols (dynamic=None), bring inputs to fewer sizes, or set {LIMITS[0]} and {LIMITS[1]} "
                f"of torch._dynamo.config to more than {SIZES} and {SIZES * 4} before torch.compile.",
            )
        elif error is None and not self._planned():
            message = (
                "nothing of this was planned, and it runs without a bound: torch.compile took no part of it. It skips nn.RNN, nn.LSTM "
                "and nn.GRU, and what torch.compiler.disable or a stance keeps from it; fullgraph=True says why."
            )
            warnings.warn(message, NothingPlanned, stacklevel=level_of_user())


def entered(context: ContextManager[None]) -> Callable[[], None]:
    """Enters a context, and has a function leave it."""
    stack = ExitStack()
    stack.enter_context(context)
    return stack.close


def around_calls(caller: FrameType, around: Callable[[], ContextManager[None]]) -> None:
    """Has Dynamo be within a context whenever it calls what it compiles with a backend.

    Those that it is given say so by `backend_ctx_ctor`. `torch.compile` gives it a wrapper in their place,
    which hands on nothing but questions: `caller` is who asked one.
    """
    for name in ("self", "backend"):
        wrapper = caller.f_locals.get(name)
        if isinstance(wrapper, torch._TorchCompileWrapper):
            wrapper.__dict__["backend_ctx_ctor"] = around


def level_of_user() -> int:
    """The `stacklevel` for a warning of whoever called this: that of the first line that is not PyTorch's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and (level == 1 or "/torch/" in frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def logs() -> set[Any]:
    """What models log with: no reason to cut their graphs. It is left out."""
    names = ("debug", "info", "warning", "error", "log", "warning_once", "info_once", "warning_advice")
    found = {getattr(logging.Logger, name) for name in names if hasattr(logging.Logger, name)}
    return found | torch._dynamo.config.ignore_logging_functions


@contextmanager
def without_logs() -> Iterator[None]:
    """Leaves out what is logged in what is compiled within, and takes branches as eager PyTorch does."""
    with branches_as_eager(), torch._dynamo.config.patch(ignore_logging_functions=logs()):
        yield
