"""Errors that are raised while `torch.compile` compiles."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo import config
from torch._dynamo.exc import ShortenTraceback

if TYPE_CHECKING:
    from typing_extensions import Self

# Where Dynamo's messages begin to speak to its own developers.
ADVICE = ("\nSet TORCHDYNAMO_VERBOSE=1", "\n  Developer debug context:", "\n For more details about this graph break")


# Those who log what kernels without data raise, and where a graph breaks.
LOGS = ("torch._subclasses.fake_tensor", "torch._dynamo.variables.tensor")


@contextmanager
def unlogged() -> Iterator[None]:
    """Keeps PyTorch from logging what reaches the user as an exception, or is expected."""
    logs = [logging.getLogger(name) for name in LOGS]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, disabled in zip(logs, before, strict=True):
            log.disabled = disabled


class Shortened(ShortenTraceback):
    """An error that reaches the user as it is: Dynamo neither wraps it, nor adds advice about reporting bugs of
    PyTorch, nor shows frames of the compiler."""

    def __init__(self, message: str) -> None:
        ShortenTraceback.__init__(self, message, first_useful_frame=None)

    @property
    def args(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = BaseException.args.__get__(self)  # type: ignore[attr-defined]
        return found

    @args.setter
    def args(self, changed: tuple[Any, ...]) -> None:
        """Ignores what Dynamo adds. The constructor sets the first arguments without this."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo asks while it would compile what it is asked for
    def remove_dynamo_frames(self) -> Self:
        return self if config.verbose else self.with_traceback(None)


@functools.cache
def shortened_kind(kind: type[Exception]) -> type[Exception]:
    """The same kind of error, for a compiler that would wrap others."""
    return type(kind.__name__, (Shortened, kind), {"__module__": kind.__module__})


def while_compiling(kind: type[Exception], message: str) -> Exception:
    """An error for users of code that may run while Dynamo compiles."""
    return shortened_kind(kind)(message)  # type: ignore[arg-type]


def said(error: BaseException) -> str:
    """What an error of somebody else's says, as a part of a sentence."""
    kind, words = type(error).__name__, str(error).strip().rstrip(".")
    return f"{kind}: {words}" if words else kind


def without_advice(message: str) -> str:
    """What Dynamo says to users."""
    for advice in ADVICE:
        message = message.partition(advice)[0]
    return message.rstrip()
