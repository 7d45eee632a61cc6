"""Every error and warning, as a user meets it: the programs are in `provoked.py`, what they raise on MESSAGES.md."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import highwater.torch
import pytest
import torch
import torch.distributed as dist
from provoked import ENTRIES, INTERNAL, PAGE, Met, Trials, page, run_all, sites
from releases import FOUND_BY_NAME

# What belongs on no page for users.
FOREIGN = ("TORCHDYNAMO_VERBOSE", "reporting a bug", "BackendCompilerFailed", "site-packages", "highwater/torch/", "AssertionError")


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trials, dict[str, list[Met]]]]:
    folder: Path = tmp_path_factory.mktemp("errors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))  # where no kernels are known
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        trials = Trials()
        try:
            yield trials, run_all(trials)
        finally:
            dist.destroy_process_group()


@FOUND_BY_NAME
def test_the_page_shows_what_users_meet(met: tuple[Trials, dict[str, list[Met]]]) -> None:
    assert page(met[1]) == PAGE.read_text(), "run `python tests/provoked.py`, and read what changed on the page"


@FOUND_BY_NAME
def test_every_error_and_warning_is_provoked(met: tuple[Trials, dict[str, list[Met]]]) -> None:
    missing = [str(site) for site in met[0].sites if not site.reached and not site.is_internal]
    assert not missing, "add entries to tests/provoked.py"


@FOUND_BY_NAME
def test_no_message_is_of_somebody_else(met: tuple[Trials, dict[str, list[Met]]]) -> None:
    for entries in met[1].values():
        for entry in entries:
            assert entry.kind.partition(".")[0] in ("ValueError", "TypeError", "RuntimeError", "NotImplementedError", "highwater"), entry
            assert not [words for words in FOREIGN if words in entry.message], entry


def test_what_is_internal_is_there() -> None:
    places = [str(site) for site in sites()]
    assert all(any(place.startswith(start) for place in places) for start in INTERNAL)
    programs = [program for programs in ENTRIES.values() for program in programs]
    assert len(programs) == len(set(programs))


FIRST_STEPS = """
import torch, highwater.torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 32))
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(0, 32, (4, 8))
loss_fn = lambda out, ids: torch.nn.functional.cross_entropy(out.flatten(0, 1), ids.flatten())
step = highwater.torch.step(model, loss_fn, optimizer, memory="1GiB")
for _ in range(2):
    step(ids, ids)
call = torch.compile(model, backend=highwater.torch.backend("1GiB"))
for _ in range(2):
    loss_fn(call(ids), ids).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_first_steps_print_nothing(tmp_path: Path) -> None:
    quiet = {name: value for name, value in os.environ.items() if name not in ("KINETO_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL", "TORCH_LOGS")}
    done = subprocess.run([sys.executable, "-c", FIRST_STEPS], capture_output=True, text=True, env={**quiet, "XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_profile_of_the_users_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch._dynamo.reset()
    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    call = torch.compile(model, backend=highwater.torch.backend("1GiB"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        with torch.profiler.record_function("before"):
            call(x).sum().backward()
        with torch.profiler.record_function("after"):
            torch.mm(x, x.t())
    names = [event.name for event in profiled.events()]
    assert {"before", "after", "aten::mm"} <= set(names)
