"""What is another on a GPU, without one: on a pretended one, and on tensors without bytes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highwater.torch
import pytest
import torch
from highwater import Instruction
from highwater.torch._device.device import Cuda, device_of
from highwater.torch._device.repeatable import ALWAYS, OF_FLOATS, WRITING, differs
from highwater.torch._device.transfers import Transfers
from highwater.torch._emit.emit import emit, replays
from highwater.torch._graph.joint import JointGraph
from highwater.torch._messages.amounts import MOST
from highwater.torch._optim.optimizers import Optimizers
from highwater.torch._optim.updates import Updates
from highwater.torch._plan.choices import Choices
from highwater.torch._plan.costs import Costs
from highwater.torch._plan.reserved import Allocator, carried_out
from highwater.torch._plan.roofline import DEVICES, Roofline
from models import CASES, Case, Gpt
from pretended import Driver, pretend
from test_torch_backend import models, same, train
from torch import Tensor, nn, optim
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is known of kernels, and what is measured is not kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def traced(function: Callable[..., Any], *sizes: tuple[int, ...], devices: tuple[str, ...] = ("cuda",)) -> torch.fx.GraphModule:
    """The graph of a function of tensors that have no bytes, as if they were there."""
    with FakeTensorMode() as mode, torch.no_grad():
        inputs = [torch.empty(size, device=devices[i % len(devices)]) for i, size in enumerate(sizes)]
    with mode:
        return make_fx(function)(*inputs)


@pytest.mark.parametrize("name", ["gpt", "mlp", "unet"])
def test_bits_and_promises_on_a_pretended_gpu(name: str, monkeypatch: pytest.MonkeyPatch, costs: None) -> None:
    case = CASES[name]
    (eager,) = models(case, 1)
    expected = train(eager, eager, case)
    driver = Driver()
    pretend(monkeypatch, driver)
    budgets: list[int | str] = ["8GiB"]
    for budget in budgets:
        torch._dynamo.reset()
        (model,) = models(case, 1)
        backend = highwater.torch.backend(memory=budget)
        assert not same(train(model, torch.compile(model, backend=backend, dynamic=False), case), expected)
        (report,) = backend.reports
        # cuBLAS has 32 MiB for each of two threads, and all is in whole multiples.
        assert report.given_bytes >= (64 << 20 if name != "unet" else 0) and report.given_bytes % 512 == 0 and report.live_bytes % 512 == 0
        assert report.reserved_bytes is not None and report.reserved_bytes >= report.live_bytes
        if len(budgets) == 1:
            assert driver.emptied, "what measuring took is given back"
            floor, most = report.floor_bytes, report.live_bytes
            budgets += [floor, floor + (most - floor) // 2]
        else:
            assert report.live_bytes <= int(budget) and report.recomputed_kernels


def test_a_step_on_a_pretended_gpu(monkeypatch: pytest.MonkeyPatch, costs: None) -> None:
    ids = torch.randint(0, 97, (4, 32))

    def losses(memory: str | None) -> list[Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(3)
        model = Gpt()
        optimizer = optim.AdamW(model.parameters())
        if memory:
            step = highwater.torch.step(model, None, optimizer, memory=memory)
            found = [step(ids) for _ in range(3)]
            # The count of steps of each parameter is in the host's memory on a GPU; here all of it is there.
            assert step.reports[0].reserved_bytes
            return found
        found = []
        for _ in range(3):
            loss = model(ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.detach())
        return found

    eager = losses(None)
    pretend(monkeypatch, Driver())
    assert all(map(torch.equal, eager, losses("1GiB")))


class Adding(nn.Module):
    """Sums that come in any order on a GPU, in the forward, whose result is large."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        for layer in self.layers:
            large = x.new_zeros(512, 64).index_add(0, places, layer(x))
            x = large.sin().view(32, 16, 64).sum(0)
        return x.square().sum()


