"""Random trials of `highwater.torch.step`: optimizers, groups, hooks, clipping, accumulation, scalers and layouts,
each compared with the eager loop after every micro-batch, and its memory measured in every call."""

from __future__ import annotations

import copy
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import highwater.torch
import torch
from highwater.torch._device import allocated
from highwater.torch._optim import rows
from optimizer_makers import MAKERS, Groups, Made, draw, is_installed
from test_torch_fuzz import DrawnCosts
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch._dynamo.callback import callback_handler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

LAYOUTS = ("plain", "plain", "channels_last", "turned", "flat", "gaps", "tied", "bf16", "f64", "mixed", "complex")
OF_MATRICES = ("plain", "turned", "flat", "gaps", "tied")
HOOKS = ("pre", "post", "pre later", "post later", "global pre", "global post", "global pre later", "halves", "removed")
# An event comes after this many updates.
LATER = 3
PLENTY = 1 << 30
ROWS = 48


@dataclass(frozen=True)
class Spec:
    """A trial. The defaults are the plainest one."""

    seed: int = 0
    optimizer: str = "SGD"
    groups: str = "one"
    first: tuple[tuple[str, Any], ...] = ()
    """Settings of the first group."""
    second: tuple[tuple[str, Any], ...] = ()
    """Settings of the others."""
    tensor_lr: bool = False
    layout: str = "plain"
    loss: str = "function"
    extra: str = ""
    hooks: tuple[str, ...] = ()
    clip: float | None = None
    clips_all: bool = False
    """Whether all parameters of the optimizer are clipped, and not the model's alone."""
    accumulation: int = 1
    scaler: str = ""
    scheduler: str = ""
    life: str = ""
    host: bool = False
    few_rows: bool = False
    """Whether updates are of a few rows at a time."""
    share: float | None = None
    """Where the budget lies between the floor and plenty. None: plenty."""

    def __str__(self) -> str:
        plain = Spec()
        told = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != getattr(plain, f.name)]
        return f"Spec({', '.join(f'{name}={value!r}' for name, value in told)})"

    @property
    def branches(self) -> bool:
        """Whether the model has a layer that is not always trained."""
        return self.extra in ("frozen", "sometimes") or self.life in ("unfreeze", "freeze later")

    @property
    def updates(self) -> int:
        return 10 if self.accumulation == 1 else 7

    @property
    def expects(self) -> tuple[str, str]:
        """Whether a step trains as the eager loop, has to refuse, or may do either; and why."""
        maker = MAKERS[self.optimizer]
        if maker.refused:
            return "refused", maker.refused
        if self.extra == "missing" and self.layout != "tied":  # or the last layer gets no gradient
            return "refused", "the optimizer lacks a parameter that gets a gradient"
        if maker.may_refuse:
            return "either", maker.may_refuse
        if self.extra == "gradients elsewhere":
            return "either", "a gradient is there before the step"
        return "same", ""


