"""What all tests have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from highwater.torch import _kept


@pytest.fixture(autouse=True)
def searched_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test takes plans from another: answers the folder of those that it keeps itself."""
    folder = tmp_path / "plans"
    monkeypatch.setattr(_kept, "plans_folder", lambda: folder)
    return folder
