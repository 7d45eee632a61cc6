"""What some releases of PyTorch cannot do."""

from __future__ import annotations

import pytest
import torch

FOUND_BY_NAME = pytest.mark.skipif(
    not hasattr(torch._TorchCompileWrapper, "_dynamo_backend_init"),
    reason="torch 2.14 does not tell a backend that it finds by name when it is called",
)