def drawn(seed: int, among: list[str] | None = None) -> Spec:
    """The trial of a seed."""
    numbers = random.Random(seed)

    def rarely(share: float, *values: Any) -> Any:
        return numbers.choice(values) if numbers.random() < share else None

    name = draw(numbers, among or MAKERS)
    maker = MAKERS[name]

    def settings(share: float) -> tuple[tuple[str, Any], ...]:
        found = {key: numbers.choice(values) for key, values in maker.settings.items() if numbers.random() < share}
        if found.get("fused"):
            found.pop("foreach", None)
        if name in ("Adam", "AdamW", "SGD") and numbers.random() < 0.03:
            found[numbers.choice(["differentiable", "capturable"] if name != "SGD" else ["differentiable"])] = True
        return tuple(found.items())

    groups = numbers.choice(["one", "two", "two", "no decay first", "reversed", "each", "empty first", "empty last"])
    layouts = OF_MATRICES if maker.matrices else ("plain", "flat", "tied", "turned", "channels_last") if maker.f32 else LAYOUTS
    hooks = tuple(sorted({numbers.choice(HOOKS) for _ in range(numbers.choice([0, 0, 0, 1, 1, 2, 3]))}))
    life = rarely(0.4, "resumed", "reload", "unfreeze", "momentum later", "freeze later") or ""
    if life == "momentum later" and name != "SGD" or life == "unfreeze" and name in ("list", "LBFGS", "behind one object", "both in one", "Muon with Adam"):
        life = ""
    if maker.refused or life == "reload" and name.startswith("torchao"):
        life = ""  # torchao's states cannot be copied.
    extra = rarely(0.4, "upstream", "unused", "unused", "frozen", "sometimes", "sometimes", "gradients elsewhere", "missing") or ""
    if extra == "frozen" and life in ("unfreeze", "freeze later"):
        extra = ""
    tensor_lr = maker.tensor_lr and numbers.random() < 0.15
    first, second = settings(0.2), settings(0.4)
    if tensor_lr:
        first, second = (tuple((key, value) for key, value in found if (key, value) != ("foreach", True)) for found in (first, second))
    layout = numbers.choice(layouts)
    scaler = rarely(0.3, "plain", "overflows", "overflows", "odd", "disabled") or ""
    if layout == "complex" and (scaler not in ("", "disabled") or ("fused", True) in first + second):
        layout = "plain"  # CPUs have no such kernels.
    return Spec(
        seed=seed,
        optimizer=name,
        groups=groups if maker.groups else "one",
        first=first if maker.groups else (),
        second=second if maker.groups and groups != "one" else (),
        tensor_lr=tensor_lr,
        layout=layout,
        loss=numbers.choice(["function", "function", "in the model"] + ["with parameters"] * (not maker.matrices)),
        extra=extra,
        hooks=hooks,
        clip=rarely(0.5, 0.01, 0.01, 0.5, 100.0, float("inf")),
        clips_all=numbers.random() < 0.4,
        accumulation=numbers.choice([1, 1, 1, 2, 3]),
        scaler=scaler,
        # They do not know of groups that come later.
        scheduler=(rarely(0.4, "step", "lambda", "cycle", "plateau") or "") if life != "unfreeze" else "",
        life=life,
        host=numbers.random() < 0.2,
        few_rows=numbers.random() < 0.25,
        share=numbers.choice([None, 0.0, 0.0, 0.0, 0.3, numbers.random()]),
    )


# What is trained.


class Turning(nn.Module):
    """A product with a parameter that is stored the other way round, or with gaps."""

    def __init__(self, layout: str, width: int, out: int) -> None:
        super().__init__()
        if layout == "turned":
            self.w = nn.Parameter((torch.randn(out, width) * width**-0.5).t())
        else:
            self.w = nn.Parameter((torch.randn(width, 2 * out) * width**-0.5)[:, :out])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


class Net(nn.Module):
    """A few layers, since each takes time to trace; one of them is large enough for its state to count."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        layout, bias = spec.layout, not MAKERS[spec.optimizer].matrices

        def layer(width: int, out: int) -> nn.Module:
            return Turning(layout, width, out) if layout in ("turned", "gaps") else nn.Linear(width, out, bias=bias)

        self.conv = nn.Conv2d(4, 16, 3, padding=1) if layout == "channels_last" else None
        self.first, self.large, self.last = layer(16, 64), layer(64, 512), layer(512, 16)
        self.branch = layer(64, 64) if spec.branches else None
        self.scale = nn.Parameter(torch.ones(())) if bias else None
        self.turn = nn.Parameter(torch.randn(32, dtype=torch.complex64)) if layout == "complex" else None
        self.tied, self.within = layout == "tied", spec.loss == "in the model"
        if layout in ("bf16", "f64"):
            self.to(torch.bfloat16 if layout == "bf16" else torch.float64)
        if layout == "mixed":
            self.large.to(torch.bfloat16)
        if self.conv is not None:
            self.to(memory_format=torch.channels_last)
        if layout == "flat":
            flat, end = torch.empty(sum(p.numel() for p in self.parameters())), 0
            for p in self.parameters():
                flat[end : end + p.numel()] = p.detach().view(-1)
                p.data = flat[end : end + p.numel()].view(p.shape)
                end += p.numel()

    def forward(self, x: Tensor, use: bool = True, target: Tensor | None = None) -> Tensor:
        if self.conv is not None:
            x = self.conv(x).mean((2, 3))
        x = torch.tanh(self.first(x))
        if self.branch is not None and use:
            x = x + torch.sigmoid(self.branch(x))
        if self.turn is not None:
            x = torch.view_as_real(torch.view_as_complex(x.unflatten(1, (32, 2))) * self.turn).flatten(1)
        x = torch.tanh(self.large(x.to(dtype_of(self.large)))).to(x.dtype)
        x = F.linear(x, self.large.weight.t()) @ self.first.weight if self.tied else self.last(x)
        if self.scale is not None:
            x = x * self.scale
        return loss_of(x, target) if self.within else x


def dtype_of(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype


class Loss(nn.Module):
    """A loss with parameters."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.linspace(0.5, 1.5, 16, dtype=dtype))

    def forward(self, out: Tensor, target: Tensor) -> Tensor:
        return loss_of(out * self.weights, target)


