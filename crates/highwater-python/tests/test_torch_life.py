"""What ordinary programs do with a compiled model, beside eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._device.allocated import allocated
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


Program = Callable[[nn.Module, Callable[..., Tensor]], list[Tensor]]


def check(make: Callable[[], nn.Module], program: Program, dynamic: bool | None = False) -> None:
    """That a program answers the same of an eager model and of compiled ones, and leaves the same state."""
    torch.manual_seed(1)
    model = make()

    def run(memory: int | None) -> tuple[list[Tensor], list[highwater.torch.Report]]:
        torch._dynamo.reset()
        ours, reports = copy.deepcopy(model), []
        call: Callable[..., Tensor] = ours
        if memory is not None:
            backend = highwater.torch.backend(memory)
            call, reports = torch.compile(ours, backend=backend, dynamic=dynamic), backend.reports
        torch.manual_seed(2)
        answers = program(ours, call)
        answers += [p.grad for p in ours.parameters() if p.grad is not None]
        return [*answers, *ours.state_dict().values(), torch.rand(1)], reports

    expected, _ = run(None)
    answers, reports = run(8 << 30)
    least = max(report.floor_bytes for report in reports)
    for found in (answers, run(least)[0]):
        assert len(found) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))


def one_step(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
    call(torch.randn(16, 8)).square().mean().backward()
    return []


def test_gradients_add_up_over_micro_batches() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        for _ in range(3):
            call(torch.randn(16, 8)).square().mean().backward()
        return []

    check(mlp, program)


def test_two_forwards_before_one_backward() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        (call(torch.randn(16, 8)).mean() + call(torch.randn(16, 8)).square().mean()).backward()
        return []

    check(mlp, program)


def test_backward_twice_with_retain_graph() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        loss = call(torch.randn(16, 8)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return []

    check(mlp, program)


def test_inputs_get_gradients() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        x = torch.randn(16, 8, requires_grad=True)
        call(x).square().mean().backward()
        assert x.grad is not None
        return [x.grad]

    check(mlp, program)


def test_frozen_weights() -> None:
    def make() -> nn.Module:
        model = mlp()
        for p in list(model.parameters())[:2]:
            p.requires_grad_(False)
        return model

    check(make, one_step)


def test_autocast() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss = call(torch.randn(16, 8)).float().square().mean()
        loss.backward()
        return [loss.detach()]

    check(mlp, program)


def test_the_backward_is_outside_of_autocast() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss = call(torch.randn(2, 8, 16)).float().square().mean()
        loss.backward()
        return [loss.detach()]

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    check(Attention, program)


@pytest.mark.parametrize("half", [False, True])
def test_dropout_rounds_as_eager_does(half: bool) -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = call(torch.randn(64, 8)).square().mean()
        loss.backward()
        return [loss.detach()]

    # 1 / (1 - 0.15) is not the same rounded before as after.
    check(lambda: nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.15), nn.Linear(64, 8)), program)


def test_evaluation_without_gradients() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        call(torch.randn(16, 8)).square().mean().backward()
        model.eval()
        with torch.no_grad():
            return [call(torch.randn(4, 8))]

    check(mlp, program)


def test_what_wants_no_gradients_is_bounded_too() -> None:
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)), nn.Linear(256, 4096)).eval()
    backend = highwater.torch.backend("1GiB")
    x = torch.randn(512, 256)
    with torch.no_grad():
        torch.compile(model, backend=backend)(x)
        (report,) = backend.reports
        # The last layer's answer, and what it reads.
        assert report.live_bytes - report.given_bytes == 4 * 512 * (4096 + 256)
        torch._dynamo.reset()
        with pytest.raises(highwater.torch.OverBudget):
            torch.compile(model, backend=highwater.torch.backend("8MiB"))(x)
        model.register_buffer("seen", torch.zeros(4096))

        def counting(x: Tensor) -> Tensor:
            y = model(x)
            model.seen.add_(y.mean(0))
            return y * model.seen

        expected = counting(x), model.seen.clone()
        model.seen.zero_()
        assert torch.equal(torch.compile(counting, backend=backend)(x), expected[0])
        assert torch.equal(model.seen, expected[1])


@pytest.mark.parametrize("dynamic", [False, None, True])
def test_shapes_that_change(dynamic: bool | None) -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        for rows in (4, 16, 9):
            call(torch.randn(rows, 8)).square().mean().backward()
        return []

    check(mlp, program, dynamic)


def test_each_size_has_a_plan_of_its_own() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend)
    for rows in (8, 16, 500, 100, 500, 16):
        inputs = torch.randn(rows, 64)
        call(inputs).sum().backward()
        model.zero_grad()
    told = [report.live_bytes - report.given_bytes for report in backend.reports]
    assert len(told) == 4 and told[2] > 4 * told[1]
    torch._dynamo.reset()
    call = torch.compile(model, backend=highwater.torch.backend(backend.reports[1].live_bytes))
    for rows in (8, 16):
        call(torch.randn(rows, 64))
    with pytest.raises(highwater.torch.OverBudget):
        call(torch.randn(2000, 64))


class NextToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.out = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.out(self.tokens(ids).tanh()).flatten(0, 1), targets.flatten())


def test_inputs_that_are_views_of_one_tensor() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        text = torch.randint(0, 20, (4, 9))
        call(text[:, :-1], text[:, 1:]).backward()
        return []

    check(NextToken, program)


@torch.library.custom_op("highwater_tests::noise", mutates_args=())
def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


noise.register_fake(torch.empty_like)
noise.register_autograd(lambda _, grad: grad)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = noise(layer(x)).tanh().exp().sigmoid() * x
        return x


def test_what_others_draw_is_drawn_once() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        call(torch.randn(64, 32)).square().mean().backward()
        return []

    check(Noisy, program)


def test_running_statistics_of_instances() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        for _ in range(2):
            call(torch.randn(2, 8, 4)).square().mean().backward()
        return []

    check(lambda: nn.InstanceNorm1d(8, affine=True, track_running_stats=True), program)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def test_batch_norms_are_computed_again_and_their_statistics_written_once() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        for _ in range(2):
            call(torch.randn(4, 8, 16, 16)).square().mean().backward()
        return []

    check(Normed, program)
    backend = highwater.torch.backend("1GiB")
    torch._dynamo.reset()
    torch.compile(Normed(), backend=backend, dynamic=False)(torch.randn(4, 8, 16, 16)).sum().backward()
    (report,) = backend.reports
    # Without that it is two thirds.
    assert report.floor_bytes - report.given_bytes < 0.45 * (report.live_bytes - report.given_bytes)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        h = x.to(torch.complex64) @ self.weight
        return (h.conj().T @ h).imag.tanh()


def test_complex_numbers() -> None:
    check(Complex, one_step)


class Views(nn.Module):
    """Views of inputs, of results and of parameters; what is written in place; several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = x.split(4, 1)
        h = torch.cat([b, a], 1) @ self.weight.t()
        h[:, 2:4].mul_(2)
        self.seen.add_(h.detach().mean(0))
        y = h.transpose(0, 1)[1:3].exp()
        return h.view(-1), y, h * self.seen


