"""Trains PyTorch's models in the memory that is stated.

``torch.compile(model, backend=highwater.torch.backend(memory="8GiB"))`` has the planner decide which
activations are kept and which are computed again, for a forward and its backward, and PyTorch's own
kernels run in that order: the numbers are those of eager PyTorch, bit for bit.
"""

from __future__ import annotations

from ._backend.backend import Backend, backend
from ._backend.saved_tensors import AboveMemory
from ._device.allocated import allocated
from ._device.transfers import HostMemoryError
from ._dynamo.calls import NothingPlanned
from ._dynamo.refusals import GraphBreak
from ._forecast.forecast import Forecast, Holder, Needs
from ._forecast.predict import plan
from ._messages.locations import CannotPlan
from ._plan.choices import OverBudget, Report
from ._plan.roofline import Rates
from ._step.step import Step, step

__all__ = [
    "AboveMemory",
    "Backend",
    "CannotPlan",
    "Forecast",
    "GraphBreak",
    "HostMemoryError",
    "Holder",
    "Needs",
    "NothingPlanned",
    "OverBudget",
    "Rates",
    "Report",
    "Step",
    "allocated",
    "backend",
    "plan",
    "step",
]

for _public in [value for name, value in globals().items() if name in __all__ and isinstance(value, type)]:
    _public.__module__ = __name__  # which tracebacks and warnings show
