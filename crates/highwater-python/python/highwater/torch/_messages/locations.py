"""Where something is in the user's model, in words."""

from __future__ import annotations

import operator
import os
import re
import sys
import sysconfig
from types import FrameType

import highwater
import torch
from torch import fx
from torch._guards import TracingContext

from .errors import Shortened


class CannotPlan(Shortened, ValueError):
    """A graph that cannot be planned. The message names the operation, and its line."""


# Code in these folders is not the user's.
LIBRARIES = tuple(os.path.join(os.path.dirname(str(module.__file__)), "") for module in (torch, highwater))
STANDARD = os.path.join(sysconfig.get_path("stdlib"), "")


def is_of_user(file: str) -> bool:
    """Whether code is neither PyTorch's, Python's nor ours, nor generated."""
    is_standard = file.startswith(STANDARD) and "-packages" not in file
    return not is_standard and not file.startswith((*LIBRARIES, "<eval_with_key>"))


def where(node: fx.Node) -> str:
    """A node for people: the operation, its module, and the line of the user's code."""
    words = [operation_of(node)] + ([f"in {module}"] if (module := module_of(node)) else [])
    return " ".join(words + ([f"at {shortened(line)}"] if (line := line_of(node)) else []))


def operation_of(node: fx.Node) -> str:
    """The operation that a node is, or takes an item of."""
    if node.op == "placeholder":
        return gradient_in(node) if node.name.startswith("tangents") else node.name
    if node.target is operator.getitem:
        return operation_of(node.args[0])  # type: ignore[arg-type]
    # An operation of PyTorch's has a name without its namespace.
    return str(node.target if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "__name__", node.target))


def gradient_in(node: fx.Node) -> str:
    """A gradient that comes in, by the output that it is of."""
    shape, output = tuple(int(size) for size in node.meta["val"].shape), getattr(node.meta.get("desc"), "output", None)
    end = node.graph.output_node()
    # Numbers of outputs are Dynamo's, which has others than the user.
    answers = dict(zip(end.meta.get("desc") or [], end.args[0]))  # type: ignore[arg-type]
    made = answers.get(output)
    by = f", made by {where(made)}" if isinstance(made, fx.Node) and made.op != "placeholder" else ""
    return f"the gradient of the model's {f'output {shape}' if shape else 'loss'}{by}"


def module_of(node: fx.Node) -> str:
    """The path of the module that a node is of, "" outside of all."""
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path = next((path for path, _ in reversed(modules.values())), "")
    # Some take their modules out of the dictionary that they are in.
    path = re.sub(r"(?:__dict__\['_modules'\]|_modules)\['(\w+)'\]", r"\1", path)
    return re.sub(r"^L\['\w+'\]\.?|_modules\.", "", path)


def input_name(place: fx.Node) -> str:
    """What a user calls an input of Dynamo's graph: its path in the model, or the argument's name."""
    source = getattr(place, "_dynamo_source", None)
    name = getattr(source, "name", re.sub(r"^l_(.+?)_$", r"\1", place.name))
    name = str(name() if callable(name) else name)
    name = re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", name)
    return re.sub(r"^L\['(\w+)'\]", r"\1", name).removeprefix("self.")


def line_of(node: fx.Node) -> str:
    """The file and line of the user's code that a node comes of, "" if that is not known."""
    frames = re.findall(r'File "(.+?)", line (\d+)', node.meta.get("stack_trace") or "")
    ours = [f"{file}:{line}" for file, line in frames if is_of_user(file)]
    return ours[-1] if ours else ""


def place_now() -> str:
    """The line of the user's code that Dynamo traces."""
    frames = [frame for frame in TracingContext.extract_stack() if is_of_user(frame.filename)]
    return shortened(f"{frames[-1].filename}:{frames[-1].lineno}") if frames else "a line of the model"


def shortened(line: str) -> str:
    """Without the folder that packages are installed in, or that the program runs in."""
    return line.rpartition("/site-packages/")[2].removeprefix(f"{os.getcwd()}/")


def level_of_user() -> int:
    """The `stacklevel` for a warning of the caller: that of the first line that is the user's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and (level == 1 or not is_of_user(frame.f_code.co_filename)):
        frame, level = frame.f_back, level + 1
    return level


def line_of_caller() -> str:
    """The user's line that is being run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_of_user(frame.f_code.co_filename):
        frame = frame.f_back
    return "a line that is not known" if frame is None else shortened(f"{frame.f_code.co_filename}:{frame.f_lineno}")