ADDING = Case(Adding, lambda: (torch.randn(16, 64), torch.randint(0, 512, (16,))), lambda loss: loss)


def at_the_floor(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """Of each sum, whether it must run once, and how often the smallest plan runs it."""
    found: list[tuple[bool, int]] = []
    report = Choices.report

    def counted(choices: Choices, memory: int, choice: Any, *args: Any, **kwargs: Any) -> highwater.torch.Report:
        runs = Counter(step.node for step in choice.plan.instructions if isinstance(step, Instruction.Run))
        for i, kernel in enumerate(choices.joint.kernels):
            if kernel.node.target is aten.index_add.default:
                found.append((kernel.once, runs[i]))
        return report(choices, memory, choice, *args, **kwargs)

    def trained(memory: int | str) -> highwater.torch.Report:
        torch._dynamo.reset()
        (model,) = models(ADDING, 1)
        backend = highwater.torch.backend(memory)
        torch.compile(model, backend=backend, dynamic=False)(*ADDING.inputs()).backward()
        return backend.reports[0]

    floor = trained("8GiB").floor_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Choices, "report", counted)
        trained(floor)
    return found


def test_sums_in_any_order_run_once(monkeypatch: pytest.MonkeyPatch, costs: None) -> None:
    assert {once for once, _ in at_the_floor(monkeypatch)} == {False}, "on the CPU they have one order"
    pretend(monkeypatch, Driver())
    assert at_the_floor(monkeypatch) == [(True, 1)] * 4
    torch.use_deterministic_algorithms(True)
    try:
        assert {once for once, _ in at_the_floor(monkeypatch)} == {False}, "they have one order then"
    finally:
        torch.use_deterministic_algorithms(False)


def test_which_kernels_differ() -> None:
    missing = {name for name in ALWAYS | OF_FLOATS | WRITING if not hasattr(aten, name)}
    assert not missing, "no kernels of PyTorch's"

    def asked(function: Callable[..., Any], *sizes: tuple[int, ...]) -> list[bool]:
        graph = traced(function, *sizes).graph
        return [differs(node) for node in graph.nodes if node.op == "call_function"]

    assert asked(lambda x: x.cumsum(0), (8,)) == [True]
    assert asked(lambda x: (x > 0).cumsum(0), (8,))[-1:] == [False]
    assert asked(lambda x, y: x.mm(y).relu(), (8, 8), (8, 8)) == [False, False]

    def put(accumulate: bool, one: bool) -> Callable[..., Any]:
        def function(x: Tensor, values: Tensor) -> Tensor:
            return x.index_put((torch.zeros(8, dtype=torch.long, device=x.device),), values[:1].sum() if one else values, accumulate)

        return function

    assert asked(put(False, True), (8,), (8,))[-1] is False
    assert asked(put(True, True), (8,), (8,))[-1] is True
    assert asked(put(False, False), (8,), (8,))[-1] is True


def test_what_is_beside_a_gpu_takes_none_of_its_memory() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x.sin() + y.cos().to(x.device)

    joint = JointGraph(traced(function, (1000,), (1000,), devices=("cuda", "cpu")), 1)
    assert isinstance(joint.device, Cuda) and joint.device.device.type == "cuda"
    of = {node.name: joint.storages[i].bytes for node, i in joint.of.items()}
    there = {"x_1": 4000, "sin": 4000, "_to_copy": 4000, "add": 4000}
    assert {name: size for name, size in of.items() if size} == there
    assert of["cos"] == of["y_1"] == 0


def test_several_gpus_are_refused() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x.sin().to(y.device) + y

    with pytest.raises(highwater.torch.CannotPlan, match=r"is on cuda:1, and others are on cuda:0: a plan covers the memory of one device"):
        JointGraph(traced(function, (8,), (8,), devices=("cuda:0", "cuda:1")), 1)
    with pytest.raises(highwater.torch.CannotPlan, match="tensors are on xla: only CPUs and CUDA GPUs can be planned"):
        with FakeTensorMode():
            device_of([torch.empty(1, device="xla")])


