"""Optimizers for random trials: PyTorch's, those of other packages, and ones as users write them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from torch import Tensor, optim

Groups = list[dict[str, Any]]
Settings = dict[str, tuple[Any, ...]]


@dataclass
class Made:
    """An optimizer as it is passed to `step`, and what an eager loop needs to know of it."""

    optimizer: Any
    inner: list[Any] = field(default_factory=list)
    """The `Optimizer` objects behind it: they have the groups, the state and the hooks."""
    outside: Callable[[], list[Tensor]] = list
    """Tensors that it keeps outside `state`."""
    update: Callable[[], Any] | None = None
    """How an eager loop updates, if not by `optimizer.step()`."""

    def __post_init__(self) -> None:
        self.inner = self.inner or [self.optimizer]

    @property
    def groups(self) -> Groups:
        return [group for optimizer in self.inner for group in optimizer.param_groups]

    @property
    def parameters(self) -> list[Tensor]:
        return [parameter for group in self.groups for parameter in group["params"]]


@dataclass(frozen=True)
class Maker:
    make: Callable[[Groups], Any]
    settings: Settings = field(default_factory=dict)
    """Settings that a group may have, besides the learning rate."""
    lr: float = 0.01
    tensor_lr: bool = False
    """Whether its learning rate may be a tensor."""
    groups: bool = True
    """Whether it takes groups."""
    matrices: bool = False
    """Whether it takes matrices alone."""
    f32: bool = False
    """Whether it takes real 32-bit numbers alone."""
    refused: str = ""
    """Why a step has to refuse it."""
    may_refuse: str = ""
    """Why a step may refuse it."""
    weight: float = 1.0


def params_of(groups: Groups) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


# What users write.


class Sign(optim.Optimizer):
    """Its constructor requires a learning rate."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * p.grad.sgn())


