"""Failed calls raise eager PyTorch's error, with the side effects that eager PyTorch has by then. Where eager PyTorch would
not fail, nothing changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
from highwater.torch._dynamo.undone import undone_if_returned
from torch import Tensor, nn, optim

WAYS = ["backend", "step", "plan"]
RAN: list[int] = []


@torch.library.custom_op("test_failed::faked", mutates_args=())
def faked(x: Tensor) -> Tensor:
    RAN.append(1)
    return x * 2


@faked.register_fake
def _(x: Tensor) -> Tensor:
    raise RuntimeError("sizes must be known")


class Model(nn.Module):
    def __init__(self, use: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.norm, self.use = nn.Linear(4, 4), nn.BatchNorm1d(4), use
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("after", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        x = self.norm(self.layer(x + torch.rand(4) * random.random()))
        x = self.use(self, x)
        self.after.add_(1)
        return x.square().mean()


def fail(model: Any, x: Tensor) -> Tensor:
    raise KeyError("weights")


# What a model does in the middle, and whether eager PyTorch raises an exception there.
USES: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "a parameter in place": (lambda model, x: x * model.layer.weight.mul_(0.5).sum(), True),
    "a parameter clamped": (lambda model, x: x * model.layer.weight.clamp_(-1, 1).sum(), True),
    "a part of a parameter": (lambda model, x: x * model.layer.weight[0].zero_().sum(), True),
    "one of several views": (lambda model, x: x.unbind(0)[0].add_(1), True),
    "shapes": (lambda model, x: x @ torch.ones(3, 3), True),
    "an index": (lambda model, x: x[:, 7], True),
    "the user's own": (fail, True),
    "gradients of whole numbers": (lambda model, x: x * x.long().requires_grad_(), True),
    "a device that is not here": (lambda model, x: x.to("cuda"), True),
    "made on such a device": (lambda model, x: x + torch.ones(4, device="cuda"), True),
    "a device of no such name": (lambda model, x: x.to("gpu"), True),
    "a dtype of no such name": (lambda model, x: x.to("float31"), True),
    "two devices": (lambda model, x: x + torch.ones(4, device="meta"), True),
    "a leaf that is none": (lambda model, x: x.requires_grad_(False), True),
    "an inverse of no matrix": (lambda model, x: x @ torch.linalg.inv(x), True),
    "a fake implementation": (lambda model, x: faked(x), False),
}
# What tensors without data, which `plan` has alone, are told otherwise, or not at all.
ELSEWHERE = {"a device that is not here", "made on such a device", "two devices"}


def run(use: Callable[[Any, Tensor], Tensor], way: str) -> tuple[BaseException | None, list[Any]]:
    """What a call raises, and all that it may have changed."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    random.seed(0)
    RAN.clear()
    model, x, found = Model(use), torch.ones(8, 4), None
    optimizer = optim.SGD(model.parameters(), 0.1)
    calls: dict[str, Callable[[], Any]] = {
        "eager": lambda: model(x),
        "backend": lambda: torch.compile(model, backend=highwater.torch.backend("1GiB"))(x),
        "step": lambda: highwater.torch.step(model, None, optimizer, memory="1GiB")(x),
        "plan": lambda: highwater.torch.plan(model, x, memory="1GiB"),
        "nothing": lambda: None,
    }
    try:
        calls[way]()
    except Exception as error:
        found = error
    tensors = [value.clone() for value in model.state_dict().values()]
    return found, [*tensors, torch.get_rng_state(), torch.tensor(random.random()), torch.tensor(len(RAN))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", USES)
def test_a_failed_call_is_as_in_eager_mode(name: str, way: str) -> None:
    use, raises = USES[name]
    expected, before = run(use, "eager"), run(use, "nothing")[1]
    assert (expected[0] is not None) == raises
    error, found = run(use, way)
    if raises:
        assert type(error) is type(expected[0]) or way == "plan" and name in ELSEWHERE and error, error
    else:
        assert isinstance(error, highwater.torch.CannotPlan) and "test_torch_failed_calls.py:" in str(error) and "sizes must be known" in str(error)
    wanted = expected[1] if raises and way != "plan" else before
    assert all(map(torch.equal, found, wanted))


class Watch(torch.autograd.Function):
    """Its backward writes to a buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seen: Tensor, by: str) -> Tensor:
        ctx.seen, ctx.by = seen, by
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.seen.add_(grads[0].abs().sum() if ctx.by == "a gradient" else 1)
        return grads[0], None, None


@pytest.mark.parametrize("forward_writes", [False, True])
@pytest.mark.parametrize("by", ["a gradient", "a number"])
@pytest.mark.parametrize("way", ["backend", "step"])
def test_a_backward_that_writes_is_refused(by: str, forward_writes: bool, way: str) -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if forward_writes:
                self.seen.add_(1)
            watched: Tensor = Watch.apply(self.first(x).tanh(), self.seen, by)  # type: ignore[no-untyped-call]
            return self.second(watched).square().mean()

    torch._dynamo.reset()
    model, x = Watched(), torch.ones(2, 4)
    with pytest.raises(highwater.torch.CannotPlan, match=r"custom function at \S*test_torch_failed_calls.py:\d+ writes to"):
        if way == "step":
            highwater.torch.step(model, None, optim.SGD(model.parameters(), 0.1), memory="1GiB")(x)
        else:
            torch.compile(model, backend=highwater.torch.backend("1GiB"))(x).backward()
    assert model.seen == 0


def test_what_a_call_has_written_is_undone() -> None:
    weights, norm = torch.ones(4), nn.BatchNorm1d(3)
    part, states = weights.view(2, 2), (torch.get_rng_state(), random.getstate())
    with undone_if_returned():
        part.mul_(3)
        weights[1] = 7
        norm(torch.randn(5, 3) + random.random())
        (weights * 2).add_(1)
    assert weights.tolist() == [1] * 4 and not norm.num_batches_tracked and not norm.running_mean.any()  # type: ignore[union-attr]
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    with pytest.raises(KeyError), undone_if_returned():
        part.add_(1)
        raise KeyError
    assert weights.tolist() == [2] * 4