def test_random_numbers_of_a_gpu(costs: None) -> None:
    """They are drawn again by its own generator's state, which takes none of its memory."""

    def function(x: Tensor) -> Tensor:
        dropped, mask = aten.native_dropout(x, 0.5, True)
        return (dropped.exp() * mask,)

    joint = JointGraph(traced(function, (1 << 20,)), 1)
    choices = Choices(joint, Roofline(DEVICES["H100"]))
    assert choices.floor_bytes % 512 == 0
    choice = choices.at(choices.floor_bytes)
    forward, _ = emit(joint, choice, Transfers(0))
    assert len(replays(joint, choice.plan)) <= 1
    allocator = Allocator()
    carried_out(joint, choice, 0, allocator)
    assert allocator.most_allocated >= choices.floor_bytes - 512


def test_the_same_numbers_twice() -> None:
    device = Cuda(GPU, driver := Driver())
    state, first = device.run_and_save(torch.rand, 8)
    torch.rand(3)
    before = torch.get_rng_state()
    assert torch.equal(device.run_again(state, torch.rand, 8), first)
    assert torch.equal(torch.get_rng_state(), before)
    driver.capturing = True
    with pytest.raises(RuntimeError, match="which a CUDA graph cannot capture"):
        device.run_and_save(torch.rand, 8)


def test_the_host_is_ahead_of_what_is_timed() -> None:
    device = Cuda(GPU, driver := Driver())
    runs = []

    def run() -> None:
        time.sleep(0.001)
        runs.append(len(driver.slept))

    assert 0.001 <= device.seconds(run, 5, 1.0) < 0.1
    # Once to wake it up and once alone; before the others it is kept busy for longer than asking for them takes.
    assert runs == [0, 0, 1, 1, 1, 1]
    assert 4 * 0.001 * 2e9 <= driver.slept[0] <= 0.05 * 2e9


def test_scratch_bytes_by_counters() -> None:
    device = Cuda(GPU, driver := Driver())
    driver.count(requested_bytes__allocated=10**9, requested_bytes__freed=10**8, allocation__freed=17)

    def run() -> str:
        # A result of 5,000 bytes, and two buffers for a while.
        driver.count(requested_bytes__allocated=5000 + 300 + 2000, requested_bytes__freed=2300, allocation__freed=2)
        return "answer"

    assert device.allocated(run) == ("answer", 5000 + 2300 + 2 * 511, 5000)


def test_cublas_has_its_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.delenv("CUBLASLT_WORKSPACE_SIZE", raising=False)
    assert Cuda(GPU, Driver()).libraries(True, 2) == 2 * (33 << 20)
    assert Cuda(GPU, Driver(capability=(8, 0))).libraries(True, 2) == 2 * (8_519_680 + (1 << 20))
    assert Cuda(GPU, Driver()).libraries(False, 2) == 0
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert Cuda(GPU, Driver()).libraries(True, 1) == 33 << 20
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "many")
    assert Cuda(GPU, Driver()).libraries(True, 1) == 33 << 20
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "0")
    assert Cuda(GPU, Driver()).libraries(True, 1) == 32 << 20


def test_kernels_are_guessed_where_there_is_no_room(costs: None) -> None:
    joint = JointGraph(traced(lambda x, y: x.mm(y), (4096, 4096), (4096, 4096)), 1)
    driver = Driver(free=1 << 20)
    known = Costs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(highwater.torch._device.device.KINDS, "cuda", lambda device: Cuda(device, driver))
        seconds, scratch = known.of(joint.kernels[0])
        assert not known.known, "another time there may be room"
        assert seconds == Roofline(DEVICES["H100"]).seconds(joint.kernels[0].node) and scratch == 0