class Lion(optim.Optimizer):
    def __init__(self, params: Any, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            one, two = group["betas"]
            for p in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                average = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((average * one + p.grad * (1 - one)).sgn(), alpha=-group["lr"])
                average.lerp_(p.grad, 1 - two)


class Lars(optim.Optimizer):
    """Divides by norms of whole parameters; writes to gradients."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.grad.add_(p, alpha=1e-4)
                ratio = group["trust"] * p.norm() / (p.grad.norm() + 1e-8)
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(p.grad * ratio)
                p.sub_(state["mu"] * group["lr"])


class Late(optim.Optimizer):
    """Its state first appears in its third step."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                if self.steps >= 3:
                    state = self.state[p]
                    if not state:
                        state["average"] = torch.zeros_like(p)
                    p.grad.add_(state["average"].lerp_(p.grad, 0.1))
                p.sub_(p.grad, alpha=group["lr"])


class LatePerParameter(Late):
    """The same, by a count of each parameter."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                if state["count"] >= 3:
                    state.setdefault("average", torch.zeros_like(p)).lerp_(p.grad, 0.1)
                    p.sub_(state["average"], alpha=group["lr"])
                p.sub_(p.grad, alpha=group["lr"])


class Shared(optim.Optimizer):
    """All parameters have one tensor in their state, and there is state that is no parameter's."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        count = self.state["all"]
        count["steps"] = count.get("steps", 0) + 1
        if "table" not in count:
            count["table"] = torch.linspace(0.5, 1.5, 4096)
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                self.state[p]["table"] = count["table"]
                p.sub_(p.grad * count["table"][count["steps"] % 4096].to(p.grad.dtype), alpha=group["lr"])
                count["table"].mul_(0.999)


class GlobalNorm(optim.SGD):
    """Looks at all gradients at once."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        total = torch.stack([torch.linalg.vector_norm(gradient).float() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.div_(total + 1)
        super().step(closure)


class Noisy(optim.Optimizer):
    """Draws random numbers."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                p.sub_(p.grad + 0.01 * torch.randn_like(p), alpha=group["lr"])


class FloatMomentum(optim.Optimizer):
    """Its momentum is of 32 bits, whatever parameters are, and all of it is computed in one call."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            for p in parameters:
                if not self.state[p]:
                    wide = torch.promote_types(p.dtype, torch.float32)
                    self.state[p]["momentum"] = torch.zeros_like(p, dtype=wide, memory_format=torch.preserve_format)
            momenta = [self.state[p]["momentum"] for p in parameters]
            if parameters:
                torch._foreach_mul_(momenta, 0.9)
                torch._foreach_add_(momenta, [p.grad for p in parameters])
                torch._foreach_add_(parameters, momenta, alpha=-group["lr"])


class Plain(optim.AdamW):
    """A subclass that changes nothing."""


class Decays(optim.AdamW):
    """A subclass that does more after the step of its class."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        answer = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.999)
        return answer


class OfNames(optim.SGD):
    """Its constructor wants other things than parameters."""

    def __init__(self, name: str, groups: Groups, *, rate: float) -> None:
        super().__init__(groups, lr=rate, momentum=0.9)
        self.name = name


class Locked(optim.Optimizer):
    """Cannot be copied, and counts how often it was called."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.lock, self.calls = threading.Lock(), 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with self.lock:
            self.calls += 1
            for group in self.param_groups:
                for p in filter(lambda p: p.grad is not None, group["params"]):
                    moment = self.state[p].setdefault("moment", torch.zeros_like(p)).mul_(0.9).add_(p.grad)
                    p.sub_(moment, alpha=group["lr"] / self.calls)


class MuonWithAdam(optim.Optimizer):
    """As a well-known one: each group says by `use_muon` how it is updated."""

    def __init__(self, groups: Groups) -> None:
        for group in groups:
            assert "use_muon" in group
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                state = self.state[p]
                if group["use_muon"]:
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    update = p.grad.lerp_(state["momentum_buffer"].lerp_(p.grad, 0.05), 0.95)
                    x = update / (update.norm() + 1e-7)
                    x = x.mT if x.size(0) > x.size(1) else x
                    for _ in range(2):
                        a = x @ x.mT
                        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
                    p.sub_((x.mT if p.size(0) > p.size(1) else x).reshape(p.shape), alpha=group["lr"])
                else:
                    if not state:
                        state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p), step=0)
                    state["step"] += 1
                    state["exp_avg"].lerp_(p.grad, 0.1)
                    state["exp_avg_sq"].lerp_(p.grad.square(), 0.05)
                    p.sub_(state["exp_avg"] / (state["exp_avg_sq"].sqrt() + 1e-8), alpha=group["lr"])


class Sam(optim.Optimizer):
    """Wants a closure."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any) -> None:  # type: ignore[override]
        with torch.enable_grad():
            closure()


class SamChecks(Sam):
    """Wants a closure, but does not say so in its signature."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if closure is None:
            raise RuntimeError("SAM needs a closure that computes the loss again")
        super().step(closure)


class Lookahead:
    """Wraps an optimizer, without being one. Every third step, weights go back half of the way."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer, self.steps = optimizer, 0
        self.slow: dict[Tensor, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def step(self, closure: Any = None) -> Any:
        if not self.slow:
            self.slow = {p: p.detach().clone() for p in params_of(self.optimizer.param_groups)}
        answer = self.optimizer.step(closure)
        self.steps += 1
        if self.steps % 3 == 0:
            with torch.no_grad():
                for p, slow in self.slow.items():
                    p.copy_(slow.lerp_(p, 0.5))
        return answer


class Behind:
    """Not an `Optimizer`: what a loop calls, and nothing else."""

    def __init__(self, *inner: optim.Optimizer) -> None:
        self.inner = inner

    @property
    def param_groups(self) -> Groups:
        return [group for optimizer in self.inner for group in optimizer.param_groups]

    @property
    def state(self) -> Any:
        return {p: state for optimizer in self.inner for p, state in optimizer.state.items()}

    def step(self, closure: Any = None) -> None:
        for optimizer in self.inner:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.inner:
            optimizer.zero_grad(set_to_none)


class BothInOne(optim.Optimizer):
    """An `Optimizer` by class alone: it does not call the constructor of its class."""

    def __init__(self, *inner: optim.Optimizer) -> None:
        self.inner = inner
        self.defaults = {}
        self._optimizer_step_pre_hooks = {}  # type: ignore[assignment]
        self._optimizer_step_post_hooks = {}  # type: ignore[assignment]

    param_groups = Behind.param_groups  # type: ignore[assignment]
    state = Behind.state  # type: ignore[assignment]
    step = Behind.step  # type: ignore[assignment]
    zero_grad = Behind.zero_grad


def split(groups: Groups) -> list[optim.Optimizer]:
    """Muon for matrices and AdamW for the rest."""
    matrices = [p for p in params_of(groups) if p.dim() == 2 and not p.is_complex()]
    known = set(map(id, matrices))
    others = [p for p in params_of(groups) if id(p) not in known]
    made: list[optim.Optimizer] = [optim.Muon(matrices, lr=0.01)] if matrices else []
    return [*made, optim.AdamW(others, lr=0.01)] if others else made


def both(kind: Callable[..., Any]) -> Callable[[Groups], Made]:
    def make(groups: Groups) -> Made:
        inner = split(groups)
        return Made(kind(*inner), inner)

    return make


def lookahead(groups: Groups) -> Made:
    optimizer = Lookahead(optim.AdamW(groups, lr=0.01))
    return Made(optimizer, [optimizer.optimizer], lambda: list(optimizer.slow.values()))


def replaced(groups: Groups) -> Made:
    """Its step is replaced on the instance, by one that normalizes gradients together."""
    optimizer = optim.SGD(groups, lr=0.1)
    step = optimizer.step

    def normed(self: Any, *args: Any, **words: Any) -> Any:
        gradients = [p.grad for p in params_of(optimizer.param_groups) if p.grad is not None]
        norm = torch.stack([torch.linalg.vector_norm(gradient).float() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.div_(norm + 0.1)
        return step(*args, **words)

    # Schedulers want a method.
    optimizer.step = MethodType(normed, optimizer)  # type: ignore[method-assign]
    return Made(optimizer)


def with_muon(groups: Groups) -> Made:
    matrices = [p for p in params_of(groups) if p.dim() == 2 and not p.is_complex()]
    known = set(map(id, matrices))
    others = [p for p in params_of(groups) if id(p) not in known]
    return Made(MuonWithAdam([{"params": others, "lr": 1e-3, "use_muon": False}, {"params": matrices, "lr": 0.01, "use_muon": True}]))


# Of other packages.


def accelerated(groups: Groups) -> Made:
    from accelerate import Accelerator

    inner = optim.AdamW(groups, lr=0.01)
    return Made(Accelerator(cpu=True).prepare(inner), [inner])


def lightning(groups: Groups) -> Made:
    from lightning.pytorch.core.optimizer import LightningOptimizer

    inner = optim.AdamW(groups, lr=0.01)
    # Outside of a `Trainer` it has no strategy, and refuses `step()`: the loop's is the one inside.
    return Made(LightningOptimizer(inner), [inner], update=inner.step)


def of(package: str, name: str, **settings: Any) -> Callable[[Groups], Any]:
    """An optimizer of a package, imported when it is made."""

    def make(groups: Groups) -> Any:
        optimizer = getattr(import_module(package), name)(groups, **settings)
        if hasattr(optimizer, "train"):
            optimizer.train()
        return optimizer

    return make


def torchao(name: str) -> Callable[[Groups], Any]:
    """Without the compiler that it calls for each parameter, which takes many seconds."""

    def make(groups: Groups) -> Any:
        import torchao.optim.adam as adam

        class Torch:
            compile = staticmethod(lambda function, **words: function)
            __getattr__ = staticmethod(lambda name: getattr(torch, name))

        adam.torch = Torch()
        return of("torchao.optim", name, lr=0.01)(groups)

    return make


FLAGS: Settings = {"maximize": (True,), "foreach": (None, True, False)}
PYTORCH: dict[str, Maker] = {
    "ASGD": Maker(lambda groups: optim.ASGD(groups, lr=0.01, t0=2), {**FLAGS, "weight_decay": (0.1,)}),
    "Adadelta": Maker(lambda groups: optim.Adadelta(groups, lr=0.5), {**FLAGS, "weight_decay": (0.1,)}),
    "Adafactor": Maker(lambda groups: optim.Adafactor(groups), {"maximize": (True,), "foreach": (None, False), "weight_decay": (0.1,)}, tensor_lr=True),
    "Adagrad": Maker(lambda groups: optim.Adagrad(groups), {**FLAGS, "weight_decay": (0.1,), "fused": (True,), "lr_decay": (0.1,)}),
    "Adam": Maker(lambda groups: optim.Adam(groups), {**FLAGS, "amsgrad": (True,), "fused": (True,), "weight_decay": (0.1,)}, tensor_lr=True, weight=3),
    "AdamW": Maker(lambda groups: optim.AdamW(groups), {**FLAGS, "amsgrad": (True,), "fused": (True,), "weight_decay": (0.0,)}, tensor_lr=True, weight=4),
    "Adamax": Maker(lambda groups: optim.Adamax(groups), {**FLAGS, "weight_decay": (0.1,)}),
    "Muon": Maker(lambda groups: optim.Muon(groups), {"weight_decay": (0.0,), "momentum": (0.5,), "nesterov": (False,)}, matrices=True, weight=2),
    "NAdam": Maker(lambda groups: optim.NAdam(groups), {**FLAGS, "weight_decay": (0.1,), "decoupled_weight_decay": (True,)}),
    "RAdam": Maker(lambda groups: optim.RAdam(groups), {**FLAGS, "weight_decay": (0.1,), "decoupled_weight_decay": (True,)}, weight=2),
    "RMSprop": Maker(lambda groups: optim.RMSprop(groups), {**FLAGS, "centered": (True,), "momentum": (0.9,), "weight_decay": (0.1,)}, weight=2),
    "Rprop": Maker(lambda groups: optim.Rprop(groups), FLAGS),
    "SGD": Maker(
        lambda groups: optim.SGD(groups, lr=0.1),
        {**FLAGS, "momentum": (0.9,), "dampening": (0.1,), "weight_decay": (0.1,), "fused": (True,)}, lr=0.1, tensor_lr=True, weight=4,
    ),
    "SparseAdam": Maker(lambda groups: optim.SparseAdam(groups), refused="SparseAdam takes no dense gradients", weight=0.3),
    "LBFGS": Maker(lambda groups: optim.LBFGS(params_of(groups)), groups=False, refused="LBFGS wants a closure", weight=0.3),
}  # fmt: skip
USERS: dict[str, Maker] = {
    "Sign": Maker(lambda groups: Sign(groups, 0.01)),
    "Lion": Maker(lambda groups: Lion(groups, 0.01, (0.9, 0.99), 0.1), {"weight_decay": (0.0,)}),
    "LARS": Maker(lambda groups: Lars(groups, 0.1), {"momentum": (0.0, 0.5)}),
    "late state": Maker(lambda groups: Late(groups, 0.01), may_refuse="its state appears in its third step, when there may be no room"),
    "late state of each": Maker(lambda groups: LatePerParameter(groups, 0.01), may_refuse="its state appears in its third step, when there may be no room"),
    "shared state": Maker(lambda groups: Shared(groups)),
    "global norm": Maker(lambda groups: GlobalNorm(groups, 0.1), {"momentum": (0.9,)}),
    "noisy": Maker(lambda groups: Noisy(groups, 0.01)),
    "float momentum": Maker(lambda groups: FloatMomentum(groups)),
    "subclass": Maker(lambda groups: Plain(groups), {"amsgrad": (True,)}),
    "subclass that does more": Maker(lambda groups: Decays(groups)),
    "of names": Maker(lambda groups: OfNames("mine", groups, rate=0.1), {"momentum": (0.0,)}),
    "locked": Maker(lambda groups: Locked(groups, 0.01)),
    "Muon with Adam": Maker(with_muon, groups=False, f32=True),
    "SAM": Maker(lambda groups: Sam(groups, 0.1), refused="SAM wants a closure", weight=0.3),
    "SAM that checks": Maker(lambda groups: SamChecks(groups, 0.1), refused="SAM wants a closure", weight=0.3),
    "Lookahead": Maker(lookahead),
    "behind one object": Maker(both(Behind), groups=False),
    "both in one": Maker(both(BothInOne), groups=False),
    "list": Maker(lambda groups: Made(inner := split(groups), inner), groups=False),
    "replaced step": Maker(replaced),
    "Accelerate": Maker(accelerated, {"amsgrad": (True,)}),
    "Lightning": Maker(lightning, {"amsgrad": (True,)}),
}
PACKAGES: dict[str, Maker] = {
    "transformers Adafactor": Maker(of("transformers.optimization", "Adafactor"), {"weight_decay": (0.1,)}, f32=True),
    "transformers Adafactor with momentum": Maker(
        of("transformers.optimization", "Adafactor", lr=1e-3, beta1=0.9, relative_step=False, scale_parameter=False), f32=True
    ),
    **{f"schedulefree {name}": Maker(of("schedulefree", name, lr=0.01), {"weight_decay": (0.1,), "warmup_steps": (3,)})
       for name in ("SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree")},
    "schedulefree closure": Maker(of("schedulefree", "AdamWScheduleFreeClosure", lr=0.01), refused="it wants a closure", weight=0.3),
    **{f"bitsandbytes {name}": Maker(of("bitsandbytes.optim", name, lr=0.01, **more), {"weight_decay": (0.1,)}, f32=True, weight=0.6)
       for name, more in {"AdamW8bit": {}, "Adam8bit": {}, "Lion8bit": {}, "Lion": {}, "AdamW": {}, "RMSprop8bit": {}, "Adagrad8bit": {},
                          "SGD8bit": {"momentum": 0.9}, "LARS8bit": {"momentum": 0.9}, "LAMB8bit": {}, "AdEMAMix8bit": {}, "PagedAdamW8bit": {}}.items()},
    **{f"torchao {name}": Maker(torchao(name), f32=True, weight=0.6) for name in ("AdamW8bit", "Adam8bit", "AdamW4bit", "AdamWFp8")},
}  # fmt: skip
MAKERS = {**PYTORCH, **USERS, **PACKAGES}


# Those that need no package beyond what the tests have anyway.
USUAL = [name for name in MAKERS if name not in PACKAGES or name.startswith("transformers")]


def is_installed(name: str) -> bool:
    return name in USUAL or find_spec(name.split()[0]) is not None


def draw(numbers: random.Random, among: Iterable[str]) -> str:
    names = list(among)
    return numbers.choices(names, [MAKERS[name].weight for name in names])[0]
