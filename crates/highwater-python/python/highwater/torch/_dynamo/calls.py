"""What is true while something is called that was compiled with a backend."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from .._messages.locations import level_of_user
from . import conds as conds, random_branches as random_branches, python_draws as python_draws, avoided_breaks as avoided_breaks  # which change what Dynamo traces
from .modes import dispatch_mode
from .patches import branches_as_eager

# Something is compiled so often at most, for what changes and cannot be an input of its graph.
SIZES = 64

LIMITS = ("recompile_limit", "accumulated_recompile_limit")


class NothingPlanned(UserWarning):
    """Something was compiled with a backend, and nothing of it was planned: it runs without a bound."""


class Calling(Protocol):
    """A backend, as its calls see it."""

    @property
    def graph_breaks(self) -> str: ...

    _ran: bool
    """Whether something ran in the call that is under way."""

    _model: weakref.ref[torch.nn.Module] | None
    """The module that is called, if it is one."""

    def _failed(self, error: BaseException, call: Any, args: Any, kwargs: Any) -> None:
        """An error ends the call: may raise another one in its place."""


class Around:
    """Makes the context that Dynamo enters around each call. It can be pickled, because `torch.save` pickles it with
    a compiled model."""

    def __init__(self, backend: Calling, static: bool) -> None:
        self.backend, self.static = backend, static

    def __call__(self) -> Call:
        return Call(self.backend, self.static)


class Call:
    """A call of what was compiled with a backend. `static`: whether it was with `dynamic=False`."""

    def __init__(self, backend: Calling, static: bool) -> None:
        self._backend, self._static = backend, static

    def __enter__(self) -> None:
        self._backend._ran = False
        model = module_of(called().get("fn"))
        self._backend._model = None if model is None else weakref.ref(model)
        self._branches = branches_as_eager()
        self._branches.__enter__()
        self._restore = config()._make_closure_patcher(**settings())()
        # A frame that Dynamo gives up is never planned again. An error leaves it as it is.
        whole = self._backend.graph_breaks == "refuse" and not isinstance(model, torch.nn.RNNBase)
        self._whole = torch._dynamo.error_on_graph_break(True) if whole else None
        if self._whole:
            self._whole.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._whole:
            self._whole.__exit__(None, None, None)
        self._branches.__exit__(None, None, None)
        # What `dynamic=False` changed has been restored before.
        automatic = config().automatic_dynamic_shapes
        self._restore()
        if self._static:
            config().automatic_dynamic_shapes = automatic
        # Dynamo tells its contexts of no error.
        error = sys.exc_info()[1]
        if error is not None:
            call = called()
            self._backend._failed(error, call.get("fn"), call.get("args", ()), call.get("kwargs", {}))
        elif not self._backend._ran:
            mode = dispatch_mode()
            why = f"It skips everything while {mode} is on." if mode else "It skips nn.RNN, nn.LSTM, nn.GRU, modules with backward hooks, and code under torch.compiler.disable."
            message = f"torch.compile compiled no part of this model, so it runs without a memory bound. {why} fullgraph=True shows why."
            warnings.warn(message, NothingPlanned, stacklevel=level_of_user())


def called(frames: int = 5) -> dict[str, Any]:
    """What Dynamo's function around a call knows of it, if that is who asked: so many frames below at most."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(frames):
        if frame is None or frame.f_code.co_name == "compile_wrapper":
            break
        frame = frame.f_back
    return frame.f_locals if frame is not None and frame.f_code.co_name == "compile_wrapper" else {}


def passed() -> list[torch.Tensor]:
    """The tensors that the call under way was given, whether it uses them or not."""
    call = called(sys.getrecursionlimit())
    given = call.get("args"), call.get("kwargs")
    return [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def module_of(call: Any) -> torch.nn.Module | None:
    """The module whose method is called, if that is known."""
    held = getattr(call, "__self__", None) or inspect.getclosurevars(call).nonlocals.get("fn") if inspect.isroutine(call) else call
    return held if isinstance(held, torch.nn.Module) else getattr(held, "__self__", None) if inspect.ismethod(held) else None


def config() -> Any:
    return torch._dynamo.config


def settings() -> dict[str, Any]:
    """Dynamo's settings while it compiles for a plan."""
    wanted: dict[str, Any] = {name: max(getattr(config(), name), SIZES * (1 + 3 * i)) for i, name in enumerate(LIMITS)}
    # What is not compiled runs without a bound: that is an error, also where others would be content.
    wanted |= {"fail_on_recompile_limit_hit": True, "suppress_errors": False, "ignore_logging_functions": logs()}
    # Sizes and numbers that change become inputs of one graph, of which each size has a plan, with `dynamic=False` too.
    wanted |= {"automatic_dynamic_shapes": True, "specialize_float": False, "specialize_int": False, "allow_unspec_int_on_nn_module": True}
    # Some calls, such as `addcmul_`, would be written out as others that round otherwise.
    wanted["enable_dynamo_decompositions"] = False
    # Hooks may come and go.
    wanted["skip_nnmodule_hook_guards"] = False
    # Sizes that had a graph of their own before keep it.
    wanted["automatic_dynamic_exclusion_guard"] = True
    return {name: value for name, value in wanted.items() if hasattr(config(), name)}


def around_calls(caller: FrameType, backend: Calling) -> None:
    """Has Dynamo be within a context whenever it calls what it compiles with a backend.

    Those that it is given say so by `backend_ctx_ctor`. `torch.compile` gives it a wrapper in their place,
    which hands on nothing but questions: `caller` is who asked one.
    """
    for name in ("self", "backend"):
        wrapper = caller.f_locals.get(name)
        if isinstance(wrapper, torch._TorchCompileWrapper):
            wrapper.__dict__["backend_ctx_ctor"] = Around(backend, caller.f_locals.get("dynamic", getattr(wrapper, "dynamic", None)) is False)


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
