"""What provokes each error and warning of the package, as a user would meet it.

An entry is a program: its text is on the page MESSAGES.md above what it raises. It runs after `SETUP`, in a file that
is called train.py for it. To add an error to the package, add an entry here, and run `python tests/provoked.py`.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import highwater.torch
import torch
from highwater.torch._device.device import Device

PACKAGE = Path(highwater.torch.__file__).parent
PAGE = Path(__file__).parents[1] / "MESSAGES.md"

SETUP = """
import torch
from torch import nn
from torch.optim import AdamW, SGD
from highwater.torch import Rates, allocated, backend, plan, step
mse = nn.MSELoss()
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
optimizer = SGD(model.parameters(), 0.1)
x, y = torch.randn(4, 8), torch.randn(4, 8)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
"""

# By heading: programs, each with one error or warning at its end.
ENTRIES: dict[str, list[str]] = {
    "Amounts of memory": [
        'backend("8 gigs")',
        'backend("eight")',
        "backend(None)",
        'step(model, mse, optimizer, memory="-8GiB")',
        'plan(model, x, host_memory=float("nan"))',
        "backend(0.8)",
        "backend(1 << 70)",
    ],
    "plan": [
        "plan(nn.Linear, x)",
        "plan(lambda x: x, x)",
        "plan(torch.jit.trace(model, x), x)",
        "plan(nn.LazyLinear(8), x)",
        "model.register_buffer('table', torch.eye(8).to_sparse())\nplan(model, x)",
        "import threading\nmodel.lock = threading.Lock()\nplan(model, x)",
        "plan(model.requires_grad_(False), x)",
        "plan(model, None)",
        "plan(model, x.numpy())",
        "plan(model, {0: x})",
        "plan(model, [x.numpy(), y], loss_fn=mse)",
        "plan(model, (x.to_sparse(), y), loss_fn=mse)",
        "plan(model, x, loss_fn=mse)",
        "plan(model, (x, y), loss_fn=nn.MSELoss)",
        'plan(model, (x, y), loss_fn="mse")',
        'plan(model, (x, y), loss_fn=mse, optimizer="adamw")',
        "plan(model, (x, y), loss_fn=mse, optimizer=lambda parameters: None)",
        'plan(model, x, device="mps")',
        'plan(model, x, device="gpu")',
        "plan(model, x, device=1.5)",
        'plan(model, x, rates="abacus")',
        "plan(model, x, rates=312e12)",
        'Rates(flops="19.5T", half_flops=312e12, bandwidth=2e12)',
        "Rates(flops=-1, half_flops=312e12, bandwidth=2e12)",
        "Rates(flops=19.5e12, half_flops=312e12, bandwidth=2e12, share=60)",
        "plan(model, (x, y), loss_fn=mse, optimizer=AdamW, gradient_accumulation_steps=1.5)",
        "plan(model, (x, y), loss_fn=mse, optimizer=AdamW, gradient_accumulation_steps=0)",
        'plan(model, (x, y), loss_fn=mse, optimizer=AdamW, max_grad_norm="1.0")',
        "plan(model, (x, y), loss_fn=mse, optimizer=AdamW, max_grad_norm=-1.0)",
        "plan(model, (x, y), loss_fn=mse, max_grad_norm=1.0)",
        "plan(model, x, batches=8)",
        "plan(model, x, batches=(0, -1))",
        "plan(model, x, batches=[10**15])",
        "plan(model, x, largest_batch=8)",
        "plan(model, x, largest_batch=True)",
        "class Scalar(Model):\n    def forward(self, scale):\n        return self.layer.weight.sum() * scale\nplan(Scalar(), torch.tensor(1.0), batches=[2])",
        "class Detached(Model):\n    def forward(self, x):\n        return self.layer(x).sum().detach()\nplan(Detached(), x)",
        "class Branching(Model):\n    def forward(self, x):\n        return x if x.sum() > 0 else self.layer(x)\nplan(Branching(), x)",
        "plan(model, (x[:0], y[:0]), loss_fn=mse)",
    ],
    "step": [
        'step(model, mse, memory="1GiB")',
        'step(model, optimizer, memory="1GiB")',
        'step(model, mse, SGD, memory="1GiB")',
        'step(model, mse, [], memory="1GiB")',
        'step(model, mse, torch.optim.lr_scheduler.StepLR(optimizer, 1), memory="1GiB")',
        'step(model, mse, model.parameters(), memory="1GiB")',
        'step(model, mse, [optimizer, AdamW(model[2].parameters())], memory="1GiB")',
        "class AcceleratedOptimizer(SGD):\n    scaler = torch.amp.GradScaler()\n"
        'step(model, mse, AcceleratedOptimizer(model.parameters(), 0.1), memory="1GiB")',
        'step(model, mse, optimizer, memory="1GiB", scaler=True)',
        'step(model, mse, optimizer, memory="1GiB", accumulation="average")',
        'step(model, mse, optimizer, memory="1GiB", max_grad_norm=1.0, clip_parameters=model.named_parameters())',
        'step(model, mse, optimizer, memory="1GiB", max_grad_norm=1.0, clip_parameters=[nn.Parameter(x)])',
        'step(model, mse, optimizer, memory="1GiB", gradient_accumulation_steps=0)',
        'step(model, mse, torch.optim.LBFGS(model.parameters()), memory="1GiB")',
        'step(nn.parallel.DistributedDataParallel(model), mse, optimizer, memory="1GiB")',
        'step(model, mse, optimizer, memory="1GiB")(x)',
        'step(model, None, optimizer, memory="1GiB")(x)',
        "class Logits(Model):\n    def forward(self, x):\n        return {'logits': self.layer(x)}\n"
        'model = Logits()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        'step(model, lambda out, y: (mse(out, y), out), optimizer, memory="1GiB")(x, y)',
        'step(model, lambda out, target: (out - target).sum() * 1j, optimizer, memory="1GiB")(x, y)',
        'step(model, lambda out, y: mse(out.detach(), y), optimizer, memory="1GiB")(x, y)',
        'mse(model(x), y).backward()\nstep(model, mse, optimizer, memory="1GiB")(x, y)',
        'step(model, mse, SGD(model[0].parameters(), 0.1), memory="1GiB")(x, y)',
        "weight = nn.Parameter(torch.ones(8))\n"
        'step(model, lambda out, y: mse(out * weight, y), optimizer, memory="1GiB")(x, y)',
        'step(model, mse, torch.optim.SparseAdam(model.parameters()), memory="1GiB")(x, y)',
        'model[0].bias.register_hook(print)\nstep(model, mse, optimizer, memory="1GiB")(x, y)',
        "class Branching(Model):\n    def forward(self, x):\n        return x if x.sum() > 0 else self.layer(x)\n"
        'model = Branching()\nstep(model, mse, SGD(model.parameters(), 0.1), memory="1GiB")(x, y)',
        'step(model, mse, optimizer, memory="1KiB")(x, y)',
        "def save(*_):\n    raise OSError('disk full')\noptimizer.register_step_post_hook(save)\n"
        'train = step(model, mse, optimizer, memory="1GiB")\ntry:\n    train(x, y)\nexcept OSError:\n    pass\ntrain(x, y)',
        "def stop(*_):\n    raise KeyboardInterrupt\n"
        'train = step(model, mse, optimizer, memory="1GiB", gradient_accumulation_steps=3)\ntrain(x, y)\n'
        "x.requires_grad_().register_hook(stop)\ntry:\n    train(x, y)\nexcept KeyboardInterrupt:\n    train.flush()",
        'import copy\ntrain = step(model, mse, optimizer, memory="1GiB", gradient_accumulation_steps=2)\ntrain(x, y)\ncopy.deepcopy(train)',
        "from torch.testing._internal.two_tensor import TwoTensor\n"
        'step(model, mse, optimizer, memory="1GiB")(TwoTensor(x, x.clone()), y)',
        "table = nn.Embedding(10, 8, sparse=True)\n"
        'step(table, mse, SGD(table.parameters(), 0.1), memory="1GiB")(torch.arange(4), y)',
        "class Chosen(Model):\n    def forward(self, x):\n        return self.layer(x)[x.sum(1) > 0].sum()\n"
        'model = Chosen()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "class Asked(Model):\n    def forward(self, x):\n        x = self.layer(x)\n        return (x if x.sum().item() > 0 else -x).sum()\n"
        'model = Asked()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nclass Cropped(Model):\n    def forward(self, x):\n        return self.layer(x)[random.randint(0, 2):].sum()\n"
        'model = Cropped()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "class Repeated(Model):\n    def forward(self, x):\n        return self.layer(x).repeat(int(x.sum().item() ** 2) + 1, 1).sum()\n"
        'model = Repeated()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "from torch._higher_order_ops.scan import scan\nclass Scanned(Model):\n    def forward(self, x):\n        def body(state, row):\n"
        "            state = torch.tanh(self.layer(state) + row)\n            return state, (state * 2).sin()\n        return scan(body, torch.zeros(8), x)[1].sum()\n"
        'model = Scanned()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        'model[0].register_full_backward_hook(lambda module, inputs, outputs: None)\nstep(model, mse, optimizer, memory="1GiB")(x, y)',
        "import random\nclass Sampled(Model):\n    def forward(self, x):\n        return self.layer(x)[random.sample(range(4), 2)].sum()\n"
        'model = Sampled()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nclass Weighed(Model):\n    def forward(self, x):\n        return self.layer(x).sum() * random.random()\n"
        'model = Weighed()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nclass Seeded(Model):\n    def forward(self, x):\n        torch.manual_seed(random.randint(0, 9))\n"
        "        return (self.layer(x) * torch.rand(8)).sum()\n"
        'model = Seeded()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nclass Powered(Model):\n    def forward(self, x):\n        return (self.layer(x) ** random.randint(1, 3)).sum()\n"
        'model = Powered()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nclass Chosen(Model):\n    def forward(self, x):\n        return self.layer(x).sum() * {0: 1.0, 1: 2.0}[random.randint(0, 1)]\n"
        'model = Chosen()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nclass Bounded(Model):\n    def forward(self, x):\n        return (self.layer(x) * random.uniform(0, random.random())).sum()\n"
        'model = Bounded()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "import random\nfrom torch.utils.checkpoint import checkpoint\nclass Either(Model):\n    def forward(self, x):\n"
        "        either = lambda x: torch.cond(random.random() < 0.5, self.layer, torch.tanh, (x,))\n        return checkpoint(either, x, use_reentrant=False).sum()\n"
        'model = Either()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "from torch.utils.checkpoint import checkpoint\nclass Dropped(Model):\n    def forward(self, x):\n"
        "        x = checkpoint(lambda x: nn.functional.dropout(self.layer(x)), x, use_reentrant=False)\n"
        "        if torch.rand(()) < 0.5:\n            x = self.layer(x)\n        return x.sum()\n"
        'model = Dropped()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        "class Lazy(Model):\n    generator = None\n    def forward(self, x):\n        if self.generator is None:\n"
        "            self.generator = torch.Generator().manual_seed(3)\n        return (self.layer(x) * torch.rand(8, generator=self.generator)).sum()\n"
        'model = Lazy()\nstep(model, None, SGD(model.parameters(), 0.1), memory="1GiB")(x)',
        'model = nn.Linear(8, 8, device="meta")\nstep(model, mse, SGD(model.parameters(), 0.1), memory="1GiB")(x.to("meta"), y.to("meta"))',
        "class Normed(Model):\n    def forward(self, x):\n        weight = self.layer.weight\n"
        "        weight.data = weight.data / weight.data.norm()\n        return self.layer(x)\n"
        'model = Normed()\nstep(model, mse, SGD(model.parameters(), 0.1), memory="1GiB")(x, y)',
        'train = step(model, mse, optimizer, memory="1GiB")\nwith torch.compiler.set_stance("force_eager"):\n    train(x, y)',
        'train = step(model, mse, optimizer, memory="1GiB")\nwith torch.autograd.detect_anomaly():\n    train(x, y)',
        'from torch.utils.flop_counter import FlopCounterMode\ntrain = step(model, mse, optimizer, memory="1GiB")\nwith FlopCounterMode(display=False):\n    train(x, y)',
    ],
    "backend": [
        'backend("1GiB", graph_breaks="allow")',
        'backend("1GiB")(model, [x])',
        "torch.compile(model, backend=backend)(x)",
        'backend(model, "1GiB")',
        'backend("1GiB", "separate")',
        "with torch._dynamo.config.patch(optimize_ddp=False):\n"
        '    torch.compile(nn.parallel.DistributedDataParallel(model), backend=backend("1GiB"))(x)',
        'backend("1GiB", graph_breaks="separate", gradients="loss")',
        'backend("1GiB", kernels="inductor", host_memory="1GiB")',
        'torch.compile(model, backend=backend("1GiB"), options={"memory": "2GiB"})(x)',
        'torch.compile(model, backend="highwater", options={"memory": "1GiB", "fullgraph": True})',
        'torch.compile(model, backend="highwater", options="1GiB")',
        'torch.compile(model, backend="highwater", mode="max-autotune")',
        'torch.compile(model, backend="highwater")',
        "torch.compile(model, backend=backend(8))(x)",
        "class Printing(Model):\n    def forward(self, x):\n        print(x.shape)\n        return self.layer(x)\n"
        'torch.compile(Printing(), backend=backend("1GiB"))(x)',
        "model[0].register_full_backward_hook(lambda layer, into, out: (into[0] * 2,))\n"
        'torch.compile(model, backend=backend("1GiB"))(x)',
        "class Cut(Model):\n    def forward(self, x):\n        with torch._dynamo.error_on_graph_break(False):\n"
        "            x = self.layer(x)\n            print(x.shape)\n        return self.layer(x)\n"
        'torch.compile(Cut(), backend=backend("1GiB"))(x)',
        "class Late(Model):\n    def forward(self, x):\n        with torch._dynamo.error_on_graph_break(False):\n"
        "            print(x.shape)\n        return self.layer(x)\n"
        'torch.compile(Late(), backend=backend("1GiB"))(x)',
        "class Outer(Model):\n    def forward(self, x):\n        x = self.layer(x)\n        torch._dynamo.graph_break()\n        return self.layer(x)\n"
        'torch.compile(Outer(), backend=backend("1GiB"))(x)',
        "class Layer(Model):\n    def forward(self, x):\n        return self.layer(x)\n"
        "class Skipped(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = nn.ModuleList([Layer(), Layer()])\n"
        "    @torch._dynamo.disable(recursive=False)\n    def forward(self, x):\n        for layer in self.layers:\n            x = layer(x)\n        return x\n"
        'torch.compile(Skipped(), backend=backend("1GiB"))(x)',
        'torch.compile(nn.LSTM(8, 8), backend=backend("1GiB"))(x)',
        "class Two(Model):\n    def forward(self, x):\n        x = self.layer(x)\n        return x.square().mean(), x\n"
        'loss, out = torch.compile(Two(), backend=backend("1GiB", gradients="loss"))(x)\nout.sum().backward()',
        "x = torch.randn(64, 8)\ntrial = backend('1GiB')\ntorch.compile(model, backend=trial, dynamic=False)(x).sum().backward()\n"
        "model.zero_grad()\ntorch._dynamo.reset()\n"
        "call = torch.compile(model, backend=backend(trial.reports[0].live_bytes), dynamic=False)\n"
        "(call(x).sum() + call(x + 1).sum()).backward()",
        "trial = backend('1GiB')\ntorch.compile(model, backend=trial, dynamic=False)(x).sum().backward()\n"
        "model.zero_grad()\ntorch._dynamo.reset()\n"
        "call = torch.compile(model, backend=backend(trial.reports[0].floor_bytes), dynamic=False)\n"
        "call(x).sum().backward()\ncall(x).sum().backward()",
        "def branch(x):\n    return torch.cond(x.sum() > 0, torch.sin, torch.cos, [x]).sum()\n"
        'torch.compile(branch, backend=backend("1GiB", kernels="inductor"))(x.requires_grad_()).backward()',
        "class Seeded(Model):\n    def forward(self, x):\n        torch.manual_seed(1)\n        return (self.layer(x) * torch.rand_like(x)).sum()\n"
        'torch.compile(Seeded(), backend=backend("1GiB", kernels="inductor"))(x).backward()',
        "from torch._inductor import config\nwith config.patch(custom_partitioner_fn=print):\n"
        '    torch.compile(model, backend=backend("1GiB", kernels="inductor"))(x)',
    ],
    "Inputs": [
        "class Twice(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
        "        return super().__torch_function__(function, types, args, kwargs or {}) * 2\n"
        'torch.compile(model, backend=backend("1GiB"))(x.as_subclass(Twice))',
        '@torch.library.custom_op("shop::shifted", mutates_args=())\ndef shifted(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n'
        "@shifted.register_fake\ndef _(x):\n    raise ValueError(\"too few rows\")\n"
        'torch.compile(lambda x: model(shifted(x)), backend=backend("1GiB"))(x)',
        "class Counted(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, count):\n        ctx.count = count\n        return x.clone()\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        ctx.count.add_(1)\n        return grad, None\ncount = torch.zeros(())\n"
        'torch.compile(lambda x: Counted.apply(model(x), count), backend=backend("1GiB"))(x)',
        "class Focal(Model):\n    def forward(self, x, gamma):\n        return (self.layer(x).sigmoid() ** gamma.item()).sum()\n"
        "with torch._dynamo.config.patch(capture_scalar_outputs=True):\n"
        '    torch.compile(Focal(), backend=backend("1GiB"))(x, torch.tensor(2.5))',
        "def normalize(x):\n    x.sub_(x.mean())\n    return model(x).sum()\n"
        'torch.compile(normalize, backend=backend("1GiB"))(torch.randn(30).as_strided((4, 8), (3, 1)))',
        "def normalize(x, bits):\n    x.sub_(x.mean())\n    return model(x).sum() + bits[0, 0]\n"
        'torch.compile(normalize, backend=backend("1GiB"))(x, x.view(torch.int32))',
        "class Ragged(Model):\n    def forward(self, words):\n        return self.layer(words).values().sum()\n"
        "words = torch.nested.nested_tensor([x, y], layout=torch.jagged)\n"
        'torch.compile(Ragged(), backend=backend("1GiB"))(words)',
        "from torch._custom_class_base import CustomClassBase\nfrom torch._library.opaque_object import register_custom_class\n"
        "class Table(CustomClassBase):\n    scale = 2.0\n"
        'register_custom_class(Table, typ="symbolic")\n'
        '@torch.library.custom_op("shop::scaled", mutates_args=())\n'
        "def scaled(x: torch.Tensor, table: Table) -> torch.Tensor:\n    return x * table.scale\n"
        "scaled.register_fake(lambda x, table: torch.empty_like(x))\n"
        'torch.compile(lambda x, table: model(scaled(x, table)), backend=backend("1GiB"))(x, Table())',
    ],
    "Several processes": [
        "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\n"
        'torch.compile(model, backend=backend("1GiB"))',
        'model.compile(backend=backend("1GiB"), dynamic=False)\n'
        "nn.parallel.DistributedDataParallel(model)(x)",
        "from torch.distributed.device_mesh import init_device_mesh\nfrom torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module\n"
        'model = parallelize_module(model, init_device_mesh("cpu", (1,)), {"2": ColwiseParallel()})\n'
        "plan(model, x)",
        "from torch.distributed.device_mesh import init_device_mesh\nfrom torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module\n"
        'model = parallelize_module(model, init_device_mesh("cpu", (1,)), {"2": ColwiseParallel()})\n'
        'torch.compile(model, backend=backend("1GiB"))(x)',
    ],
    "Host memory": [
        "from highwater.torch._device.transfers import Rooms\nrooms = Rooms(100)\nheld = rooms.take(90, False)\nrooms.take(20, False)",
        "from highwater.torch._device.transfers import Evict, Form, Stay, Transfers\n"
        "stay = Stay(0, 384, Form.of(torch.zeros(8, 12)))\n"
        "Evict(Transfers(1 << 20), stay)(torch.zeros(4096, dtype=torch.uint8), torch.zeros(8, 12).double())",
    ],
    "GPUs": [
        "from torch._subclasses.fake_tensor import FakeTensorMode\nfrom highwater.torch._device.device import device_of\n"
        'with FakeTensorMode():\n    device_of([torch.empty(1, device="xla")])',
        "from highwater.torch._device.device import device_of_graph\nfrom torch import fx\ngraph = fx.Graph()\n"
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        'with FakeTensorMode():\n    for name in ("cuda:0", "cuda:1"):\n'
        '        graph.placeholder("x").meta["val"] = torch.empty(1, device=name)\n'
        "device_of_graph(graph)",
        "from highwater.torch._device.device import Cuda\nfrom pretended import Driver\n"
        'device = Cuda(torch.device("cuda:0"), driver := Driver())\n'
        'driver.capturing = True\ndevice.run_and_save(torch.rand, 8)',
    ],
    "allocated": [
        "allocated(3)",
        "allocated(lambda: allocated(lambda: model(x)))",
        'allocated(lambda: step(model, mse, optimizer, memory="1GiB")(torch.randn(5, 8), torch.randn(5, 8)))',
        "with torch.profiler.profile():\n    allocated(lambda: model(x))",
    ],
}

# What no user meets.
INTERNAL = {
    "_dynamo/random_branches.py: raise Unknown": "is caught where a branch is looked at",
    "_dynamo/effects.py: raise Unknown": "is caught where a branch is looked at",
    "_dynamo/generators.py: raise RuntimeError('a model took a branch": "another thread draws at the wrong moment",
    "_forecast/predict.py: raise Enough": "ends a trace, and is caught where it began",
    "_forecast/predict.py: raise failed": "hands on an error of PyTorch's",
    "_dynamo/avoided_breaks.py: raise RestartAnalysis": "has Dynamo trace a model again",
    "_plan/reserved.py: raise Short": "is caught where an allocator is carried out on numbers",
    "_emit/boxed.py: raise AssertionError(message)": "is an assert of the user's own",
    "_dynamo/exceptions.py: raise failed": "hands on an error of PyTorch's",
    "_device/allocated.py: raise errors[0]": "hands on an error out of a thread",
    "_backend/backend.py: raise RuntimeError(f'torch {torch.__version__} does not support": "torch 2.14 alone",
}


@dataclass
class Site:
    """A place that raises or warns."""

    path: Path
    lines: range
    text: str
    reached: bool = False

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE).as_posix()}: {self.text}"

    @property
    def is_internal(self) -> bool:
        return any(str(self).startswith(start) for start in INTERNAL)


def sites() -> list[Site]:
    """All places of the package that raise or warn, but for those that hand on what they caught."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
        for node in ast.walk(tree):
            raises = isinstance(node, ast.Raise) and node.exc is not None and not (isinstance(node.exc, ast.Name) and node.exc.id in caught)
            warns = isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "warn")
            if raises or warns:
                found.append(Site(path, range(node.lineno, (node.end_lineno or node.lineno) + 1), ast.unparse(node)))
    return found


