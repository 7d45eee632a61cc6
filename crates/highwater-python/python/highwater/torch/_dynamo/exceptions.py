"""What a call raises: the user's own exceptions as they are, and refusals in place of Dynamo's."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit, InternalTorchDynamoError
from torch._dynamo.exc import TorchDynamoException, TorchRuntimeError, Unsupported, UserError
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from .._messages.errors import Shortened, said, unlogged, without_advice
from .._messages.locations import LIBRARIES, CannotPlan, is_of_user, shortened
from .calls import LIMITS, SIZES, settings
from .patches import branches_as_eager
from .refusals import code_of, needs_number, no_step, place_of, refuse_functions
from .undone import undone_if_returned, without_kept

# Where Dynamo's words begin in errors that it did not raise.
EXPLAINED = "\n\nfrom user code:\n"

DYNAMO = (FailOnRecompileLimitHit, Unsupported, TorchRuntimeError)

# Breaks of a graph by which Dynamo says that what it traces raises an exception.
RAISING = {
    "Observed exception", "Data-dependent assertion failed (cannot compile partial graph)", "TypeError from user code", "TypeError when making fake tensor call",
    "RuntimeError when making fake tensor call", "Attempted to read undefined local variable", "Attempted to read undefined local variable (implicit)",
    "LOAD_FAST_CHECK on uninitialized variable", "Read uninitialized cell", "Import failure", "Failed to raise exception", "key not found in dict",
    "failed to bind arguments when attempting to inline", "Failed to unpack object for UNPACK_SEQUENCE", "Failed to unpack object for UNPACK_EX",
    "Failed to unpack object for BUILD_LIST_UNPACK", "failed to broadcast when attempting Tensor comparison op", "Indexing list with non-scalar tensor",
    "Missing attribute when running call_method node", "Tensor device mismatch",
}  # fmt: skip

# How Dynamo tells of what PyTorch raises for its caller, where it takes that for an error of its own.
RAISED = ("RuntimeError:", "TypeError:", "ValueError:", "IndexError:")


@contextmanager
def one_graph(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """What is true around a call that Dynamo has to take as one graph. `call`: what was compiled."""
    with branches_as_eager(), unlogged(), torch._dynamo.config.patch(**settings()):
        try:
            yield
        except Exception as error:
            if not is_of_dynamo(error):
                raise
            failed = error
        else:
            return
    translate(failed, no_step, call, args, kwargs)
    raise failed


def is_of_dynamo(error: BaseException) -> bool:
    """Whether Dynamo raised an error, or added words of its own to one."""
    own = isinstance(error, DYNAMO) or EXPLAINED in str(error) and not isinstance(error, TorchDynamoException)
    return own or isinstance(error, InternalTorchDynamoError) or asks_for_number(error) or is_of_tracer(error)


def is_of_tracer(error: BaseException) -> bool:
    """Whether PyTorch's code raised an error while a graph was traced for its backward."""
    if not isinstance(error, BackendCompilerFailed) or isinstance(error.inner_exception, Shortened):
        return False
    frames = [frame.filename for frame in traceback.extract_tb(error.inner_exception.__traceback__)]
    return bool(frames) and frames[-1].startswith(LIBRARIES[0])


def asks_for_number(error: BaseException) -> bool:
    """Whether the code of a size, an index or a branch asks for a number that only kernels know."""
    kinds = (UserError, InternalTorchDynamoError, GuardOnDataDependentSymNode)
    return isinstance(error, kinds) and any(word in str(error) for word in ("data-dependent", "unbacked", "UnspecializedPythonVariable"))


