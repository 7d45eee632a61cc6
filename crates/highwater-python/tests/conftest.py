"""What all tests have in common."""

from __future__ import annotations

import os
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

# Of a test with so many sets of parameters, a share is run; see `pytest_collection_modifyitems`.
MANY = 6


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``ONE_OF=4`` runs one of four sets of parameters of each test that has many, and ``SHARE`` says which: another
    one each time that continuous integration runs, so that all are run in turn. Without it, all are run."""
    one_of, share = int(os.environ.get("ONE_OF", 1)), int(os.environ.get("SHARE", 0))
    kept, left_out = [], []
    for _, group in groupby(items, key=lambda item: item.nodeid.split("[")[0]):
        of_test = list(group)
        every = one_of if len(of_test) >= MANY else 1
        first = share % min(every, len(of_test))
        for place, item in enumerate(of_test):
            (kept if place % every == first else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.fixture(autouse=True)
def searched_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test takes plans from another: answers the folder of those that it keeps itself."""
    folder = tmp_path / "plans"
    # The planner's own tests run where there is no PyTorch, too.
    if find_spec("torch"):
        monkeypatch.setattr("highwater.torch._plan.plan_cache.plans_folder", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def seconds_are_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test makes the same plans on every machine, however busy: the bytes of a kernel are measured, its seconds
    are not. The trials that run as scripts measure both."""
    if not find_spec("torch"):
        return
    from highwater.torch._plan import costs
    from highwater.torch._plan.roofline import guess

    measure = costs.measure

    def measured(node: Any, device: Any, *ways: Any) -> tuple[float, int, int]:
        _, scratch, results = measure(node, device, *ways)
        return guess(node, device)[0], scratch, results

    monkeypatch.setattr(costs, "measure", measured)
    # It is run to see its bytes, and before that for what a library makes when it is first called.
    monkeypatch.setattr(costs, "RUNS", 1)
    monkeypatch.setattr(costs, "SECONDS", 0.0)
    # What other processes keep was timed.
    monkeypatch.setattr(costs, "MEASURED", "guessed")


@pytest.fixture
def untimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is measured, and no test that measures reads from the cache what is guessed instead."""
    from highwater.torch._plan.roofline import guess

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("highwater.torch._plan.costs.measure", guess)