@dataclass
class Met:
    """What a program raised or warned of."""

    program: str
    kind: str
    message: str


@dataclass
class Trials:
    """Runs programs, and notes which sites they reach."""

    sites: list[Site] = field(default_factory=sites)

    def __post_init__(self) -> None:
        self._by_line = {(str(site.path), line): site for site in self.sites for line in site.lines}
        self._paths = {str(site.path) for site in self.sites}

    def run(self, program: str) -> Met:
        """One of our errors, or the last of our warnings."""
        torch._dynamo.reset()
        torch.manual_seed(0)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(SETUP, names)
        linecache.cache["train.py"] = (len(program), None, program.splitlines(keepends=True), "train.py")
        before = sys.gettrace()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            sys.settrace(self._called)
            try:
                exec(compile(program, "train.py", "exec"), names)
            except Exception as error:
                return Met(program, f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."), normalised(str(error)))
            finally:
                sys.settrace(before)
        ours = [warning for warning in told if warning.category.__module__.startswith("highwater")]
        if not ours:
            raise AssertionError(f"nothing is raised by\n{program}")
        where = f"{ours[-1].filename}:{ours[-1].lineno}"
        return Met(program, f"highwater.torch.{ours[-1].category.__name__}", normalised(f"{ours[-1].message} (at {where})"))

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self._paths else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line" and (site := self._by_line.get((frame.f_code.co_filename, frame.f_lineno))):
            site.reached = True
        return self._line


def normalised(message: str) -> str:
    """Without what depends on the machine, or on PyTorch's release."""
    message = message.partition("In its own words:")[0].strip()
    message = message.replace(f"{os.getcwd()}/", "")
    message = re.sub(r"\b\d+(\.\d+)? (B|KiB|MiB|GiB)\b", r"N \2", message)
    message = re.sub(r"\(\d+ bytes\)", "(N bytes)", message)
    return re.sub(r"0x[0-9a-f]+", "0x…", message)


def page(met: dict[str, list[Met]]) -> str:
    lines = [
        "# Errors and warnings of `highwater.torch`",
        "",
        "Each program below runs after the lines of *Setup* and ends in the message under it. Sizes are replaced by N.",
        "Made by `python tests/provoked.py`, and checked by `tests/test_torch_errors.py`.",
        "",
        "## Setup",
        "",
        f"```python\n{SETUP.strip()}\n```",
    ]
    for heading, entries in met.items():
        lines += ["", f"## {heading}"]
        for entry in entries:
            lines += ["", f"```python\n{entry.program}\n```", ""]
            lines += [f"> **{entry.kind}**: {textwrap.indent(entry.message, '> ').removeprefix('> ')}"]
    return "\n".join(lines) + "\n"


def run_all(trials: Trials) -> dict[str, list[Met]]:
    """All programs, with kernels that are not timed: no message depends on that."""
    with mock.patch.object(Device, "seconds", lambda *_: 1e-6):
        return {heading: [trials.run(program) for program in programs] for heading, programs in ENTRIES.items()}


def main() -> None:
    """Writes the page, and says which errors lack an entry."""
    import tempfile

    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # where no kernels are known
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        trials = Trials()
        PAGE.write_text(page(run_all(trials)))
        dist.destroy_process_group()
    for site in trials.sites:
        if not site.reached and not site.is_internal:
            print(f"no entry reaches {site}")


if __name__ == "__main__":
    main()
