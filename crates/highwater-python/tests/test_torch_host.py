"""Tensors that wait on the host: the same bits, in the order that was proved, within both amounts of memory."""

from __future__ import annotations

import contextlib
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._device import transfers as _transfers
from highwater.torch._device.allocated import allocated
from highwater.torch._device.transfers import CopyRoom, Evict, Fetch, Form, HostMemoryError, Lanes, Piece, Rooms, Stay, Transfers
from late_lanes import LateLanes
from models import CASES, Case, Gpt
from test_torch_backend import models, same, train
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def with_lanes(memory: int | str, host_memory: int | str, lanes: Lanes | None = None) -> highwater.torch.Backend:
    backend = highwater.torch.backend(memory, host_memory=host_memory)
    if lanes:
        backend._transfers = Transfers(backend.host_memory, lambda device: lanes)
    return backend


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("late", [False, True], ids=["threads", "late"])
def test_every_budget_gives_eagers_bits(name: str, late: bool) -> None:
    case = CASES[name]
    eager, plenty = models(case, 2)
    expected = train(eager, eager, case)
    backend = with_lanes("8GiB", "1GiB")
    assert not same(train(plenty, torch.compile(plenty, backend=backend, dynamic=False), case), expected)
    (report,) = backend.reports
    assert report.moved_bytes == 0
    floor, most, moved = report.floor_bytes, report.live_bytes, 0
    for share in (0.0, 0.1, 0.5):
        torch._dynamo.reset()
        (model,) = models(case, 1)
        lanes = LateLanes() if late else None
        backend = with_lanes(int(floor + share * (most - floor)), "1GiB", lanes)
        different = same(train(model, torch.compile(model, backend=backend, dynamic=False), case), expected)
        assert not different, (share, different)
        (report,) = backend.reports
        assert report.live_bytes <= report.budget_bytes
        moved += report.moved_bytes
        assert lanes is None or (lanes.copied > 0) == (report.moved_bytes > 0)
    assert moved > 0


GPT = Case(lambda: Gpt(layers=4, width=128), lambda: (torch.randint(0, 97, (8, 48)),), lambda loss: loss)


def planned(memory: int, host_memory: int | str) -> tuple[nn.Module, Any, highwater.torch.Backend]:
    torch._dynamo.reset()
    (model,) = models(GPT, 1)
    backend = with_lanes(memory, host_memory)
    call = torch.compile(model, backend=backend, dynamic=False)
    call(*GPT.inputs()).backward()
    model.zero_grad()
    return model, call, backend


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.8])
def test_the_peak_is_the_one_that_was_told(share: float) -> None:
    _, _, backend = planned(1 << 30, "1GiB")
    report = backend.reports[0]
    _, call, backend = planned(int(report.floor_bytes + share * (report.live_bytes - report.floor_bytes)), "1GiB")
    (report,) = backend.reports
    (ids,) = GPT.inputs()
    _, peak, _ = allocated(lambda: call(ids).backward())
    peak += report.given_bytes
    assert peak <= report.live_bytes + 64
    assert peak >= 0.98 * report.live_bytes
    assert report.moved_bytes > 0
    assert backend._transfers.rooms.taken_bytes == report.host_bytes > 0


def test_the_host_lowers_the_floor_and_costs_no_recomputation() -> None:
    alone, beside = (planned(1 << 30, host)[2].reports[0] for host in (0, "1GiB"))
    assert beside.floor_bytes < alone.floor_bytes
    report = planned(alone.floor_bytes, "1GiB")[2].reports[0]
    assert report.recomputed_kernels < planned(alone.floor_bytes, 0)[2].reports[0].recomputed_kernels


def test_little_host_memory_is_kept_to() -> None:
    _, _, backend = planned(1 << 30, 1 << 20)
    floor = backend.reports[0].floor_bytes
    _, call, backend = planned(floor, 1 << 20)
    assert 0 < backend.reports[0].host_bytes <= 1 << 20
    for _ in range(3):
        call(*GPT.inputs()).backward()
    assert backend._transfers.rooms.taken_bytes == backend.reports[0].host_bytes
    # A second forward before the first one's backward needs as much again.
    kept = call(*GPT.inputs())
    with pytest.raises(HostMemoryError, match="host_memory is .* must be offloaded next to .* that other backward passes still need"):
        for _ in range(3):
            kept = kept + call(*GPT.inputs())
    del kept


def test_two_forwards_before_their_backwards_have_rooms_of_their_own() -> None:
    report = planned(1 << 30, "1GiB")[2].reports[0]
    first, second = GPT.inputs()[0], GPT.inputs()[0]

    def gradients(memory: int, host_memory: int | str) -> tuple[list[Tensor], highwater.torch.Backend]:
        model, call, backend = planned(memory, host_memory)
        torch.manual_seed(3)
        (call(first) * 2 + call(second)).backward()
        return [p.grad for p in model.parameters() if p.grad is not None], backend

    found, backend = gradients(report.floor_bytes, "1GiB")
    assert all(map(torch.equal, found, gradients(1 << 30, 0)[0]))
    assert backend._transfers.rooms.taken_bytes == 2 * backend.reports[0].host_bytes


def test_a_second_backward_finds_what_the_first_one_found() -> None:
    _, _, backend = planned(1 << 30, "1GiB")
    model, call, _ = planned(backend.reports[0].floor_bytes, "1GiB")
    (eager,) = models(GPT, 1)
    (ids,) = GPT.inputs()

    def gradients(model: nn.Module, call: Any) -> list[Tensor]:
        torch.manual_seed(3)
        loss = call(ids)
        loss.backward(retain_graph=True)
        loss.backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    assert all(map(torch.equal, gradients(model, call), gradients(eager, eager)))