def loss_of(out: Tensor, target: Tensor | None) -> Tensor:
    assert target is not None
    return (out - target).square().mean() * 10


class Setup:
    """A trial's objects, made anew for each way of training."""

    def __init__(self, spec: Spec) -> None:
        torch.manual_seed(spec.seed)
        self.spec, self.maker = spec, MAKERS[spec.optimizer]
        self.model = Net(spec)
        self.images = spec.layout == "channels_last"
        dtype = dtype_of(self.model)
        self.loss: Any = None if spec.loss == "in the model" else Loss(dtype) if spec.loss == "with parameters" else loss_of
        shape = (ROWS, 4, 6, 6) if self.images else (ROWS, 16)
        self.data = [(torch.randn(shape, dtype=dtype), torch.randn(ROWS, 16, dtype=dtype)) for _ in range(3)]
        if self.images:
            self.data = [(x.to(memory_format=torch.channels_last), y) for x, y in self.data]
        self.other = nn.Linear(16, 16, bias=not self.maker.matrices, dtype=dtype) if spec.extra in ("upstream", "unused", "gradients elsewhere") else None
        if spec.extra == "frozen":
            self.model.branch.requires_grad_(False)
        if spec.life == "unfreeze":
            self.model.branch.requires_grad_(False)
        made = self.maker.make(self._groups())
        self.made = made if isinstance(made, Made) else Made(made)
        # What is clipped, if not the model's parameters. A group that comes later is not among them.
        self.clipped = self.made.parameters if spec.clips_all else None
        self.scaler = self._scaler()
        self.schedulers = [self._scheduler(optimizer) for optimizer in self.made.inner] if spec.scheduler else []
        self.seen: list[Any] = []
        """What hooks were called with, in order."""
        self.handles: list[Any] = []
        self.call(0)

    def _groups(self) -> Groups:
        spec = self.spec
        known = dict(self.model.named_parameters())
        if spec.life == "unfreeze":
            known = {name: p for name, p in known.items() if p.requires_grad}
        if spec.extra == "missing":
            known = {name: p for name, p in known.items() if not name.startswith("last")}
        parameters = list(known.values())
        if isinstance(self.loss, nn.Module):
            parameters += self.loss.parameters()
        if self.other is not None:
            parameters += self.other.parameters()
        half = len(parameters) // 2
        kind, lr = spec.groups, self.maker.lr
        parts = {
            "two": [parameters[:half], parameters[half:]],
            "no decay first": [[p for p in parameters if p.dim() < 2], [p for p in parameters if p.dim() >= 2]],
            "reversed": [parameters[half:][::-1], parameters[:half][::-1]],
            "each": [[p] for p in parameters],
            "empty first": [[], parameters],
            "empty last": [parameters, []],
        }.get(kind, [parameters])
        groups: Groups = [{"params": part, **dict(spec.second if i else spec.first)} for i, part in enumerate(parts)]
        if kind == "each":
            groups = [{**group, "lr": lr / (1 + i)} for i, group in enumerate(groups)]
        if spec.tensor_lr:
            groups = [{**group, "lr": torch.tensor(group.get("lr", lr))} for group in groups]
        return groups

    def _scaler(self) -> torch.amp.GradScaler | None:
        if not (kind := self.spec.scaler):
            return None
        return torch.amp.GradScaler("cpu", init_scale=3000.0 if kind == "odd" else 256.0, growth_interval=3, enabled=kind != "disabled")

    def _scheduler(self, optimizer: Any) -> Any:
        kind, schedulers = self.spec.scheduler, optim.lr_scheduler
        if kind == "lambda":
            return schedulers.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        if kind == "plateau":
            return schedulers.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        if kind == "cycle":
            cycles = "momentum" in optimizer.defaults and optimizer.defaults["momentum"] > 0 or "betas" in optimizer.defaults
            return schedulers.OneCycleLR(optimizer, 0.05, 40, cycle_momentum=cycles)
        return schedulers.StepLR(optimizer, 2, 0.5)

    def input(self, i: int) -> tuple[list[Any], dict[str, Any]]:
        """What a micro-batch is called with: what the model takes, and the target."""
        spec = self.spec
        x, y = self.data[i % len(self.data)]
        if spec.scaler == "overflows" and i // spec.accumulation in (2, 5):
            x = torch.full_like(x, float("inf"))
        if spec.extra == "upstream" and self.other is not None:
            x = self.other(x) if not self.images else x * self.other.weight.mean()
        inputs = [x, i % 3 == 0] if spec.extra == "sometimes" else [x]
        return ([*inputs], {"target": y}) if self.loss is None else ([*inputs, y], {})

    # Hooks, and what happens between updates.

    def call(self, updates: int) -> None:
        """What is done after so many updates."""
        for hook in self.spec.hooks:
            if updates == (LATER if "later" in hook else 0):
                self._register(hook)
            elif hook == "removed" and updates == LATER:
                self.handles[-1].remove()
        if updates == LATER:
            self._change(self.spec.life)

    def _register(self, kind: str) -> None:
        def hook(*_: Any) -> None:
            gradients = [p.grad for p in self.made.parameters if p.grad is not None]
            self.seen.append((kind, len(gradients), [number(g.sum()) for g in gradients], [number(p.sum()) for p in self.made.parameters]))

        def halves(*_: Any) -> None:
            self.seen.append("halves")
            for p in self.made.parameters:
                if p.grad is not None:
                    p.grad.mul_(0.5)

        if kind.startswith("global"):
            make = register_optimizer_step_post_hook if "post" in kind else register_optimizer_step_pre_hook
            self.handles.append(make(hook))
            return
        for optimizer in self.made.inner:
            if "post" in kind:
                self.handles.append(optimizer.register_step_post_hook(hook))
            else:
                self.handles.append(optimizer.register_step_pre_hook(halves if kind == "halves" else hook))

    def _change(self, life: str) -> None:
        optimizer = self.made.inner[0]
        if life == "reload":
            # Profilers report that memory is freed only where they have seen it taken.
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        elif life == "unfreeze":
            self.model.branch.requires_grad_(True)
            known = set(map(id, self.made.parameters))
            optimizer.add_param_group({"params": [p for p in self.model.branch.parameters() if id(p) not in known]})
        elif life == "freeze later":
            self.model.branch.requires_grad_(False)
        elif life == "momentum later":
            optimizer.param_groups[-1]["momentum"] = 0.9

    def updated(self, i: int, loss: Tensor) -> None:
        """What a loop does after a micro-batch."""
        if (i + 1) % self.spec.accumulation == 0:
            for scheduler in self.schedulers:
                scheduler.step(*[number(loss)] if self.spec.scheduler == "plateau" else [])
            self.call((i + 1) // self.spec.accumulation)

    def before(self, i: int) -> None:
        if self.spec.extra == "gradients elsewhere" and self.other is not None and i % self.spec.accumulation == 0:
            self.other(torch.ones(2, 16, dtype=self.other.weight.dtype)).square().mean().backward()

    # What there is to compare.

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = {"hooks": list(self.seen)}
        found |= {f"model.{name}": value for name, value in self.model.state_dict().items()}
        found |= {f"parameter {i}": p for i, p in enumerate(self.made.parameters)}
        names = {p: f"state of {i}" for i, p in enumerate(self.made.parameters)}
        for optimizer in self.made.inner:
            for key, state in optimizer.state.items():
                found |= {f"{names.get(key, key) if isinstance(key, Tensor) else key}.{name}": value for name, value in state.items()}
        for i, group in enumerate(self.made.groups):
            found |= {f"group {i}.{key}": value for key, value in group.items() if key != "params"}
        found |= {f"outside {i}": tensor for i, tensor in enumerate(self.made.outside())}
        if self.scaler:
            found["scaler"] = self.scaler.state_dict()
        found["random"] = torch.get_rng_state()
        return {name: plain(value) for name, value in found.items()}

    def held(self, inputs: Any) -> dict[int, int]:
        """What a step is to count before it starts, but for what is on the host: bytes by address."""
        modules = [module for module in (self.model, self.loss, self.other) if isinstance(module, nn.Module)]
        tensors: list[Any] = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        tensors += self.made.parameters + [p.grad for p in tensors] + self.made.outside()
        tensors += pytree.tree_leaves([inputs, [[*group.values()] for group in self.made.groups]])
        tensors += pytree.tree_leaves([dict(state) for optimizer in self.made.inner for state in optimizer.state.values()])
        if self.scaler:
            tensors += [getattr(self.scaler, name, None) for name in ("_scale", "_growth_tracker")]
        parts = [part for tensor in tensors if isinstance(tensor, Tensor) for part in parts_of(tensor)]
        return {storage.data_ptr(): storage.nbytes() for storage in (part.untyped_storage() for part in parts) if storage.resizable()}

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()


def number(value: Tensor) -> Any:
    return value.item()


def parts_of(tensor: Tensor) -> list[Tensor]:
    """The plain tensors of one."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    return [part for name in tensor.__tensor_flatten__()[0] for part in parts_of(getattr(tensor, name))]


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return [part.detach().clone() for part in parts_of(value)]
    return copy.deepcopy(value)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        if a.is_complex():
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all() if a.is_floating_point() else False)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a and b != b)


def differing(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    names = [name for name in expected if name not in found or not same(found[name], expected[name])]
    names += [f"{name} (more)" for name in found if name not in expected]
    return names or (["the order of states"] if list(found) != list(expected) else [])


# The two loops.


def eager(setup: Setup, micros: range) -> Iterator[dict[str, Any]]:
    """The loop in plain PyTorch."""
    spec, optimizer, scaler = setup.spec, setup.made.optimizer, setup.scaler
    update = setup.made.update or (optimizer.step if not isinstance(optimizer, list) else lambda: [one.step() for one in optimizer])
    for i in micros:
        setup.before(i)
        inputs, words = setup.input(i)
        if setup.loss is None:
            loss = setup.model(*inputs, **words)
        else:
            *inputs, target = inputs
            loss = setup.loss(setup.model(*inputs), target)
        loss_part = loss / spec.accumulation
        (scaler.scale(loss_part) if scaler else loss_part).backward()
        if (i + 1) % spec.accumulation == 0:
            if scaler and spec.clip is not None:
                for one in scaled(setup):
                    scaler.unscale_(one)
            if spec.clip is not None:
                nn.utils.clip_grad_norm_(setup.clipped or setup.model.parameters(), spec.clip)
            if scaler:
                for one in scaled(setup):
                    scaler.step(one)
                scaler.update()
            else:
                update()
            for p in setup.made.parameters:
                p.grad = None
        setup.updated(i, loss.detach())
        yield {"loss": plain(loss), **setup.snapshot()}


def scaled(setup: Setup) -> list[Any]:
    """What a scaler is given."""
    optimizer = setup.made.optimizer
    return optimizer if isinstance(optimizer, list) else setup.made.inner if setup.made.update else [optimizer]


class Meter:
    """The most bytes at once in a call, with those that are held. What happens while a graph is compiled is left out."""

    def __init__(self, held: Callable[[], dict[int, int]]) -> None:
        self.held, self.most = held, 0
        self._starts: list[tuple[int, dict[int, int]]] = []
        """When a stretch to be measured begins, and what is held then. Those of compilers hold nothing."""

    def __call__(self, run: Callable[[], Any]) -> Any:
        marks = ((callback_handler.register_start_callback, self._out), (callback_handler.register_end_callback, self._in))
        for register, mark in marks:
            register(mark)
        self._in()
        try:
            with allocated.under_way, profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
                answer = run()
        finally:
            callback_handler.remove_start_callback(self._out)
            callback_handler.remove_end_callback(self._in)
        self._count(profiled)
        return answer

    def _in(self, _: Any = None) -> None:
        self._starts.append((time.time_ns(), self.held()))

    def _out(self, _: Any = None) -> None:
        self._starts.append((time.time_ns(), {}))

    def _count(self, profiled: Any) -> None:
        live: dict[int, int] = {}
        starts = list(self._starts)
        for at, address, size in sorted(allocations(profiled), key=lambda event: event[0]):
            while starts and starts[0][0] <= at:
                live = dict(starts.pop(0)[1])
                measures = bool(live)
                self.most = max(self.most, sum(live.values()))
            if size < 0:
                live.pop(address, None)
            elif measures:
                live[address] = size
                self.most = max(self.most, sum(live.values()))


def allocations(profiled: Any) -> Iterator[tuple[int, int, int]]:
    """When and where bytes of the CPU's memory were taken, or with a minus, let go of."""
    events = list(profiled.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        fields = event.extra_fields
        if event.tag == torch._C._profiler._EventType.Allocation and fields.device.type == "cpu":
            yield event.start_time_ns, fields.ptr, fields.alloc_size


class Costs(DrawnCosts):
    def update(self, *_: Any) -> float:
        return 1e-6 * (1 + random.Random(self.seed).random())


class Fitted:
    """Has a step's budget lie where a trial wants it, by what the step's first plans say of the floor and of plenty.
    So there is one compilation, and not another one to find the floor."""

    def __init__(self, step: Any, spec: Spec) -> None:
        self.step, self.spec, self.known = step, spec, step.known
        self.begin()

    def begin(self) -> None:
        # Plans for later micro-batches of an accumulation are looked at before the first one.
        self.left = min(self.spec.accumulation, 3)
        self.floor = self.live = 0

    def choose(self, choices: Any, memory: int) -> Any:
        if self.left and self.spec.share is not None:
            found = self.known.choose(choices, PLENTY)
            self.left -= 1
            self.floor, self.live = max(self.floor, found[1].floor_bytes), max(self.live, found[1].live_bytes)
            if self.left:
                return found
            self.step.memory = memory = int(self.floor + self.spec.share * max(0, self.live - self.floor))
        return self.known.choose(choices, memory)


@dataclass
class Outcome:
    verdict: str
    """"same", "refused", "DIFFERS", "OVER" or "ERROR"."""
    detail: str = ""
    floor: int = 0
    """The least memory of all plans."""
    error: BaseException | None = None
    later: bool = False
    """Whether it was refused after a first update, or where a later micro-batch is another graph."""


def ours(spec: Spec, expected: list[dict[str, Any]], memory: int | None = None) -> Outcome:
    """Trains by a step, and compares it with the eager loop after each micro-batch. Without `memory`, that is chosen."""
    torch._dynamo.reset()
    setup, i = Setup(spec), 0
    try:
        if spec.life == "resumed":
            for _ in eager(setup, range(i := 2 * spec.accumulation)):
                pass
        start = i
        step: Any = highwater.torch.step(
            setup.model, setup.loss, setup.made.optimizer, memory=memory or PLENTY, gradient_accumulation_steps=spec.accumulation,
            max_grad_norm=spec.clip, scaler=setup.scaler, host_memory=1 << 20 if spec.host else 0, clip_parameters=setup.clipped,
        )  # fmt: skip
        step.costs = Costs(spec.seed)
        if memory is None:
            step.known = Fitted(step, spec)
        over: list[tuple[int, int]] = []
        for i in range(start, len(expected) - 1):
            setup.before(i)
            loss, most = called(setup, step, i)
            if most > step.memory:
                over.append((i, most - step.memory))
            setup.updated(i, loss)
            if wrong := differing(found := {"loss": plain(loss), **setup.snapshot()}, expected[i + 1]):
                return Outcome("DIFFERS", f"after micro-batch {i}: {wrong[:6]} of {len(found)}{example(found, expected[i + 1], wrong)}")
            left = [j for j, p in enumerate(setup.made.parameters) if p.grad is not None]
            if (i + 1) % spec.accumulation == 0 and left:
                return Outcome("DIFFERS", f"after micro-batch {i}: gradients of {left} are left")
        floor = max((report.floor_bytes for report in step.reports), default=0)
        return Outcome("OVER", f"of {step.memory} bytes, by {over}", floor) if over else Outcome("same", "", floor)
    except Exception as error:
        reached = {name: value for name, value in expected[i].items() if name not in ("loss", "random")}
        now = {name: value for name, value in setup.snapshot().items() if name != "random"}
        told = f"{type(error).__name__} in micro-batch {i}: {' / '.join(str(error).splitlines())[:300]}; {where(error)}"
        if changed := differing(now, reached):
            return Outcome("ERROR", f"{told}; changed: {changed[:6]}", error=error)
        return Outcome("refused" if is_clear(error) else "ERROR", told, error=error, later=i >= spec.accumulation or i > 0 and spec.extra == "sometimes")
    finally:
        setup.close()


def called(setup: Setup, step: Any, i: int) -> tuple[Tensor, int]:
    """Calls a step: the loss, and the most bytes at once."""
    inputs, words = setup.input(i)
    meter = Meter(lambda: setup.held([inputs, words]))
    if setup.spec.share is None:
        return step(*inputs, **words), 0
    try:
        return meter(lambda: step(*inputs, **words)), meter.most
    except RuntimeError as error:
        # Kernels that no trial had before are measured by the same profiler. What is called again is not.
        if "highwater.torch.allocated" not in str(error):
            raise
        if isinstance(step.known, Fitted):
            step.known.begin()
        return step(*inputs, **words), 0


def example(found: dict[str, Any], expected: dict[str, Any], wrong: list[str]) -> str:
    name = wrong[0]
    return f"; {name}: {found.get(name)!r:.90} for {expected.get(name)!r:.90}" if name in ("hooks", "scaler") or name.startswith("group") else ""


def is_clear(error: BaseException) -> bool:
    """Whether an error is one that a user is meant to see."""
    kind = type(error)
    return kind.__module__.startswith("highwater") or kind in (TypeError, ValueError, RuntimeError, NotImplementedError)


def where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {frame.filename.split('site-packages/')[-1].split('/python/')[-1]}:{frame.lineno}"


@contextmanager
def few_rows(spec: Spec) -> Iterator[None]:
    """Has updates be of a few rows at a time, of parameters that are large here."""
    name = "NUMBERS"
    before = getattr(rows, name, None)
    if spec.few_rows and before is not None:
        setattr(rows, name, 4096)
    try:
        yield
    finally:
        if before is not None:
            setattr(rows, name, before)


def of_eager(spec: Spec) -> tuple[list[dict[str, Any]], BaseException | None]:
    """What the eager loop comes to: at first, and after each micro-batch."""
    setup = Setup(spec)
    found = [setup.snapshot()]
    try:
        for snapshot in eager(setup, range(spec.updates * spec.accumulation)):
            found.append(snapshot)
    except Exception as error:
        return found, error
    finally:
        setup.close()
    return found, None


def check(spec: Spec) -> str:
    """A verdict: "same", "refused, as expected", "refused, as it may be", "not installed", or what is wrong, in capitals first."""
    with warnings.catch_warnings(), few_rows(spec):
        warnings.simplefilter("ignore")
        kind, why = spec.expects
        if not is_installed(spec.optimizer):
            return f"not installed: {spec.optimizer}"
        try:
            Setup(spec).close()
        except Exception as error:
            return f"INVALID: {type(error).__name__}: {error}"
        expected, failed = of_eager(spec)
        if failed is not None or kind == "refused":
            kind, why = "refused", why or f"eager PyTorch raises {type(failed).__name__}: {failed}"
            enough = [*expected, *expected[-1:] * spec.accumulation * spec.updates]
            return refused(ours(spec, enough, PLENTY), failed, why)
        found = ours(spec, expected)
        if found.verdict == "refused" and isinstance(found.error, highwater.torch.OverBudget) and found.later:
            # What comes later needs more. The floor of all is known from a run with plenty.
            found = ours(replace(spec, share=None), expected, PLENTY)
            if found.verdict == "same":
                found = ours(spec, expected, found.floor)
        if found.verdict == "refused":
            return f"refused, as it may be ({why})" if kind == "either" else f"ERROR: {found.detail}"
        return "same" if found.verdict == "same" else f"{found.verdict}: {found.detail}"


def refused(found: Outcome, failed: BaseException | None, why: str) -> str:
    alike = failed is not None and type(found.error) is type(failed)
    if found.verdict == "refused" or alike:
        return "refused, as expected"
    return f"ERROR: not refused ({why}): {found.verdict} {found.detail}"


def shrunk(spec: Spec) -> Spec:
    """A plainer trial that fails in the same way."""
    kind = check(spec).split(":")[0]
    default, again = Spec(), True
    while again:
        again = False
        for field in fields(Spec):
            value = getattr(default, field.name)
            if field.name == "seed" or getattr(spec, field.name) == value:
                continue
            plainer = replace(spec, **{field.name: value})
            with suppress(Exception):
                if check(plainer).split(":")[0] == kind:
                    spec, again = plainer, True
    return spec