def translate(
    error: BaseException, refuse: Callable[[Unsupported], Exception], call: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raises, in place of an error of Dynamo's, what the user's own code raises, or the refusal."""
    if isinstance(error, FailOnRecompileLimitHit):
        error.args = (too_many_graphs(error),)
        error.__cause__ = None
        return
    if isinstance(error, BackendCompilerFailed):
        if call and lacks_device(error.inner_exception):
            raise_own(error, call, args, kwargs)
        raise untraced(error.inner_exception) from None
    if asks_for_number(error):
        raise needs_number(*place_in(error)) from None
    if isinstance(error, InternalTorchDynamoError):
        refuse_functions(pytree.tree_leaves((args, kwargs)), lambda _: "an input")
        if call and EXPLAINED in str(error) and str(error).startswith(RAISED):
            raise_own(error, call, args, kwargs)
        return
    if call and (not isinstance(error, TorchDynamoException) or isinstance(error, TorchRuntimeError) or getattr(error, "gb_type", "") in RAISING):
        raise_own(error, call, args, kwargs)
    if isinstance(error, Unsupported):
        raise refuse(error) from None


def lacks_device(error: BaseException) -> bool:
    """Whether a graph has a tensor on a device that PyTorch does not have here, which tensors without data are told late."""
    return not torch.cuda.is_available() and any(word in str(error) for word in ("device_index", "CUDA"))


def untraced(error: BaseException) -> CannotPlan:
    """Words for what PyTorch does not trace."""
    words = without_advice(str(error)).strip().partition("\n")[0].rstrip(".")
    advice = " A function that cond, scan or map calls must not return what it is given, nor one tensor twice: return a clone()." if "aliasing" in words else ""
    kind = type(error).__name__
    if lacks_device(error):
        return CannotPlan(f"the model puts a tensor on a CUDA device, and PyTorch finds none here ({kind}: {words})")
    return CannotPlan(f'PyTorch cannot trace this model for its backward ({kind}: {words}).{advice} torch.compile(model, backend="aot_eager") shows more')


def place_in(error: BaseException) -> tuple[str, str]:
    """The user's line in what Dynamo says of an error, and its code."""
    found = [(file, line) for file, line in re.findall(r'File "(.+?)", line (\d+)', str(error)) if is_of_user(file)]
    if found:
        return shortened(":".join(found[-1])), linecache.getline(found[-1][0], int(found[-1][1]))
    stack = getattr(error, "real_stack", None) or ()
    return place_of(stack), code_of(stack)


def raise_own(error: BaseException, call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Calls what Dynamo found to raise an exception, for the exception itself: with what eager mode does until then, which
    is undone if it raises none. Nothing has run of it before."""
    if fake := raised_by_user(error):
        raise fake from None
    try:
        with undone_if_returned():
            call(*args, **kwargs)
    except BaseException as own:
        link = own
        while link.__context__ is not None and link.__context__ is not error:
            link = link.__context__
        link.__context__ = None  # Dynamo's
        without_kept(own)
        raise


def raised_by_user(error: BaseException) -> CannotPlan | None:
    """Words for an exception of code that Dynamo called with tensors without data, as a custom operation's fake implementation:
    with data there may be none."""
    link, found = error.__cause__ or error.__context__, None
    while link is not None:
        frames = [frame for frame in traceback.extract_tb(link.__traceback__) if is_of_user(frame.filename)]
        if frames:
            place = shortened(f"{frames[-1].filename}:{frames[-1].lineno}")
            found = CannotPlan(
                f"{place} raises {said(link)}. This happens when it is called with tensors that have no data, as planning does. "
                "If it is an operation's fake implementation (torch.library.register_fake), it must work for all inputs"
            )
        link = link.__cause__ or link.__context__
    return found


def try_again(error: BaseException) -> None:
    """Has Dynamo look again at what raised an exception: it would leave those frames alone from then on."""
    trace = error.__traceback__
    while trace is not None:
        reset_code(trace.tb_frame.f_code)
        trace = trace.tb_next


def too_many_graphs(error: BaseException) -> str:
    """Words for something that changes, and cannot be an input of a graph."""
    trace, found = error.__traceback__, dict[str, Any]()
    while trace is not None:
        found = trace.tb_frame.f_locals if "recompile_reason" in trace.tb_frame.f_locals else found
        trace = trace.tb_next
    reason, _, rest = str(found.get("recompile_reason") or "").partition("  #")
    reason = re.sub(r"^\d+/\d+: ", "", reason).strip()
    code = found.get("code")
    place = f" in {code.co_name} ({shortened(f'{code.co_filename}:{code.co_firstlineno}')})" if code else ""
    line = re.sub(r"\s+", " ", rest.partition("  # ")[0]).strip()
    number = re.fullmatch(r"(\S+) == (-?[\d.e+-]+|True|False|'.*')", reason)
    limits = f"or set {LIMITS[0]} and {LIMITS[1]} of torch._dynamo.config to more than {SIZES} and {SIZES * 4} before torch.compile."
    if number:
        where = f" at `{line}`" if line else ""
        return (
            f"{number[1]} changes from step to step (it was {number[2]}), and is compiled into the graph{where}{place}: there are already {SIZES} graphs, one for "
            f"each value, and a call without a plan has no memory bound. Make it a tensor, use fewer values, {limits}"
        )
    return f"there are already {SIZES} graphs{place}, and a call without a plan has no memory bound. The last did not match because: {reason}. Use fewer variants, {limits}"
