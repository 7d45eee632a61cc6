"""Calls in several threads at once: one traces at a time, and the others do not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._dynamo.convert_frame import compile_lock

from .patches import is_active

tracing = compile_lock
"""Held by who traces, since PyTorch's classes and kernels are changed meanwhile. Dynamo holds it before it calls a backend,
so there is no order in which two could wait for each other."""


class OfThread:
    """PyTorch's flag that something is compiled, which is true in one thread alone. Optimizers in another one would
    compute as they do in a graph, where the last bits differ."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def __bool__(self) -> bool:
        return threading.get_ident() == self._thread


def install() -> None:
    """Has Dynamo set the flag so where something of ours is compiled."""
    compiler = torch.compiler
    known = compiler._compile_session_context

    @contextmanager
    def session() -> Iterator[None]:
        with known():
            if is_active():
                compiler._is_compiling_flag = OfThread()  # type: ignore[assignment]
            yield

    compiler._compile_session_context = session


install()
