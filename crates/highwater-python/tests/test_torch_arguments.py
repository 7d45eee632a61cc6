"""What users may pass by mistake: each is a clear error before anything is done, or right."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections import UserDict
from decimal import Decimal
from typing import Any

import highwater.torch
import numpy as np
import pytest
import torch
from highwater.torch._forecast.batches import resized
from highwater.torch._messages.amounts import parse
from torch import Tensor, nn, optim

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("8", 8), (8, 8), (0, 0), (8e9, 8 * 10**9), ("8e9", 8 * 10**9), ("8000000000.0", 8 * 10**9), ("8_000", 8000), ("+8 B", 8),
        ("8GiB", 8 * GIB), ("8 gib", 8 * GIB), ("8GIB", 8 * GIB), ("8G", 8 * GIB), ("8g", 8 * GIB), ("8Gi", 8 * GIB), ("0.5GiB", GIB // 2),
        (".5GiB", GIB // 2), ("1.5e1GiB", 15 * GIB), (" 3 MiB\n", 3 << 20), ("8GB", 8 * 10**9), ("8gb", 8 * 10**9), ("1kB", 1000),
        (np.int64(7), 7), (np.float32(8), 8), (torch.tensor(9), 9), ("0.1KiB", 102),
    ],
)  # fmt: skip
def test_amounts_of_memory(text: Any, bytes: int) -> None:
    assert highwater.torch.backend(text).memory == bytes


@pytest.mark.parametrize(
    "memory",
    ["", "GiB", "8 gigs", "8GiBs", "8,5GiB", "1 000", "inf", "nan", "-1", "-8GiB", "1.5", "1e400", "0x10", "٨GiB", -1, 0.5, math.nan, math.inf, 1 << 200],
)
def test_other_amounts_name_units_and_the_argument(memory: Any) -> None:
    with pytest.raises(ValueError, match=r"host_memory=.*KiB, MiB, GiB, TiB.*KB, MB, GB, TB"):
        highwater.torch.backend("1GiB", host_memory=memory)


@pytest.mark.parametrize("memory", [None, True, np.bool_(True), b"8GiB", [8], (8,), 8j, torch.tensor([8, 9]), Decimal(8), int])
def test_other_kinds_of_amounts(memory: Any) -> None:
    with pytest.raises(TypeError, match=r"^memory=.*KiB, MiB, GiB, TiB"):
        parse(memory)


MODEL, X = nn.Linear(8, 8), torch.randn(4, 8)
UNKNOWN_DEVICES = ["mps", "mps:0", "xpu", "hpu", "vulkan", "privateuseone", "meta", "xla", torch.device("mps"), "foo", "", "cuda:", "cuda:-1", "cuda:999", -1, 500]


@pytest.mark.parametrize("device", UNKNOWN_DEVICES, ids=str)
def test_other_devices_are_refused(device: Any) -> None:
    with pytest.raises(ValueError, match="device"):
        highwater.torch.plan(MODEL, (X, X), loss_fn=nn.MSELoss(), device=device)


def test_another_device_does_not_end_the_process() -> None:
    program = 'import torch, highwater.torch\nhighwater.torch.plan(torch.nn.Linear(8, 8), torch.randn(4, 8), device="mps")'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("""ValueError: device='mps', which cannot be planned: use "cpu" or "cuda"\n"""), done.stderr


@pytest.mark.parametrize("device", ["cpu", "cpu:1", "cuda", "cuda:7", torch.device("cuda", 3), 0])
def test_devices_that_are_planned_for(device: Any) -> None:
    told = highwater.torch.plan(MODEL, X, optimizer=optim.SGD, device=device)
    assert told.device == str(device if isinstance(device, (str, torch.device)) else f"cuda:{device}")


WRONG: list[dict[str, Any]] = [
    {"gradient_accumulation_steps": value} for value in (1.5, "2", True, None, [2], math.nan, 2.0)
] + [
    {"max_grad_norm": value} for value in ("1", True, [1.0], 1j)
] + [
    {"batches": value} for value in (8, "12", None, {1: 2}, (True,), ("a",), (1.5,), np.array(3), torch.tensor(3), np.array([[3]]))
] + [
    {"largest_batch": value} for value in (8, None, "yes")
] + [
    {"rates": value} for value in (3, highwater.torch.Rates, ["H100"])
] + [
    {"device": value} for value in (True, 1.5, ["cpu"], torch.device)
] + [
    {"loss_fn": value} for value in (nn.MSELoss, "mse", 3)
] + [
    {"optimizer": value} for value in ("adamw", 3, lambda parameters: None)
] + [
    {"inputs": value} for value in (None, "x", 3, X.numpy(), (value for value in (X, X)), {X}, {1: X}, (X,), {"input": X}, (X.numpy(), X))
] + [
    {"model": value} for value in (None, nn.Linear, lambda x: x, "gpt2", [MODEL])
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=", ".join)
def test_wrong_kinds(wrong: dict[str, Any]) -> None:
    arguments = {"model": MODEL, "inputs": (X, X), "loss_fn": nn.MSELoss(), "optimizer": optim.SGD, **wrong}
    with pytest.raises(TypeError, match=rf"^({'|'.join(wrong)}|with a loss_fn)\b"):
        highwater.torch.plan(arguments.pop("model"), arguments.pop("inputs"), **arguments)


WRONG_IN_A_STEP: list[dict[str, Any]] = [
    {"gradient_accumulation_steps": value} for value in (1.5, "2", True, None, [2], math.nan, 2.0)
] + [
    {"max_grad_norm": value} for value in ("1", True, [1.0], 1j)
] + [
    {"memory": value} for value in (None, True, [8])
] + [
    {"host_memory": value} for value in (None, False, b"1GiB")
] + [
    {"accumulation": value} for value in (None, 2, ["mean"], torch.mean)
] + [
    {"scaler": value} for value in (True, 2.0**16, torch.amp.GradScaler, "cuda")
] + [
    {"clip_parameters": value} for value in (3, "all", MODEL, nn.Sequential(MODEL), [None], MODEL.named_parameters(), dict(MODEL.named_parameters()))
] + [
    {"loss_fn": value} for value in (nn.MSELoss, "mse", 3, optim.SGD(MODEL.parameters()))
] + [
    {"optimizer": value} for value in ("adamw", 3, optim.SGD, [], [optim.SGD], lambda parameters: None, [optim.SGD(MODEL.parameters()), "adamw"])
] + [
    {"model": value} for value in (None, nn.Linear, lambda x: x, "gpt2", [MODEL], torch.jit.script(nn.Linear(8, 8)))
]  # fmt: skip

OUT_OF_RANGE_IN_A_STEP: list[dict[str, Any]] = [
    {"gradient_accumulation_steps": 0}, {"gradient_accumulation_steps": -1}, {"max_grad_norm": -1}, {"max_grad_norm": math.nan}, {"memory": -1},
    {"memory": "8 gigs"}, {"host_memory": -1}, {"host_memory": "lots"}, {"accumulation": "average"}, {"clip_parameters": [nn.Parameter(X)]},
]  # fmt: skip


@pytest.mark.parametrize(("kind", "wrong"), [(TypeError, wrong) for wrong in WRONG_IN_A_STEP] + [(ValueError, wrong) for wrong in OUT_OF_RANGE_IN_A_STEP], ids=lambda part: part.__name__ if isinstance(part, type) else ", ".join(part))
def test_what_a_step_is_made_of(kind: type[Exception], wrong: dict[str, Any]) -> None:
    arguments = {"model": MODEL, "loss_fn": nn.MSELoss(), "optimizer": optim.SGD(MODEL.parameters()), "memory": "1GiB", **wrong}
    with pytest.raises(kind, match=rf"^{next(iter(wrong))}\b"):
        highwater.torch.step(arguments.pop("model"), arguments.pop("loss_fn"), arguments.pop("optimizer"), **arguments)


def test_numbers_of_a_step_may_be_numpys() -> None:
    model = nn.Linear(8, 8)
    step = highwater.torch.step(
        model, nn.MSELoss(), optim.SGD(model.parameters()), memory=np.int64(GIB), gradient_accumulation_steps=np.int64(2),  # type: ignore[arg-type]
        max_grad_norm=np.float32(0.5), clip_parameters=model.weight,
    )  # fmt: skip
    assert (step.gradient_accumulation_steps, step.max_grad_norm, len(step.clipped)) == (2, 0.5, 1)
    assert step.clipped[0] is model.weight


class Plain:
    """An optimizer of no class of PyTorch's."""

    def __init__(self, parameters: Any) -> None:
        self.param_groups = [{"params": list(parameters)}]
        self.state: dict[Any, Any] = {}

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                state = self.state.setdefault(parameter, {"sum": torch.zeros_like(parameter)})
                parameter -= 0.1 * state["sum"].add_(parameter.grad)

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None


