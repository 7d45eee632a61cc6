"""Graphs within graphs, and custom operations in all their forms, compared with eager PyTorch: the same losses,
gradients, buffers and generator state at five budgets, no more memory than was reported, and as many calls.

``python tests/test_torch_nested.py --programs 200`` tries random programs, ``--first 17 --programs 1`` one of them again.
Where PyTorch's own trace has other numbers than eager PyTorch (loops within loops, branches within branches), ours must
have those of the trace.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import custom
import highwater.torch
import nested
import pytest
import torch
from custom import FORMS
from highwater.torch._autograd.like_eager import traced_like_eager
from highwater.torch._messages.locations import CannotPlan
from nested import ROWS, WIDTH, Program
from partition import partition
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop

PLENTY = 1 << 30


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def traced(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend that runs PyTorch's trace as it is."""
    return traced_like_eager(aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition), module, inputs)


class Training:
    """Two steps of a model, which answers its loss: what they change, how often custom operations are called in the
    second, and what a third one takes. `how`: "eager", "traced", "backend" or "step"."""

    def __init__(self, make: Callable[[], nn.Module], rows: tuple[int, int], how: str, memory: int = PLENTY) -> None:
        torch._dynamo.reset()
        torch.manual_seed(7)
        self.model = make()
        inputs = [torch.randn(rows) for _ in range(2)]
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        backend: Any = highwater.torch.backend(memory) if how == "backend" else traced
        call = self.model if how == "eager" else torch.compile(self.model, backend=backend, dynamic=False)
        step = highwater.torch.step(self.model, optimizer=optimizer, memory=memory) if how == "step" else None
        self.seen: dict[str, Tensor] = {}

        def differentiate() -> Tensor:
            loss: Tensor = call(*inputs)
            loss.backward()
            return loss.detach()

        for i in range(2):
            torch.manual_seed(i)
            custom.calls[0] = nested.calls[0] = 0
            loss = step(*inputs) if step else differentiate()
            if not step:
                optimizer.step()
                optimizer.zero_grad()
            # SGD's update tells gradients apart.
            self.seen |= {f"{i}.{name}": value.clone() for name, value in self.model.state_dict().items()}
            self.seen |= {f"{i}.loss": loss.clone(), f"{i}.generator": torch.get_rng_state()}
        self.calls = custom.calls[0] + nested.calls[0]
        if how in ("backend", "step"):
            (self.report,) = (step or backend).reports
            _, most, _ = highwater.torch.allocated((lambda: step(*inputs)) if step else differentiate)
            self.measured = most + self.report.given_bytes

    def differences(self, other: Training) -> list[str]:
        return [name for name in other.seen if not torch.equal(self.seen[name], other.seen[name])]


def check(make: Callable[[], nn.Module], rows: tuple[int, int], ways: Sequence[str] = ("backend", "step"), shares: Sequence[float] = (0.7, 0.4, 0.1, 0.0)) -> str:
    """A verdict, or an `AssertionError`."""
    eager, verdict = Training(make, rows, "eager"), "as eager"
    expected = eager
    if not all(value.isfinite().all() for value in eager.seen.values()):
        return "not finite"  # NaN is not equal to itself
    words = " ".join(getattr(eager.model, "words", []))
    for how in ways:
        plenty = Training(make, rows, how)
        if plenty.differences(expected) and expected is eager:
            expected, verdict = Training(make, rows, "traced"), "as traced"
            assert expected.differences(eager), words
        floor, most = plenty.report.floor_bytes, plenty.report.live_bytes
        budgets = {int(floor + share * (most - floor)) for share in shares}
        for found in [plenty, *(Training(make, rows, how, budget) for budget in sorted(budgets, reverse=True))]:
            about = f"{how} with {found.report.budget_bytes} bytes: {words}"
            assert not (wrong := found.differences(expected)), f"{wrong} of {len(expected.seen)} differ, {about}"
            # Eager checkpoints call again what is within.
            assert found.calls == expected.calls or "checkpoint" in words, f"{found.calls} calls, not {expected.calls}, {about}"
            assert found.measured <= found.report.live_bytes <= found.report.budget_bytes, about
    return verdict


NESTS: list[tuple[str, tuple[str, ...]]] = [
    ("backend", ("cond(wide, dropout)", "map(dropout)")),
    ("step", ("region(cond(fill, chain))", "sums")),
    ("backend", ("while(wide)", "checkpoint(cond(noise, chain))", "dropout")),
]


