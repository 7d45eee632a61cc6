"""Plans that are known before a search: those of other sizes, and those of other runs."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import highwater.torch
import pytest
import torch
from highwater.torch._plan import plan_cache, problem as _problem
from highwater.torch._plan.known import Known
from highwater.torch._plan.plan_cache import Kept
from models import CASES, Gpt
from torch import Tensor, nn

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def made() -> nn.Module:
    torch.manual_seed(1)
    return Gpt(layers=1)


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, 97, (batch, length), generator=torch.Generator().manual_seed(batch * length))


def gradients(model: nn.Module, call: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    torch.manual_seed(2)
    model.zero_grad()
    loss = call(*inputs)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def compiled(memory: int | str) -> tuple[nn.Module, Callable[..., Tensor], highwater.torch.Backend]:
    torch._dynamo.reset()
    model, backend = made(), highwater.torch.backend(memory)
    return model, torch.compile(model, backend=backend, dynamic=False), backend


def needs(size: tuple[int, int]) -> tuple[int, int]:
    """The floor of a search at a size, and what it takes with all kept."""
    model, call, backend = compiled("8GiB")
    call(ids(*size))
    return backend.reports[0].floor_bytes, backend.reports[0].live_bytes


def test_sizes_in_a_random_order(untimed: None) -> None:
    # What is measured beside other work may make any plan look slow.
    dice = random.Random(3)
    sizes = [(dice.randint(2, 9), dice.randint(8, 40)) for _ in range(4)]
    largest = max(sizes, key=lambda size: size[0] * size[1] ** 1.5)
    floor, most = needs(largest)
    budget = floor + (most - floor) // 3
    model, call, backend = compiled(budget)
    for size in [*sizes, *reversed(sizes)]:
        assert same(gradients(model, call, ids(*size)), gradients(eager := made(), eager, ids(*size)))
    assert len(backend.reports) == len(set(sizes))
    assert all(report.live_bytes <= budget for report in backend.reports)
    assert backend._known.searches + sum(report.adapted for report in backend.reports) == len(backend.reports)
    assert backend._known.searches < len(backend.reports)


def test_another_size_is_not_searched(untimed: None) -> None:
    # A search that another measurement guides may end above the floor that is told.
    model, call, backend = compiled("8GiB")
    for size in [(4, 32), (8, 32), (4, 16), (6, 24)]:
        call(ids(*size))
    assert [report.adapted for report in backend.reports] == [False, True, True, True]
    assert backend._known.searches == 1
    # What is told was found: it fits.
    model, call, again = compiled(backend.reports[1].floor_bytes)
    call(ids(8, 32))
    assert again.reports[0].live_bytes <= again.memory


def test_below_what_decisions_of_another_size_reach_there_is_a_search() -> None:
    floor, _ = needs((8, 40))
    model, call, backend = compiled(floor)
    for size in [(3, 12), (8, 40)]:
        assert same(gradients(model, call, ids(*size)), gradients(eager := made(), eager, ids(*size)))
    assert [report.adapted for report in backend.reports] == [False, False]
    assert backend._known.searches == 2
    model.zero_grad()
    with pytest.raises(highwater.OverBudget):
        call(ids(9, 48))
    assert backend._known.searches == 3


def test_another_structure_is_searched() -> None:
    torch._dynamo.reset()
    backend = highwater.torch.backend("8GiB")
    for layers in (1, 2):
        torch.compile(Gpt(layers=layers), backend=backend, dynamic=False)(ids(4, 32))
    assert backend._known.searches == 2


def test_a_step_of_other_sizes_is_not_searched() -> None:
    def run(step: Callable[[Tensor], Tensor]) -> list[Tensor]:
        torch.manual_seed(3)
        return [step(ids(*size)) for size in [(4, 32), (8, 32), (6, 40), (4, 32)]]

    model = made()
    step = highwater.torch.step(model, None, torch.optim.AdamW(model.parameters()), memory="8GiB")
    losses = run(step)
    assert [report.adapted for report in step.reports] == [False, True, True]
    eager = made()
    optimizer = torch.optim.AdamW(eager.parameters())

    def plain(inputs: Tensor) -> Tensor:
        loss: Tensor = eager(inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    assert same([*losses, *model.parameters()], [*run(plain), *eager.parameters()])


@pytest.mark.parametrize("name", ["gpt", "unet", "lstm"])
def test_another_backend_takes_what_was_kept(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(1)
    model, inputs = case.model(), case.inputs()

    def run(memory: int | str) -> tuple[list[Tensor], highwater.torch.Report, int]:
        torch._dynamo.reset()
        ours, backend = copy.deepcopy(model), highwater.torch.backend(memory)
        call = torch.compile(ours, backend=backend, dynamic=False)

        def loss(*inputs: Tensor) -> Tensor:
            out = call(*inputs)
            return case.loss(*out) if isinstance(out, tuple) else case.loss(out)

        return gradients(ours, loss, *inputs), backend.reports[0], backend._known.searches

    _, plenty, _ = run("1GiB")
    budget = (plenty.floor_bytes + plenty.live_bytes) // 2
    first, searched, searches = run(budget)
    assert searches == 1 and not searched.kept
    again, kept, searches = run(budget)
    assert searches == 0 and kept.kept and same(first, again)
    for field in ("given_bytes", "live_bytes", "floor_bytes", "seconds", "recomputed_kernels", "kernels"):
        assert getattr(kept, field) == getattr(searched, field)
    # Another budget is another plan.
    _, other, searches = run(budget + 1)
    assert searches == 1 and not other.kept


def small() -> tuple[list[Tensor], highwater.torch.Backend]:
    """A model that is planned at once, in less than it takes with all kept."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, backend = CASES["mlp"].model(), highwater.torch.backend(66_000)
    call = torch.compile(model, backend=backend, dynamic=False)
    found = gradients(model, lambda: CASES["mlp"].loss(call(*CASES["mlp"].inputs())))
    return found, backend