class Called(Plain):
    def __call__(self) -> None:
        self.step()


class Own(optim.SGD):
    """A class of a user's."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


OPTIMIZERS = {
    "one": lambda: optim.AdamW(MODEL.parameters()),
    "several": lambda: [optim.AdamW([MODEL.weight]), optim.SGD([MODEL.bias], 0.1)],
    "a tuple": lambda: (optim.AdamW([MODEL.weight]), optim.SGD([MODEL.bias], 0.1)),
    "a function for several": lambda: lambda parameters: tuple(optim.AdamW([parameter]) for parameter in parameters),
    "no class of PyTorch's": lambda: Plain(MODEL.parameters()),
    "one that can be called": lambda: Called(MODEL.parameters()),
    "that class": lambda: Plain,
    "a user's": lambda: Own(MODEL.parameters(), 0.1, momentum=0.9),
    "a user's class": lambda: Own,
    "a partial": lambda: functools.partial(optim.AdamW, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_every_kind_are_planned(name: str) -> None:
    bare = highwater.torch.plan(MODEL, (X, X), loss_fn=nn.MSELoss())
    told = highwater.torch.plan(MODEL, (X, X), loss_fn=nn.MSELoss(), optimizer=OPTIMIZERS[name](), memory="1GiB")
    assert told.updates and told.fits and not bare.updates and told.parameter_bytes == bare.parameter_bytes
    assert told.state_bytes >= sum(parameter.nbytes for parameter in MODEL.parameters()) or name == "a user's class"
    assert all(parameter.grad is None for parameter in MODEL.parameters())


OUT_OF_RANGE: list[dict[str, Any]] = [
    {"gradient_accumulation_steps": 0}, {"gradient_accumulation_steps": -1}, {"max_grad_norm": -1}, {"max_grad_norm": math.nan},
    {"batches": (0, -1)}, {"batches": [4, 0]}, {"batches": [10**30]}, {"largest_batch": True}, {"rates": ""}, {"rates": "abacus"},
    {"memory": -1}, {"host_memory": -1}, {"inputs": (X.to_sparse(), X)}, {"model": nn.LazyLinear(8)}, {"model": nn.Flatten()},
    {"inputs": (X[:0], X[:0].clone())}, {"inputs": (torch.nested.nested_tensor([X, X], layout=torch.jagged), X)},
]  # fmt: skip


@pytest.mark.parametrize("wrong", OUT_OF_RANGE, ids=lambda wrong: str(list(wrong)))
def test_out_of_range(wrong: dict[str, Any]) -> None:
    arguments = {"model": MODEL, "inputs": (X, X), "loss_fn": nn.MSELoss(), "optimizer": optim.SGD, **wrong}
    with pytest.raises(ValueError):
        highwater.torch.plan(arguments.pop("model"), arguments.pop("inputs"), **arguments)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, *, x: Tensor) -> Tensor:
        return self.layer(x).sum()


@pytest.mark.parametrize("inputs", [{"x": X}, UserDict(x=X), {"x": X.to("meta")}], ids=["dict", "mapping", "meta"])
def test_keywords(inputs: Any) -> None:
    alone = highwater.torch.plan(Named(), {"x": X}, batches=[3])
    told = highwater.torch.plan(Named(), inputs, batches=(size for size in np.array([3])))
    assert (told.kept_bytes, told.batches) == (alone.kept_bytes, alone.batches)


def test_a_list_is_as_good_as_a_tuple() -> None:
    ways = [highwater.torch.plan(MODEL, inputs, loss_fn=nn.MSELoss(), optimizer=optim.SGD, max_grad_norm=math.inf) for inputs in ((X, X + 1), [X, X + 1])]
    assert ways[0] == ways[1]


def test_empty_batches() -> None:
    """What can be traced is planned; a mean over nothing is refused by a plan and a step alike."""
    nothing = torch.empty(0, 8), torch.empty(0, 8)
    told = highwater.torch.plan(MODEL, nothing, loss_fn=lambda out, target: (out * target).sum(), optimizer=optim.SGD, batches=[4])
    assert told.batch == 0 and told.input_bytes == 0 and told.batches[4].kept_bytes > told.kept_bytes
    torch._dynamo.reset()
    model = nn.Linear(8, 8)
    step = highwater.torch.step(model, nn.MSELoss(), optim.SGD(model.parameters()), memory="1GiB")
    with pytest.raises(highwater.torch.CannotPlan, match=r"an input has no elements: its shape is \(0, 8\)"):
        step(*nothing)


def test_inputs_keep_their_layout_and_one_that_comes_twice_is_one() -> None:
    image = torch.randn(4, 8, 16, 16).to(memory_format=torch.channels_last)
    one, (other, number), plain = resized((image, [image, 4], image.contiguous()), 4, 6, torch.device("cpu"))
    assert one is other and number == 4
    assert one.shape == plain.shape == (6, 8, 16, 16)
    assert one.is_contiguous(memory_format=torch.channels_last) and plain.is_contiguous()


RATES = {"flops": 1e12, "half_flops": 2e12, "bandwidth": 1e11}


@pytest.mark.parametrize("name", ["flops", "half_flops", "bandwidth", "host", "share", "launch"])
def test_rates(name: str) -> None:
    for value in (-1, math.nan, math.inf, *((0,) if name != "launch" else ()), *((1.5,) if name == "share" else ())):
        with pytest.raises(ValueError, match=f"{name}="):
            highwater.torch.Rates(**{**RATES, name: value})
    for wrong in ("1e12", None, True, [1.0]):
        with pytest.raises(TypeError, match=f"{name}="):
            highwater.torch.Rates(**{**RATES, name: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["graph_breaks", "kernels", "gradients"])
def test_words(name: str) -> None:
    for wrong in (True, None, ["refuse"], 3):
        with pytest.raises(TypeError, match=f"{name}="):
            highwater.torch.backend("1GiB", **{name: wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name}='other'"):
        highwater.torch.backend("1GiB", **{name: "other"})  # type: ignore[arg-type]