@pytest.mark.parametrize("seed", range(len(NESTS)))
def test_graphs_within_graphs_have_eagers_bits_within_five_budgets(seed: int) -> None:
    how, names = NESTS[seed]
    assert check(lambda: Program(seed, names), (ROWS, WIDTH), [how]) == "as eager"


def test_a_branch_within_a_loop_has_eagers_bits_at_the_floor() -> None:
    assert check(lambda: Program(0, ("scan(cond(wide, chain))",)), (ROWS, WIDTH), ["step"], (0.0,)) == "as eager"


class Custom(nn.Module):
    """Layers that call custom operations."""

    def __init__(self, names: Sequence[str], within: bool) -> None:
        super().__init__()
        self.names, self.within = names, within
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in names)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for name, layer in zip(self.names, self.layers):
            h = layer(x)
            form = FORMS[name]
            n = torch.cond(h.sum() > -1e9, form, lambda h: h.sin(), (h,)) if self.within else form(h)
            x = x + ((torch.dropout(h, 0.5, True) * n).sin() * n).tanh()
        return nn.functional.mse_loss(x, y)


WITHIN = ["mutates two", "mutates and returns", "returns its argument"]


@pytest.mark.parametrize("within", [False, True])
def test_custom_operations_of_all_forms_run_once(within: bool) -> None:
    names = WITHIN if within else list(FORMS)
    assert check(lambda: Custom(names, within), (ROWS, WIDTH), ["backend"], (0.5, 0.0)) == "as eager"


def test_custom_operations_run_once_in_a_step() -> None:
    assert check(lambda: Custom([*WITHIN, "has effects"], False), (ROWS, WIDTH), ["step"], (0.0,)) == "as eager"


class Branches(nn.Module):
    """A heavy branch or a light one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            h = layer(x)
            x = x + torch.cond(h.sum() > -1e9, self.heavy, lambda h: h.cos(), (h,)).tanh()
        return nn.functional.mse_loss(x, y)

    def heavy(self, h: Tensor) -> Tensor:
        return (torch.cat([h, h, h, h], 1).sin() * 2).exp()[:, :WIDTH] * h


def test_the_peak_of_a_branch_is_reported() -> None:
    found = Training(Branches, (ROWS, WIDTH), "backend")
    assert found.measured == found.report.live_bytes


def test_a_forecast_counts_what_branches_hold() -> None:
    """By the sizes in them, as nothing runs: what kernels take for a while is not in it."""
    model, inputs = Branches(), (torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH))
    told = highwater.torch.plan(model, inputs, optimizer=torch.optim.SGD, memory="1GiB", device="cpu")
    found = Training(Branches, (ROWS, WIDTH), "step")
    assert 0.9 * found.report.live_bytes <= told.kept_bytes <= 1.1 * found.report.live_bytes


class Loop(nn.Module):
    """A loop through which gradients go: how much it keeps for the backward depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        start = torch.zeros((), dtype=torch.int64), self.layer(x)
        _, out = nested.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t.sin()), start)
        return nn.functional.mse_loss(out, y)


def test_a_loop_that_keeps_an_unknown_number_of_tensors_is_refused() -> None:
    with pytest.raises(CannotPlan, match=r"while_loop\S* .*test_torch_nested.py:\d+ .*depends on data"):
        Training(Loop, (ROWS, WIDTH), "step")


def main() -> None:
    parser = argparse.ArgumentParser(description="Random graphs within graphs beside eager PyTorch.")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first program's seed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    counts = Counter[str]()
    for seed in range(args.first, args.first + args.programs):
        try:
            Training(lambda: Program(seed), (ROWS, WIDTH), "eager")
        except Exception as error:  # What eager PyTorch cannot do tells nothing.
            verdict = f"eager fails: {type(error).__name__}"
        else:
            try:
                verdict = check(lambda: Program(seed), (ROWS, WIDTH))
            except CannotPlan as error:
                verdict = f"FAILS: {type(error).__name__}: {error}"
                try:
                    Training(lambda: Program(seed), (ROWS, WIDTH), "traced")
                except Exception:  # PyTorch's trace fails, too.
                    verdict = f"traced fails: {error}"
            except Exception as error:
                verdict = f"FAILS: {type(error).__name__}: {error}"
        counts[" ".join(verdict.split()[:2])] += 1
        print(f"{seed}: {verdict}", flush=True)
    print(dict(counts))
    raise SystemExit(any(verdict.startswith("FAILS") for verdict in counts))


if __name__ == "__main__":
    main()
