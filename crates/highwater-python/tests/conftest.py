"""What all tests have in common."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def searched_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test takes plans from another: answers the folder of those that it keeps itself."""
    folder = tmp_path / "plans"
    # The planner's own tests run where there is no PyTorch, too.
    if find_spec("torch"):
        monkeypatch.setattr("highwater.torch._plan.plan_cache.plans_folder", lambda: folder)
    return folder