# Times of a busy machine would be measured again, and lead to another search.
PROGRAM = """
import json
import highwater.torch._plan.costs
highwater.torch._plan.costs.watched = lambda measure: (measure(), True)
from test_torch_known import small
found, backend = small()
sums = [tensor.double().sum().item() for tensor in found]
print(json.dumps([backend._known.searches, backend.reports[0].kept, sums]))
"""


def test_another_process_takes_what_was_kept(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    runs = [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=HERE).stdout.splitlines()[-1])
        for _ in range(2)
    ]
    assert runs[0] == [1, False, runs[0][2]]
    assert runs[1] == [0, True, runs[0][2]]
    # The plan, and the lowest one that there is for its structure.
    assert len(list((tmp_path / "highwater" / "plans").iterdir())) == 2


def truncated(text: bytes) -> bytes:
    return text[: len(text) // 2]


def flipped(text: bytes) -> bytes:
    at = random.Random(len(text)).randrange(len(text))
    return text[:at] + bytes([text[at] ^ 1 << at % 8]) + text[at + 1 :]


@pytest.mark.parametrize("harm", [truncated, flipped, lambda text: b"", lambda text: b"\xff\xfe", lambda text: b"{}\n{}"])
def test_what_was_harmed_is_ignored_and_replaced(searched_anew: Path, harm: Callable[[bytes], bytes]) -> None:
    expected, _ = small()
    for path in searched_anew.iterdir():
        path.write_bytes(harm(path.read_bytes()))
    for kept in (False, True):
        found, backend = small()
        assert backend.reports[0].kept == kept and same(found, expected)


@pytest.mark.parametrize("change", ["plan", "floor", "adapted", "nothing", "other"])
def test_what_is_no_plan_of_the_problem_is_ignored(searched_anew: Path, change: str) -> None:
    """Well written, but by somebody else."""
    small()
    known, name = set(searched_anew.iterdir()), name_of(small)
    path = Kept(searched_anew)._path(name)
    fields = json.loads(path.read_text().partition("\n")[2])
    plan = json.loads(fields["plan"])
    if change == "plan":
        plan["instructions"] = plan["instructions"][:-3]
        fields["plan"] = json.dumps(plan)
    elif change == "other":
        compiled(2 << 20)[1](ids(4, 32))
        other = min(set(searched_anew.iterdir()) - known)
        fields = json.loads(other.read_text().partition("\n")[2])
    else:
        fields |= {"floor": "2"} if change == "floor" else {"adapted": 2} if change == "adapted" else {}
    Kept(searched_anew).write(name, fields if change != "nothing" else {})
    _, backend = small()
    assert not backend.reports[0].kept


def name_of(run: Callable[[], object]) -> str:
    """The name that a plan is asked for by."""
    asked: list[str] = []
    read = Kept.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "read", lambda self, name: asked.append(name) or read(self, name))
        run()
    return asked[0]


def test_what_another_version_made_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    small()
    monkeypatch.setattr(plan_cache, "maker", lambda: "another")
    for kept in (False, True):
        _, backend = small()
        assert backend.reports[0].kept == kept


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    kept = Kept(tmp_path / "file")
    kept.write("a", {})
    assert kept.read("a") is None


def test_the_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    monkeypatch.setattr(plan_cache, "MOST_BYTES", 1000)
    for i in range(20):
        kept.write(str(i), {"text": "x" * 100})
        assert kept.read("0") is not None, "what is asked for stays"
        for path in tmp_path.iterdir():
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
        kept.read("0")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    assert kept.read("19") is not None and kept.read("1") is None


def test_all_that_a_problem_is_told_is_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = []
    pose = _problem.pose

    def watched(*args: object) -> object:
        posed.append(pose(*args))
        return posed[-1]

    monkeypatch.setattr("highwater.torch._plan.choices.pose", watched)
    for size in [(4, 32), (4, 32), (5, 32)]:
        compiled("1GiB")[1](ids(*size))
    for problem, said in posed:
        assert said.count == 1 + problem.node_count + problem.value_count
    first, again, other = (said.name for _, said in posed)
    assert first == again != other
