"""What changes from step to step: numbers, sizes, and nothing else. Copies, and exceptions of the user's own."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import highwater.torch
import pytest
import torch
import torch.nn.functional as F
from highwater.torch._backend.saved_tensors import Held
from highwater.torch._device.allocated import allocated
from releases import FOUND_BY_NAME
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def fresh(untimed: None) -> None:
    torch._dynamo.reset()


class Scaled(nn.Module):
    """Uses a number in several ways."""

    def __init__(self, use: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.use, self.number = nn.Linear(8, 8), nn.Linear(8, 8), use, 0.0

    def forward(self, x: Tensor, number: Any = None) -> Tensor:
        number = self.number if number is None else number
        return self.second(self.use(self.first(x), number).tanh()) / (number + 3)


USES: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "times": lambda h, n: h * (1 - n),
    "several": lambda h, n: torch.add(h, h.detach(), alpha=n) * 0.97**n + torch.full_like(h, n),
    "temperature": lambda h, n: torch.softmax(h / (n + 0.7), -1),
    "clamp": lambda h, n: h.clamp(-n - 0.1, n + 0.1),
}


def changing(
    use: Callable[[Tensor, Any], Tensor], values: list[Any], rows: list[int], given: bool, dtype: torch.dtype = torch.float32, dynamic: bool | None = False
) -> highwater.torch.Backend:
    """Trains with a number that changes; compares each gradient with eager PyTorch's."""
    torch.manual_seed(1)
    model = Scaled(use).to(dtype)
    eager = copy.deepcopy(model)
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend, dynamic=dynamic)
    for i, value in enumerate(values):
        x = torch.randn(rows[i % len(rows)], 8).to(dtype)
        found = []
        for trained, run in ((model, call), (eager, eager)):
            trained.zero_grad()
            trained.number = value
            answer = run(x, value) if given else run(x)
            answer.square().mean().backward()
            found.append([answer.detach(), *(p.grad for p in trained.parameters())])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), value
    return backend


@pytest.mark.parametrize("use", USES)
def test_a_number_that_changes_has_one_plan(use: str) -> None:
    backend = changing(USES[use], [i / 7 for i in range(1, 6)], [4], given=len(use) % 2 == 0)
    assert len(backend.reports) == 2  # as a constant, before it has changed, and as an input


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_number_rounds_as_eager_does(dtype: torch.dtype) -> None:
    assert len(changing(USES["times"], [0.1, 1 / 3, 1e-3, -2.7, 1e-30], [4], True, dtype).reports) == 2


@pytest.mark.parametrize("given", [False, True])
def test_whole_numbers_are_inputs_too(given: bool) -> None:
    assert len(changing(USES["times"], [7, 8, 9, 2, 1, 0, -4], [4], given).reports) == 2


@pytest.mark.parametrize("values", [[i / 7 for i in range(1, 9)], list(range(2, 10))])
def test_numbers_beside_sizes_that_change(values: list[Any]) -> None:
    backend = changing(USES["times"], values, [3, 4], True)
    assert len(backend.reports) <= 4  # two for each size, where the first were for one value


def test_a_number_that_a_kernel_wants_to_know_has_a_plan_for_each_value() -> None:
    backend = changing(lambda h, n: torch.lerp(h, h.detach().cos(), n), [0.1, 0.2, 0.3, 0.1, 0.2], [3, 4], True)
    assert len(backend.reports) > 2


