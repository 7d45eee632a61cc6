"""What kernels take, measured on a machine that may be busy. No clock runs here: it is told what time it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import highwater.torch
import pytest
import torch
from highwater.torch._device import timing
from highwater.torch._device.timing import PATIENCE, least_seconds, watched
from highwater.torch._plan.costs import Costs
from torch import nn


class Machine:
    """Clocks, and a kernel that takes so long each time: on the wall, and of the thread's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: Iterator[tuple[float, float]]) -> None:
        self.runs, self.now, self.own, self.count = runs, 0.0, 0.0, 0
        monkeypatch.setattr(timing, "clock", lambda: self.now)
        monkeypatch.setattr(timing, "own_clock", lambda: self.own)

    def run(self) -> None:
        wall, own = next(self.runs)
        self.now, self.own, self.count = self.now + wall, self.own + own, self.count + 1


def idle(seconds: float) -> Iterator[tuple[float, float]]:
    while True:
        yield seconds, seconds


def busy(seconds: float, share: float) -> Iterator[tuple[float, float]]:
    """Others have the processor for a share of the time, always the same: runs agree, and are too long all the same."""
    while True:
        yield seconds / (1 - share), seconds


def test_an_idle_machine_is_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, idle(0.01))
    assert watched(lambda: least_seconds(machine.run, 5, 0.2)) == (pytest.approx(0.01), True)
    assert machine.count == 5


def test_a_long_kernel_runs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, idle(3.0))
    assert watched(lambda: least_seconds(machine.run, 5, 0.2)) == (pytest.approx(3.0), True)
    assert machine.count == 2


def test_what_interrupts_now_and_then_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(1)
    runs = ((0.01, 0.01) if dice.random() < 0.4 else (0.01 + dice.random(), 0.01) for _ in iter(int, 1))
    machine = Machine(monkeypatch, runs)
    assert watched(lambda: least_seconds(machine.run, 5, 9.0)) == (pytest.approx(0.01), True)


def test_a_busy_machine_is_marked_and_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy(0.01, share=0.75))
    assert watched(lambda: least_seconds(machine.run, 5, 9.0)) == (pytest.approx(0.01), False)
    assert machine.count == PATIENCE * 5


def test_runs_that_never_agree_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, ((0.01 * 2**i, 0.01 * 2**i) for i in range(99)))
    assert watched(lambda: least_seconds(machine.run, 3, 1e9)) == (pytest.approx(0.01), False)


def test_others_do_the_work_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, busy(0.01, share=0.75))
    assert watched(lambda: least_seconds(machine.run, 5, 9.0, here=False)) == (pytest.approx(0.04), True)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Iterator[tuple[float, float]]], Costs]:
    """Measures one kernel in what might be a process of its own."""

    def measure(runs: Iterator[tuple[float, float]]) -> Costs:
        machine = Machine(monkeypatch, runs)
        costs = Costs(tmp_path / "kernels")
        costs.known_or("kernel", lambda: (least_seconds(machine.run, 5, 9.0), machine.count, 7))
        costs.save()
        return costs

    return measure


def test_what_a_busy_machine_measured_is_corrected_later(measured: Callable[[Iterator[tuple[float, float]]], Costs]) -> None:
    assert measured(busy(0.02, share=0.75)).busy == {"kernel"}
    first = Costs(measured(busy(0.03, share=0.75)).path)
    assert first.known["kernel"] == (pytest.approx(0.02), 15, 7) and first.busy == {"kernel"}
    for seconds in (0.01, 0.5):
        # The bytes are those that were measured first: floors stay where they are. What is right is not measured again.
        costs = measured(idle(seconds))
        assert costs.known["kernel"] == (pytest.approx(0.01), 15, 7) and not costs.busy
        assert Costs(costs.path).known == costs.known


def test_within_a_process_a_figure_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    costs = Costs(tmp_path / "kernels")
    for runs in (busy(0.02, share=0.75), idle(0.01)):
        machine = Machine(monkeypatch, runs)
        found = costs.known_or("kernel", lambda: (least_seconds(machine.run, 5, 9.0), 0, 0))
        assert found[0] == pytest.approx(0.02)


def test_processes_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One corrects what the other one, which is busy, keeps after it."""
    path = tmp_path / "kernels"
    Costs(path).save()
    ours, theirs = Costs(path), Costs(path)
    for costs, runs in ((theirs, busy(0.02, share=0.75)), (ours, idle(0.01))):
        machine = Machine(monkeypatch, runs)
        costs.known_or("kernel", lambda: (least_seconds(machine.run, 5, 9.0), 1 if costs is theirs else 2, 0))
    theirs.save()
    ours.save()
    assert Costs(path).known["kernel"] == (pytest.approx(0.01), 1, 0) and not Costs(path).busy


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"known": {}}', '{"known": [], "busy": []}', '{"a": [1.0, 0, 0]}'])
def test_a_file_of_another_form_is_as_if_it_was_not_there(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels"
    path.write_text(text)
    assert Costs(path).known == {}


def test_a_floor_that_was_told_holds_when_kernels_are_timed_again() -> None:
    def planned(memory: int | str, seed: int) -> highwater.torch.Report:
        torch._dynamo.reset()
        torch.manual_seed(0)
        dice = random.Random(seed)
        backend = highwater.torch.backend(memory)
        known = backend._costs.known_or
        times: dict[str, float] = {}

        def timed(signature: str, measure: Callable[[], tuple[float, ...]]) -> tuple[float, ...]:
            return (times.setdefault(signature, dice.uniform(1e-6, 1e-3)), *known(signature, measure)[1:])

        backend._costs.known_or = timed  # type: ignore[method-assign]
        blocks = [nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(4)]
        torch.compile(nn.Sequential(*blocks), backend=backend, dynamic=False)(torch.randn(64, 32))
        return backend.reports[0]

    floors = [planned("1GiB", seed).floor_bytes for seed in range(4)]
    assert floors == sorted(floors, reverse=True)
    for seed in range(4, 6):
        report = planned(floors[-1], seed)
        assert report.live_bytes <= floors[-1] and report.floor_bytes <= floors[-1]
        assert report.seconds > report.recompute_seconds > 0


def test_the_mark_is_kept_beside_the_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    costs = Costs(tmp_path / "kernels")
    machine = Machine(monkeypatch, busy(0.02, share=0.75))
    costs.known_or("kernel", lambda: (least_seconds(machine.run, 5, 9.0), 0, 0))
    costs.save()
    assert json.loads(costs.path.read_text())["busy"] == ["kernel"]