def test_what_waits_comes_back_as_the_kernel_made_it() -> None:
    transfers, room = Transfers(1 << 20), torch.zeros(1 << 12, dtype=torch.uint8)
    traced = torch.zeros(8, 12)
    made = [torch.randn(8, 12), torch.randn(8, 12).bfloat16(), torch.randn(12, 8).t(), torch.randn(8, 12).double()[:4], torch.randn(100)[3:90]]
    for tensor in made:
        stay = Stay(64, 400 if tensor.numel() == 87 else traced.nbytes, Form.of(traced))
        transfers.lanes(tensor.device).wait(Evict(transfers, stay)(room, tensor))
        found, token = Fetch(transfers, stay)(room)
        transfers.lanes(tensor.device).wait(token)
        assert torch.equal(found, tensor) and found.stride() == tensor.stride() and found.dtype == tensor.dtype
    with pytest.raises(RuntimeError, match="an operation returned 768 bytes instead of the predicted 384"):
        Evict(transfers, Stay(0, traced.nbytes, Form.of(traced)))(room, torch.zeros(8, 12).double())


def test_rooms_are_used_again_and_never_more_than_was_stated() -> None:
    rooms = Rooms(100)
    a, b = rooms.take(60, False), rooms.take(30, False)
    assert rooms.taken_bytes == 90
    with pytest.raises(HostMemoryError, match="host_memory is 100 B, and 20 B must be offloaded next to 90 B"):
        rooms.take(20, False)
    view = a[10:20]
    del a
    with pytest.raises(HostMemoryError):
        rooms.take(60, False)
    del view
    gc.collect()
    a = rooms.take(50, False, 60)
    assert rooms.taken_bytes == 90 and a.numel() == 50
    del a, b
    gc.collect()
    # What nobody has makes room.
    assert rooms.take(100, False).numel() == 100 and rooms.taken_bytes == 100


def test_threads_share_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = Rooms(1 << 20)
    held = [rooms.take(100, False) for _ in range(2)]
    del held
    gc.collect()
    both, is_free = threading.Barrier(2), Piece.is_free

    def slowly(piece: Piece) -> bool:
        free = is_free.fget(piece)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.05)  # the other one finds it free, if it may look
        return free

    monkeypatch.setattr(Piece, "is_free", property(slowly))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: rooms.take(100, False), range(2))
    assert one.data_ptr() != other.data_ptr()


def test_what_is_small_takes_no_large_piece() -> None:
    rooms = Rooms(100)
    rooms.take(90, False)
    small = rooms.take(10, False)
    assert rooms.take(90, False).numel() == 90 and small.numel() == 10


def test_pages_are_unlocked_when_nobody_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    locked: set[int] = set()
    runtime = SimpleNamespace(cudaHostRegister=lambda at, *_: locked.add(at) or 0, cudaHostUnregister=locked.remove)
    monkeypatch.setattr(_transfers, "cuda_runtime", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    rooms = Rooms(1000)
    a = rooms.take(600, True)
    rooms.take(300, True)
    assert len(locked) == 2
    rooms.take(400, True)
    del rooms
    assert locked == {a.data_ptr()}
    del a
    assert not locked


def test_a_tensor_that_lies_otherwise_than_was_traced_has_a_place_of_its_own() -> None:
    transfers, lanes = Transfers(1 << 10), LateLanes()
    transfers._make = lambda device: lanes
    x = torch.arange(12.0).view(3, 4)
    room = transfers.take(512, x.device).zero_()
    stay = Stay(256, x.nbytes, Form.of(x))
    other = x.t().contiguous().t()
    lanes.finish(Evict(transfers, stay)(room, other))
    assert not room[:256].any()
    found, token = Fetch(transfers, stay)(room)
    lanes.wait(token)
    assert torch.equal(found, x)


def test_a_part_of_something_larger_moves_alone() -> None:
    transfers = Transfers(1 << 10)
    whole = torch.arange(64.0).view(8, 8)
    part = whole[:, 2:5]
    room = transfers.take(512, part.device).zero_()
    traced = torch.empty_strided((8, 3), (8, 1))
    stay = Stay(0, 4 * (7 * 8 + 3), Form.of(traced))
    lanes = transfers.lanes(part.device)
    lanes.finish(Evict(transfers, stay)(room, part))
    found, token = Fetch(transfers, stay)(room)
    lanes.wait(token)
    assert torch.equal(found, part) and found.stride() == part.stride()
    assert found.untyped_storage().nbytes() == stay.count


def test_the_copy_of_a_room_has_what_was_on_its_way_there() -> None:
    transfers, lanes = Transfers(1 << 10), LateLanes()
    transfers._make = lambda device: lanes
    x = torch.arange(16.0)
    room = transfers.take(x.nbytes, x.device)
    Evict(transfers, Stay(0, x.nbytes, Form.of(x)))(room, x)
    copy = CopyRoom(transfers, x.device)(room)
    assert torch.equal(copy.view(torch.float32), x)
    assert transfers.rooms.taken_bytes == 2 * x.nbytes


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = (nn.ModuleList(nn.Linear(64, 64) for _ in range(6)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = torch.tanh(layer(x))
            kept.append(torch.relu(x))
        for layer in self.up:
            x = layer(x) * kept.pop()
        return x.sum()


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_without_gradients_tensors_wait_on_the_host_too(without: Any) -> None:
    torch.manual_seed(0)
    model, x, memory = Skips(), torch.randn(256, 64), 1 << 30
    with without():
        expected = model(x)
        for _ in range(2):
            torch._dynamo.reset()
            backend = with_lanes(memory, "1GiB")
            assert torch.equal(torch.compile(model, backend=backend, dynamic=False)(x), expected)
            memory = backend.reports[0].floor_bytes
    assert backend.reports[0].moved_bytes > 0