@pytest.mark.parametrize("values", [[2.5, 1.5, 0.5, 3.0, 0.0], [2, 3, -1, 4, 0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_exponent_that_changes_has_eagers_gradient(values: list[Any], dtype: torch.dtype) -> None:
    # PyTorch writes that gradient with tensors where the exponent is unknown, which round otherwise.
    changing(lambda h, n: (h.abs() + 0.1) ** n, values, [40], True, dtype)


def test_a_number_that_is_built_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highwater.torch._dynamo.calls.SIZES", 3)
    monkeypatch.setattr("highwater.torch._dynamo.exceptions.SIZES", 3)
    with torch._dynamo.config.patch(recompile_limit=2), pytest.raises(Exception, match=r"number changes from step to step \(it was 0\.\d\).* 3 graphs"):
        changing(lambda h, n: F.dropout(h, n, training=False), [i / 10 for i in range(1, 8)], [4], False)


def test_hundreds_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highwater.torch._dynamo.calls.SIZES", 3)
    monkeypatch.setattr("highwater.torch._dynamo.sizes.PLANS", 3)
    with torch._dynamo.config.patch(recompile_limit=3, automatic_dynamic_shapes=True):
        backend = changing(USES["times"], [0.5] * 12, list(range(2, 8)), False)
        assert torch._dynamo.config.automatic_dynamic_shapes
    assert len(backend.reports) >= 6


def test_a_batch_does_not_outlive_its_step() -> None:
    model = Scaled(USES["times"])
    for dynamic in (None, False):
        call, batches = torch.compile(model, backend=highwater.torch.backend("1GiB"), dynamic=dynamic), []
        for rows in (2, 3, 4):
            x = torch.randn(rows, 8)
            batches.append(weakref.ref(x))
            call(x).sum().backward()
            model.zero_grad()
            del x
        gc.collect()
        assert not any(batch() is not None for batch in batches)


def test_what_forwards_kept_is_forgotten_when_it_is_gone() -> None:
    held, most = Held(1 << 30), 0
    stays = torch.empty(3)
    for _ in range(3000):
        pieces = [[stays, *(torch.empty(2) for _ in range(4))] for _ in range(3)]
        for saved in pieces:
            held.keep(saved)
        most = max(most, len(held._storages))
        assert held.beside([]) == 12 + 3 * 4 * 8 if _ % 500 == 0 else True
    assert most <= 2 * 13


class Cut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        torch._dynamo.graph_break()
        return self.second(h).sigmoid()


def test_nothing_grows_where_pieces_are_planned_one_by_one() -> None:
    model, backend, counts = Cut(), highwater.torch.backend("1GiB", graph_breaks="separate"), set()
    call = torch.compile(model, backend=backend, dynamic=False)
    x = torch.randn(4, 8)
    for _ in range(300):
        call(x).sum().backward()
        model.zero_grad()
        counts.add(len(backend._held._storages))
    assert max(counts) < 20 and len(backend.reports) == 2


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("by_name", [False, pytest.param(True, marks=FOUND_BY_NAME)])
def test_copies_of_a_compiled_model(in_place: bool, ran: bool, by_name: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    backend = highwater.torch.backend("1GiB", gradients="loss")
    settings: dict[str, Any] = {"backend": "highwater", "options": {"memory": "1GiB"}} if by_name else {"backend": backend}
    if in_place:
        model.compile(**settings, dynamic=False)
    call = model if in_place else torch.compile(model, **settings, dynamic=False)
    x = torch.randn(4, 8)
    if ran:
        call(x)
    file = io.BytesIO()
    torch.save(call, file)
    file.seek(0)
    copies = [copy.deepcopy(call), pickle.loads(pickle.dumps(call)), torch.load(file, weights_only=False), torch.optim.swa_utils.AveragedModel(call)]
    before = len(backend.reports)
    for other in copies:
        assert torch.equal(other(x), call(x))
    if not by_name:
        # They have plans of their own.
        assert len(backend.reports) == max(1, before)


def test_a_copy_of_a_backend_has_its_settings_and_no_plans() -> None:
    backend = highwater.torch.backend("1GiB", graph_breaks="separate", host_memory=1 << 20)
    torch.compile(nn.Linear(8, 8), backend=backend)(torch.randn(2, 8))
    for other in (copy.deepcopy(backend), pickle.loads(pickle.dumps(backend))):
        assert (other.memory, other.graph_breaks, other.host_memory, other.reports) == (1 << 30, "separate", 1 << 20, [])


class Mistaken(Exception):
    def __init__(self, what: str, size: int) -> None:
        super().__init__(f"{what} of {size}")
        self.what = what


# As Python has it, and not pytest.
ASSERTS: dict[str, Any] = {}
exec("def more(h):\n    assert h.sum() > 1e9, 'more'\n", ASSERTS)


def unset(h: Tensor) -> Tensor:
    if h.shape[0] == 3:
        made = h
    return made


def imports(h: Tensor) -> Tensor:
    import nothing_of_that_name  # type: ignore[import-not-found]

    return nothing_of_that_name.of(h)  # type: ignore[no-any-return]


def raises_a_number(h: Tensor) -> Tensor:
    raise h.shape[0]  # type: ignore[misc]


OTHERS: dict[str, Any] = {
    "list": lambda h, layer: layer([h]),
    "unset": lambda h, layer: unset(h),
    "import": lambda h, layer: imports(h),
    "number": lambda h, layer: raises_a_number(h),
    "arguments": lambda h, layer: unset(h, 1),  # type: ignore[call-arg]
    "keyword": lambda h, layer: layer(h, more=1),
    "unpack": lambda h, layer: [a for a, b in [(h, h, h)]][0],
    "star": lambda h, layer: [*h.shape[0]],  # type: ignore[misc]
    "index": lambda h, layer: [h][3],
    "attribute": lambda h, layer: h.nothing,
    "none": lambda h, layer: None.sum(h),  # type: ignore[attr-defined]
    "zero": lambda h, layer: h * (1 / (h.shape[0] - 4)),
    "next": lambda h, layer: next(iter([])),
    "name": lambda h, layer: nowhere(h),  # type: ignore[name-defined]  # noqa: F821
    "compare": lambda h, layer: (h == torch.ones(3)).float(),
    "view": lambda h, layer: h.view(3, 5),
    "cat": lambda h, layer: torch.cat([h, torch.ones(3, 3)]),
    "int": lambda h, layer: h + int("four"),
    "dtype": lambda h, layer: h @ torch.ones(8, 8, dtype=torch.float64),
    "of the kernel": lambda h, layer: F.conv2d(h, layer.weight),
}


class Raising(nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.layer, self.mistake, self.none = nn.Linear(8, 8), mistake, {}

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x).tanh()
        if self.mistake == "raise":
            raise RuntimeError("the user's")
        if self.mistake == "own":
            raise Mistaken("batch", h.shape[0])
        if self.mistake == "assert":
            assert h.shape[0] == 3, "three"
        if self.mistake == "assert tensor":
            ASSERTS["more"](h)
        if self.mistake == "key":
            return self.none["nothing"]
        if self.mistake == "shape":
            return h @ torch.ones(3, 3)
        if self.mistake == "type":
            return h + "a"
        if self.mistake == "from":
            try:
                self.none["nothing"]
            except KeyError as error:
                raise ValueError("none") from error
        if self.mistake in OTHERS:
            return OTHERS[self.mistake](h, self.layer)
        if self.mistake == "kernel":
            return h + F.embedding(torch.tensor([9]), self.layer.weight)
        return h


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


MISTAKES = ["raise", "own", "assert", "assert tensor", "key", "shape", "type", "from", "kernel", *OTHERS]


@pytest.mark.parametrize(("mistake", "graph_breaks"), [*((mistake, "refuse") for mistake in MISTAKES), ("own", "separate"), ("kernel", "separate")])
def test_exceptions_are_the_users_own(mistake: str, graph_breaks: Any) -> None:
    x = torch.randn(4, 8)
    expected = raised(lambda: Raising(mistake)(x))
    model = Raising("")
    backend = highwater.torch.backend("1GiB", graph_breaks=graph_breaks)
    model.compile(backend=backend, dynamic=False)
    model(x).sum().backward()
    model.mistake = mistake
    for _ in range(2):
        found = raised(lambda: model(x))
        assert (type(found), str(found), type(found.__cause__)) == (type(expected), str(expected), type(expected.__cause__))
        assert found.__context__ is None or mistake == "from"
        lines = [frame.filename for frame in traceback.extract_tb(found.__traceback__)]
        assert lines[-1] == traceback.extract_tb(expected.__traceback__)[-1].filename or any(__file__.rpartition("/")[2] in note for note in getattr(found, "__notes__", [])) or not hasattr(found, "add_note")
    # What comes after it is planned as before.
    model.mistake = ""
    model.zero_grad()
    reports = len(backend.reports)
    model(x).sum().backward()
    assert len(backend.reports) <= reports + 1 and backend._ran


def test_forwards_without_gradients_share_a_plan() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)).eval()
    backend = highwater.torch.backend("1GiB")
    call = torch.compile(model, backend=backend, dynamic=False)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for rows in range(2, 40):
                x = torch.randn(rows, 16)
                assert torch.equal(call(x), model(x))
    assert len(backend.reports) <= 4


def test_forwards_without_gradients_keep_to_the_memory() -> None:
    model = nn.Sequential(nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 16)).eval()
    weights = sum(p.nbytes for p in model.parameters())
    memory = weights + 300_000
    backend = highwater.torch.backend(memory)
    call = torch.compile(model, backend=backend, dynamic=False)
    x = torch.randn(300, 16)
    with torch.no_grad():
        for rows in range(8, 145, 8):
            call(x[:rows].clone())
            y = x[:rows].clone()
            _, most, _ = allocated(lambda: call(y))
            assert weights + y.nbytes + most <= memory
        assert 2 < len(backend.reports) < 12
        with pytest.raises(highwater.torch.OverBudget):
            call(x)


def changed_between(way: str, change: Callable[[nn.Module], None]) -> list[float]:
    """The losses of a model that is changed between two steps."""
    torch.manual_seed(1)
    x = torch.randn(4, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    optimizer, loss_fn, y, found = torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss(), torch.randn(4, 8), []
    train = highwater.torch.step(model, loss_fn, optimizer, memory="1GiB") if way == "step" else None
    call = torch.compile(model, backend=highwater.torch.backend("1GiB")) if way == "backend" else model
    for step in range(5):
        if step == 2:
            change(model)
        if train:
            found.append(train(x, y).item())
            continue
        loss = loss_fn(call(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def doubled(module: nn.Module, args: Any, result: Tensor) -> Tensor | None:
    return result * 2 if isinstance(module, nn.Tanh) else None


HOOKS: dict[str, Callable[[Any], Any]] = {
    "forward": lambda model: model[1].register_forward_hook(doubled),
    "before": lambda model: model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "of all modules": lambda model: model.__dict__.update(handle=nn.modules.module.register_module_forward_hook(doubled)),
}


@pytest.mark.parametrize("way", ["step", "backend"])
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_that_come_later_are_called(name: str, way: str) -> None:
    def losses_of(way: str) -> list[float]:
        try:
            return changed_between(way, HOOKS[name])
        finally:
            nn.modules.module._global_forward_hooks.clear()

    assert losses_of(way) == losses_of("eager")
