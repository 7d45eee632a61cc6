"""What some releases of PyTorch cannot do."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.variables.user_defined

FOUND_BY_NAME = pytest.mark.skipif(
    not hasattr(torch._TorchCompileWrapper, "_dynamo_backend_init"),
    reason="torch 2.14 does not tell a backend that it finds by name when it is called",
)

# PyTorch 2.14 would draw once for all from generator objects of Python's that exist before: that is refused there.
DRAWS_FROM_OBJECTS = hasattr(torch._dynamo.variables.user_defined, "RandomCallOnSource")