def test_views_and_writes() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        answers = []
        for _ in range(2):
            flat, y, z = call(torch.randn(6, 8))
            (flat.mean() + y.sum() * 0.1 + z.square().mean()).backward()
            answers += [flat.detach(), y.detach(), z.detach()]
        return answers

    check(Views, program)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: F.dropout(layer(x).tanh(), 0.1), x, use_reentrant=False)
        return x


def test_checkpoints_in_the_model() -> None:
    check(Checkpointed, one_step)


class Random(nn.Module):
    """Several ways to draw numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(x @ self.weight, 0.5) + torch.rand_like(x)
        h = F.dropout1d(h[None], 0.3)[0].tanh() * torch.bernoulli(torch.full_like(h, 0.7))
        return F.rrelu(h @ self.weight, training=True) + torch.randn(8)


def test_random_numbers_are_drawn_in_order() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        for _ in range(2):
            call(torch.randn(16, 8)).square().mean().backward()
        return []

    check(Random, program)


class Waves(nn.Module):
    """The sines of its backward go over what the forward saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).cos()
        return x


def test_backward_twice_over_what_a_plan_overwrites() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        loss = call(torch.randn(64, 64)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return []

    check(Waves, program)


class Spread(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.layer_norm(x, (8,)).bfloat16()
        return 1.1 * (h.var(0) + 0.3 * h.exp().var(0)).tanh()


def test_gradients_in_bfloat16_of_what_is_scaled_by_a_number() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        x = torch.randn(10, 8, requires_grad=True)
        (call(x) * torch.randn(8)).sum().backward()
        assert x.grad is not None
        return [x.grad]

    check(Spread, program)


class Repeated(nn.Module):
    """Its backward asks for the size of what is gone by then."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).repeat(x.shape[0] // 4 + 1, 1)[: x.shape[0]].tanh()


def test_sizes_of_what_is_gone() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        for rows in (8, 12):
            call(torch.randn(rows, 8)).square().mean().backward()
        return []

    check(Repeated, program, dynamic=True)


class Reshaped(nn.Module):
    """Answers what a kernel may write over a view."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = x @ self.weight
        return (h.repeat(2, 1).view(-1, 4) + 1).view(-1) * 1, h * 2


def test_who_called_may_write_to_the_answers() -> None:
    def program(model: nn.Module, call: Callable[..., Tensor]) -> list[Tensor]:
        first, second = call(torch.randn(16, 8))
        (first.mul_(0.5).square().mean() + second.mul_(3).sum()).backward()
        return []

    check(Reshaped, program)


class Squared(nn.Module):
    """`mse_loss` answers a number in a storage of many; the gradient of a mean is one number, expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        h = x @ self.weight
        return (h * F.mse_loss(h, h.detach().sigmoid())).square().mean()


def test_the_peak_counts_what_results_hold() -> None:
    model, x = Squared(), torch.randn(128, 64)
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend, dynamic=False)
    call(x).backward()
    model.zero_grad()
    _, most, _ = allocated(lambda: call(x).backward())
    (report,) = backend.reports
    assert report.given_bytes + most <= 1.01 * report.live_bytes
