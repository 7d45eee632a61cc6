"""What a step would take, told on tensors without bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import highwater.torch
import pytest
import torch
from models import Gpt, UNet
from torch import Tensor, nn, optim

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def check_words(name: str, words: str) -> None:
    """Beside what was said before; `HIGHWATER_BLESS=1` keeps what is said now."""
    words = words.replace(f"{HERE}/", "").replace("crates/highwater-python/tests/", "").replace("tests/", "")
    path = HERE / "snapshots" / name
    if os.environ.get("HIGHWATER_BLESS"):
        path.write_text(words)
    assert words == path.read_text()


def test_words_for_a_transformer() -> None:
    ids = torch.randint(0, 97, (4, 32))
    told = highwater.torch.plan(
        Gpt(), ids, optimizer=optim.AdamW, memory="3MiB", rates="A100", batches=(1, 8), largest_batch=True
    )
    check_words("gpt.txt", str(told))
    assert told.fits and told.largest_batch is not None
    assert told.parameter_bytes == sum(p.nbytes for p in Gpt().parameters())
    assert told.state_bytes == 2 * told.parameter_bytes + 4 * len(list(Gpt().parameters()))
    assert json.loads(json.dumps(told.to_dict()))["kept_bytes"] == told.kept_bytes
    # Other sizes are those of a model that is traced at them.
    for size, needs in told.batches.items():
        alone = highwater.torch.plan(Gpt(), torch.randint(0, 97, (size, 32)), optimizer=optim.AdamW, rates="A100")
        assert needs.kept_bytes == alone.kept_bytes
        assert needs.floor_bytes == pytest.approx(alone.floor_bytes, rel=0.02)
    # It is found by sizes that two traces tell: another search may find a little less.
    for size, fits in ((told.largest_batch, True), (told.largest_batch * 5 // 4, False)):
        needed = highwater.torch.plan(Gpt(), torch.randint(0, 97, (size, 32)), optimizer=optim.AdamW, rates="A100").floor_bytes
        assert (needed <= 3 << 20) == fits


@pytest.mark.parametrize("optimizer", [None, optim.AdamW])
def test_gradients_of_earlier_micro_batches_are_told(optimizer: type[optim.Optimizer] | None) -> None:
    model, batch = nn.Linear(64, 64), (torch.randn(4, 64), torch.randn(4, 64))

    def tell(steps: int) -> highwater.torch.Forecast:
        return highwater.torch.plan(model, batch, loss_fn=nn.MSELoss(), optimizer=optimizer, gradient_accumulation_steps=steps)

    size = sum(parameter.nbytes for parameter in model.parameters())
    assert tell(1).gradient_bytes == 0 and "micro-batches" not in str(tell(1))
    assert tell(2).gradient_bytes == size and "16.2 KiB  gradients of earlier micro-batches" in str(tell(2))
    assert tell(2).kept_bytes >= tell(1).kept_bytes + (size if optimizer is None else 0)


def test_each_amount_of_the_table_is_enough() -> None:
    # A dropout that runs again needs the state of the generator, which the planner does not see.
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, 16))
    batch = torch.randn(64, 16), torch.randn(64, 16)

    def tell(memory: int | None = None) -> highwater.torch.Forecast:
        return highwater.torch.plan(model, batch, loss_fn=nn.MSELoss(), optimizer=optim.Adam, device="cpu", memory=memory)

    table, least = tell().ladder, tell().floor_bytes
    assert len(table) > 2 and table[-1][0] == least
    for amount, seconds in table:
        told = tell(amount)
        assert told.fits and told.seconds is not None and told.seconds <= seconds


def test_words_for_what_does_not_fit() -> None:
    told = highwater.torch.plan(UNet().to("meta"), torch.empty(2, 3, 16, 16, device="meta"), loss_fn=None, memory="100KiB")
    check_words("unet.txt", str(told))
    assert not told.fits and told.seconds is None


def test_it_tells_what_a_step_takes() -> None:
    model, data = Gpt(), torch.randint(0, 97, (4, 32))
    told = highwater.torch.plan(model, data, optimizer=optim.AdamW)
    step = highwater.torch.step(model, None, optim.AdamW(model.parameters()), memory="1GiB")
    step(data)
    # But for what kernels take for a while, which only runs tell.
    assert told.kept_bytes == pytest.approx(step.reports[0].live_bytes, rel=0.01)
    # The least that a search finds depends on what kernels take, by some percent.
    assert told.floor_bytes == pytest.approx(step.reports[0].floor_bytes, rel=0.1)


@pytest.mark.parametrize("way", ["full", "lora"])
def test_a_llama_of_8_billion_parameters(way: str) -> None:
    program = [sys.executable, str(HERE / "llama_8b.py"), f"--{way}"]
    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=HERE)
    told = json.loads(done.stdout)
    check_words(f"llama-8b-{way}.txt", told["words"])
    assert told["bytes"] < 2 << 30


def test_nothing_is_allocated_and_nothing_changes() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(1 << 15, 1 << 15) for _ in range(4)))
    told = highwater.torch.plan(
        model, (torch.empty(8, 1 << 15), torch.empty(8, 1 << 15)), loss_fn=nn.MSELoss(), optimizer=optim.SGD, device="cuda", rates="H100"
    )
    assert told.kept_bytes > 16 << 30 and told.device == "cuda"
    assert all(p.device.type == "meta" and p.grad is None for p in model.parameters())


def test_frozen_parameters_have_no_gradients() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    whole = highwater.torch.plan(model, torch.empty(4, 256), loss_fn=None, optimizer=optim.AdamW)
    model[0].requires_grad_(False)
    part = highwater.torch.plan(model, torch.empty(4, 256), loss_fn=None, optimizer=optim.AdamW)
    assert part.state_bytes < whole.state_bytes * 0.6
    assert part.kept_bytes < whole.kept_bytes


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if x.sum() > 0:
            x = x * 2
        return x.sum()


def test_what_cannot_be_told() -> None:
    with pytest.raises(highwater.torch.GraphBreak, match=r"(?s)not one graph.*test_torch_plan\.py.*x\.sum\(\) > 0"):
        highwater.torch.plan(Broken(), torch.empty(4, 8))
    frozen = nn.Linear(8, 8).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter requires a gradient"):
        highwater.torch.plan(frozen, torch.empty(4, 8))
    with pytest.raises(ValueError, match="choose one of H200"):
        highwater.torch.plan(nn.Linear(8, 8), torch.empty(4, 8), rates="abacus")


def test_attention_on_a_gpu_holds_no_scores() -> None:
    """By the kernels that it has there, whatever this machine has."""

    def told(dtype: torch.dtype, length: int, device: str, **inputs: Tensor) -> highwater.torch.Forecast:
        torch._dynamo.reset()
        with torch.device("meta"):
            model = Attending().to(dtype)
            x = torch.empty(2, length, 64, dtype=dtype)
        return highwater.torch.plan(model, {"x": x, **inputs}, device=device, rates="H100" if device == "cuda" else "cpu")

    for dtype in (torch.bfloat16, torch.float32):
        on_cuda, longer = (told(dtype, length, "cuda") for length in (512, 1024))
        scores = 2 * 4 * 512 * 512 * dtype.itemsize
        rest = on_cuda.library_bytes + on_cuda.parameter_bytes
        assert on_cuda.kept_bytes - rest < scores < told(dtype, 512, "cpu").kept_bytes
        # Twice the length, twice the bytes.
        assert longer.kept_bytes - rest == pytest.approx(2 * (on_cuda.kept_bytes - rest), rel=0.05)
        kernels = {holder.operation for holder in on_cuda.holders}
        assert ("flash" if dtype == torch.bfloat16 else "efficient") in " ".join(kernels), kernels
        assert on_cuda.library_bytes == 66 << 20 and on_cuda.kept_bytes % 512 == 0
    mask = torch.ones(512, 512, dtype=torch.bool, device="meta")
    assert "efficient" in " ".join(holder.operation for holder in told(torch.bfloat16, 512, "cuda", mask=mask).holders)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 3 * 64)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.inner(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, mask, 0.1, is_causal=mask is None)
        return attended.float().square().sum()


def test_host_memory_makes_room_for_states_and_activations() -> None:
    model, ids = Gpt(layers=4, width=64), torch.randint(0, 97, (4, 32))
    alone, beside = (
        highwater.torch.plan(model, (ids,), optimizer=torch.optim.AdamW, host_memory=host) for host in (0, "1GiB")
    )
    assert beside.floor_bytes < alone.floor_bytes - alone.state_bytes * 3 // 4
    told = highwater.torch.plan(model, (ids,), optimizer=torch.optim.AdamW, memory=alone.floor_bytes, host_memory="1GiB")
    assert told.fits and told.moved_bytes
    assert "copied to the host and back" in str(told)
    assert "optimizer's state, which may wait on the host" in str(told)
