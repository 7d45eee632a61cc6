"""Where results lie in memory: as kernels put them, which is not always what PyTorch traces."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._autograd import layouts, like_eager
from highwater.torch._device.allocated import allocated
from torch import Tensor, fx, nn, optim
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "soft margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
    "binary": F.binary_cross_entropy_with_logits,
    "probabilities": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "divergence": lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "poisson": F.poisson_nll_loss,
}


class Turned(nn.Module):
    """Layers whose result lies turned around."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.drop, self.after = nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.drop(self.before(x)).transpose(0, 1)).transpose(0, 1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return self.last(x, x, x)[0]


def convolutions() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1))
    return model.to(memory_format=torch.channels_last)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "turned": (Turned, (3, 7, 8), (3, 7, 8)),
    "attention": (Attention, (3, 7, 8), (3, 7, 8)),
    "channels last": (convolutions, (2, 3, 8, 8), (2, 4, 8, 8)),
}


def bytes_of(*tensors: Tensor) -> int:
    return sum({tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}.values())


@pytest.mark.parametrize(
    ("name", "loss"), [("attention", "mse"), *((name, loss) for name in ("turned", "channels last") for loss in ("mse", "smooth l1", "huber", "probabilities"))]
)
def test_losses_of_results_of_any_layout(name: str, loss: str) -> None:
    make, *sizes = MODELS[name]
    torch.manual_seed(0)
    first, (x, y) = make(), (torch.randn(size) for size in sizes)
    expected = copy.deepcopy(first)
    torch.manual_seed(1)
    LOSSES[loss](expected(x), y).backward()
    optim.SGD(expected.parameters(), 0.1).step()

    def run(memory: int) -> highwater.torch.Step:
        torch._dynamo.reset()
        ours = copy.deepcopy(first)
        step = highwater.torch.step(ours, LOSSES[loss], optim.SGD(ours.parameters(), 0.1), memory=memory)
        torch.manual_seed(1)
        step(x, y)
        assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), expected.state_dict().values(), strict=True))
        before = bytes_of(*ours.parameters(), *ours.buffers(), x, y)
        _, most, _ = allocated(lambda: step(x, y))
        assert before + most <= min(memory, step.reports[-1].live_bytes)
        return step

    run(run(1 << 30).reports[-1].floor_bytes)


class Checked(fx.Interpreter):
    """Runs a graph, and compares what lies where."""

    def run_node(self, n: fx.Node) -> Any:
        found, traced = super().run_node(n), n.meta.get("val")
        if isinstance(found, Tensor) and isinstance(traced, Tensor):
            lies = [[(size, step) for size, step in zip(one.shape, one.stride()) if size != 1] for one in (found, traced)]
            assert lies[0] == lies[1], f"{n.target}: {lies[0]}, not {lies[1]}"
        return found


def checked(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    layouts.read_as_it_lies(module.graph)
    module.graph.eliminate_dead_code()
    return make_boxed_func(Checked(module).run)  # type: ignore[no-any-return]


def turned(x: Tensor) -> Tensor:
    """The same numbers, column by column."""
    return x.mT.contiguous().mT


REDUCED = {
    f"{function.__name__}, {reduction}": partial(function, reduction=reduction)
    for function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
    for reduction in ("mean", "none")
}



def normed(x: Tensor, y: Tensor) -> Tensor:
    return F.batch_norm(x[..., None], None, None, training=True).squeeze(-1) * y


FUNCTIONS: dict[str, Callable[..., Tensor]] = LOSSES | REDUCED | {
    "weighed probabilities": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), y.mean(0).sigmoid()),
    "probabilities, none": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    "hardswish": lambda x, y: F.hardswish(x) * y,
    "hardtanh": lambda x, y: F.relu6(x) * y,
    "log sigmoid": lambda x, y: F.logsigmoid(x) * y,
    "gates": lambda x, y: F.glu(torch.cat([x, y], 1), 1),
    "log softmax": lambda x, y: x.log_softmax(1) * y,
    "layer norm": lambda x, y: F.layer_norm(x, x.shape[-1:]) * y,
    "batch norm": normed,
    "each pixel": lambda x, y: F.nll_loss(x[..., None].log_softmax(1), y[:, 0, :, None].gt(0).long(), reduction="none"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_traced_lies_as_kernels_put_it(name: str) -> None:
    function = FUNCTIONS[name]
    compile = aot_autograd(fw_compiler=checked, bw_compiler=checked)
    for order in (lambda x, y: (turned(x), y), lambda x, y: (x, turned(y)), lambda x, y: (turned(x), turned(y))):
        x, y = order(torch.randn(3, 4, 5), torch.randn(3, 4, 5))
        torch._dynamo.reset()
        call = torch.compile(function, backend=partial(like_eager.traced_like_eager, compile))
        for gradient in (torch.ones, lambda *size: turned(torch.ones(*size))):
            result = call(x.requires_grad_(), y)
            result.backward(gradient(*result.shape) if result.dim() else None)


PIXELS: dict[str, Callable[[Tensor], Tensor]] = {
    "reflected": lambda x: F.pad(x, (1, 1) * (x.dim() - 2), "reflect"),
    "replicated": lambda x: F.pad(x, (1, 1) * (x.dim() - 2), "replicate"),
    "padded": lambda x: F.pad(x, (1, 1) * (x.dim() - 2)),
    "shuffled": lambda x: F.channel_shuffle(x, 2),
}


@pytest.mark.parametrize("dims", [4, 5])
@pytest.mark.parametrize("name", PIXELS)
def test_pixels_lie_as_kernels_put_them(name: str, dims: int) -> None:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}[dims]
    call = torch.compile(PIXELS[name], backend=partial(like_eager.traced_like_eager, aot_autograd(fw_compiler=checked, bw_compiler=checked)))
    for format in (torch.contiguous_format, last):
        for of_gradient in (torch.contiguous_format, last):
            x = torch.randn((2, 4, 3, 5, 4)[:dims]).contiguous(memory_format=format).requires_grad_()
            result = call(x)
            result.backward(torch.randn(result.shape).contiguous(memory_format=of_gradient))