def test_what_is_measured_is_of_one_gpu(costs: None) -> None:
    (h100, other), names = (Cuda(GPU, Driver()), Cuda(GPU, Driver(name="NVIDIA A100-SXM4-80GB", capability=(8, 0)))), set()
    for device in (h100, other):
        names.add(device.name)
        # Not by assignment: PyTorch's own module of tests, which another file imports, forbids that from then on.
        with torch.backends.cudnn.flags(benchmark=True):
            names.add(device.name)
    assert len(names) == 4


def test_a_graph_without_tensors_is_of_the_cpu() -> None:
    assert device_of([]).device.type == "cpu"
    assert device_of([1, None]).rounded(7) == 7
    assert Cuda(GPU, Driver()).rounded(7) == 512
    assert MOST > 1 << 60


def test_the_script_for_a_gpu_runs_without_one(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    script = Path(__file__).parents[3] / "benches/pytorch/gpu_memory.py"
    program = [sys.executable, str(script), "--device", "cpu", "--tiny", "--only", "t", "--steps", "1", "--out", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "report.md").read_text()
    assert re.search(r"In a tenth of the memory, .* GB: plain PyTorch needs \d+ bytes; ours trains", report)
    assert "told: " in done.stdout and "took more" not in report
    found = json.loads((tmp_path / "report.json").read_text())
    assert all(row["requested"] <= row["budget_bytes"] for row in found["told"]["rows"])


def test_checks_are_not_tried_on_made_up_numbers(costs: None) -> None:
    """On a GPU one that fails is the end of the process."""

    def function(x: Tensor) -> tuple[Tensor]:
        aten._assert_async.msg(x.sum() > 0, "not positive")
        return (x.sin(),)

    graph = traced(function, (8,))
    joint = JointGraph(graph, 1)
    (check,) = (kernel for kernel in joint.kernels if "assert" in str(kernel.node.target))
    known = Costs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(highwater.torch._device.device.KINDS, "cuda", lambda device: Cuda(device, Driver()))
        assert known.of(check)[1] == 0 and not known.known


def test_what_does_not_fit_while_measuring_is_not_kept(monkeypatch: pytest.MonkeyPatch, costs: None) -> None:
    driver = Driver()
    pretend(monkeypatch, driver)
    joint = JointGraph(traced(lambda x: (x.sin(),), (64,), devices=("cpu",)), 1)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    known = Costs()
    with monkeypatch.context() as patch:
        patch.setattr("highwater.torch._plan.costs.measure", full)
        assert known.of(joint.kernels[0]) == (Roofline(DEVICES["H100"]).seconds(joint.kernels[0].node), 0)
    assert not known.known and driver.emptied
    known.of(joint.kernels[0])
    assert len(known.known) == 1


def test_only_what_is_one_kernel_writes_over_its_input() -> None:
    device = Cuda(GPU, Driver())
    assert device.overwrites(aten.mul.Tensor) and device.overwrites(aten.gelu_backward.default)
    assert not device.overwrites(aten.addmm.default) and not device.overwrites(aten.cumsum.default)


def test_updates_of_a_gpu_take_several_tensors_at_once() -> None:
    """As PyTorch has them there, where nothing else was said: another amount of memory for a while."""
    parameter = nn.Parameter(torch.zeros(1000, 256))

    def needs(kind: type[optim.Optimizer], **settings: Any) -> tuple[int, int]:
        updates = Updates(Optimizers(kind([parameter], **settings)))  # type: ignore[call-arg]
        updates.device = GPU
        needs = updates.needs(parameter)
        return needs.state, needs.scratch

    size = parameter.nbytes
    assert needs(optim.AdamW) == (2 * size, size) and needs(optim.AdamW, foreach=False) == (2 * size, 2 * size)
    assert needs(optim.Adagrad) == (size, 2 * size)
    # The count of steps of each parameter stays with the host, but where a graph might capture it.
    assert needs(optim.AdamW, capturable=True)[0] == 2 * size + 512
