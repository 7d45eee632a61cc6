"""The planner through Python."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import highwater
import pytest
from highwater import Family, Instruction, InvalidPlan, Link, OverBudget, Plan, Problem, verify

HERE = Path(__file__).parent.parent


def six_nodes(size: int = 100) -> Problem:
    """x -> a -> b -> c, then c, b, a are read in turn: the example of docs/design/planner.md."""
    problem = Problem()
    x = problem.add_value(size, home="external")
    a, b, c = (problem.add_value(size) for _ in range(3))
    for inputs, outputs in [([x], [a]), ([a], [b]), ([b], [c])]:
        problem.add_node(inputs, outputs, 1.0)
    for value in [c, b, a]:
        problem.add_node([value], [], 1.0, effect="once")
    return problem


def chain(
    dice: random.Random, length: int, *, host: Link | None = None, pins: list[str] | None = None
) -> Problem:
    """A forward chain with skips, a backward chain that reads it, and updates."""
    problem = Problem(host=host)
    last = problem.add_value(dice.randrange(1, 5000), home="external")
    made: list[int] = []
    for i in range(length):
        pin: Any = dice.choice(pins or ["free"])
        out = problem.add_value(dice.choice([0, 64, 1000, 1000, 4096]), pin=pin)
        inputs = [last, *dice.sample(made, min(len(made), dice.randrange(2)))]
        problem.add_node(
            inputs,
            [out],
            dice.random(),
            scratch_bytes=dice.choice([0, 0, dice.randrange(3000)]),
            in_place=[(0, 0)] if dice.random() < 0.5 else (),
            reads=[(i, 0)] if dice.random() < 0.5 else [],
        )
        made.append(out)
        last = out
    problem.add_node([last], [], 0.0, effect="guard")
    gradient = last
    for i, value in reversed(list(enumerate(made))):
        bytes = problem.value_bytes(value)
        outputs = [problem.add_value(bytes), problem.add_value(dice.randrange(1, 3000))]
        optional = [(1, 0.25)] if dice.random() < 0.3 else []
        lane: Any = "communicate" if dice.random() < 0.1 else "compute"
        problem.add_node([gradient, value], outputs, 0.5, optional=optional, lane=lane)
        problem.add_node([outputs[1]], [], 0.1, effect="once", writes=[(i, 0)])
        gradient = outputs[0]
    end = problem.add_value(64, wanted=True)
    problem.add_node([gradient], [end], 0.1)
    return problem


def budgets(family: Family, count: int = 6) -> list[int]:
    least, most = family.floor.bytes, family.curve()[0][0]
    return [least + (most - least) * i // (count - 1) for i in range(count)]


def runs(plan: Plan) -> list[int]:
    return [i.node for i in plan.instructions if isinstance(i, Instruction.Run)]


def test_six_nodes() -> None:
    problem = six_nodes()
    family = Family(problem)
    assert family.curve() == [(384, 6.0), (256, 7.0)]
    for budget in [384, 1 << 40, 2**64 - 1]:
        plan = family.choose(budget)
        assert (plan.seconds, plan.arena_bytes, plan.recomputed_nodes) == (6.0, 384, 0)
        assert runs(plan) == [0, 1, 2, 3, 4, 5]
    for budget in [256, 383]:
        plan = family.choose(budget)
        assert (plan.seconds, plan.arena_bytes, plan.live_bytes) == (7.0, 256, 256)
        assert (plan.recomputed_nodes, plan.recompute_seconds) == (1, 1.0)
        assert runs(plan) == [0, 1, 2, 3, 4, 0, 5]
        freed = [i.value for i in plan.instructions if isinstance(i, Instruction.Free)]
        assert freed == [1, 3, 2, 1]
        (decision,) = plan.explain()
        assert (decision.choice, decision.node, decision.times) == ("recompute", 0, 1)
        assert (decision.bytes, decision.seconds) == (128, 1.0)
    with pytest.raises(OverBudget) as refused:
        family.choose(255)
    assert str(refused.value).startswith("need at least 256 bytes (set by node ")
    assert (refused.value.budget, refused.value.floor.bytes) == (255, 256)
    floor = family.floor
    assert sum(bytes for _, bytes in floor.holders) + floor.scratch_bytes == 256
    assert refused.value.floor.holders == floor.holders
    assert isinstance(refused.value, RuntimeError)


def test_instructions_are_matched_by_kind() -> None:
    plan = Family(six_nodes()).choose(384)
    seen = []
    for instruction in plan.instructions:
        match instruction:
            case Instruction.Run(node, offsets, scratch):
                assert scratch is None
                assert all(offset is not None and offset % 64 == 0 for offset in offsets)
                seen.append(f"n{node}")
            case Instruction.Free(value):
                seen.append(f"free {value}")
        assert (instruction.lane, instruction.waits) == ("compute", [])
    assert seen == ["n0", "n1", "n2", "n3", "free 3", "n4", "free 2", "n5", "free 1"]
    first = "Instruction.Run(node=0, offsets=["
    assert repr(plan.instructions[0]).startswith(first)
    assert plan.instructions[0] == Family(six_nodes()).choose(384).instructions[0]
    assert plan.instructions[0] != plan.instructions[1]


@pytest.mark.parametrize("seed", range(40))
def test_plans_keep_within_budgets_and_cost_no_more_with_more(seed: int) -> None:
    dice = random.Random(seed)
    host = Link(1 << 16, 1e4, 1e4) if seed % 4 == 3 else None
    pins = ["free", "keep", "recompute", "prefer_keep", "prefer_recompute"]
    problem = chain(dice, dice.randrange(1, 12), host=host, pins=pins if seed % 2 else None)
    family = Family(problem, "auto" if seed % 5 else "recompute")
    before = float("inf")
    for budget in budgets(family):
        plan = family.choose(budget)
        assert plan.arena_bytes <= budget
        in_order = {i.lane for i in plan.instructions} == {"compute"}
        assert plan.live_bytes <= plan.arena_bytes or not in_order
        assert plan.seconds <= before
        before = plan.seconds
        verify(problem, plan, budget)
        with pytest.raises(InvalidPlan, match="the budget"):
            verify(problem, plan, plan.arena_bytes - 1)
        held = plan.holders()
        most = sum(bytes for _, bytes in held.values) + held.scratch_bytes
        assert most == plan.live_bytes or not in_order
        for at in range(len(plan.instructions)):
            held = plan.holders(at)
            assert sum(bytes for _, bytes in held.values) <= plan.live_bytes
        again = sum(d.seconds for d in plan.explain() if d.choice == "recompute")
        assert again == pytest.approx(plan.recompute_seconds)
        assert len(plan.residents) == 1
    with pytest.raises(OverBudget):
        family.choose(family.floor.bytes - 1)


def mutations(text: str) -> list[tuple[str, Any]]:
    """A plan's JSON with one thing changed that must not be."""

    def changed(change: Any) -> Any:
        plan = json.loads(text)
        change(plan)
        return plan

    plan = json.loads(text)
    found = [
        ("less", changed(lambda p: p.update(arena_bytes=p["arena_bytes"] - 64))),
        ("huge", changed(lambda p: p.update(arena_bytes=2**64 - 1))),
        ("figures", changed(lambda p: p.update(seconds=p["seconds"] * 1000 + 1))),
        ("peak", changed(lambda p: p.update(peak_instruction=2**32 - 1))),
        ("nothing", changed(lambda p: p.update(instructions=[]))),
    ]
    for at, instruction in enumerate(plan["instructions"]):
        found.append(("left out", changed(lambda p, at=at: p["instructions"].pop(at))))
        (kind,) = instruction["action"]
        name = "value" if "value" in instruction["action"][kind] else "node"

        def other(p: Any, at: int = at, kind: str = kind, name: str = name) -> None:
            p["instructions"][at]["action"][kind][name] = 2**32 - 1

        found.append(("no such", changed(other)))
        wait = lambda p, at=at: p["instructions"][at]["waits"].append(at)  # noqa: E731
        found.append(("waits for itself", changed(wait)))
        if kind == "Run" and any(o is not None for o in instruction["action"][kind]["outputs"]):

            def moved(p: Any, at: int = at) -> None:
                run = p["instructions"][at]["action"]["Run"]
                run["outputs"] = [2**64 - 64 if o is not None else o for o in run["outputs"]]

            found.append(("far away", changed(moved)))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_json_is_read_and_what_was_changed_is_refused(seed: int) -> None:
    dice = random.Random(seed)
    host = Link(1 << 16, 1e4, 1e4) if seed % 4 == 3 else None
    problem = chain(dice, 5, host=host)
    family = Family(problem)
    for budget in budgets(family, 3):
        plan = family.choose(budget)
        text = plan.to_json()
        same = Plan.from_json(problem, text)
        assert same.instructions == plan.instructions
        assert same.arena_bytes == plan.arena_bytes
        assert same.to_json() == text
        verify(problem, same, budget)
        for what, mutant in mutations(text):
            with pytest.raises(InvalidPlan):
                Plan.from_json(problem, json.dumps(mutant))
                pytest.fail(what)
        with pytest.raises(InvalidPlan):
            verify(six_nodes(), plan, 1 << 40)
    for text in ["", "[]", "{}", '{"instructions": 3}', "x" * 100]:
        with pytest.raises(ValueError, match="the text is no plan"):
            Plan.from_json(problem, text)


def test_seconds_are_read_to_the_last_bit() -> None:
    dice = random.Random(0)
    for _ in range(300):
        problem = Problem()
        problem.add_node((), [problem.add_value(1)], dice.random() * 10 ** dice.uniform(-6, 3))
        plan = Family(problem).choose(1 << 20)
        assert Plan.from_json(problem, plan.to_json()).seconds == plan.seconds


def test_values_move_to_host_memory() -> None:
    problem = Problem(host=Link(1 << 30, 1e9, 1e9))
    last = problem.add_value(1 << 20, home="external")
    made = []
    for _ in range(8):
        made.append(problem.add_value(1 << 20))
        problem.add_node([last], [made[-1]], 1.0)
        last = made[-1]
    for value in reversed(made):
        problem.add_node([value], [], 1.0, effect="once")
    family = Family(problem)
    plan = family.choose(4 << 20)
    kinds = {type(i) for i in plan.instructions}
    assert {Instruction.Evict, Instruction.Fetch} <= kinds
    # Moving a value takes a thousandth of making it.
    assert plan.recomputed_nodes == 0
    assert plan.seconds < 16.1
    assert plan.host.written_bytes == plan.host.read_bytes > 0
    assert plan.host.spill_bytes >= max(
        (i.place or 0) + (1 << 20) for i in plan.instructions if isinstance(i, Instruction.Evict)
    )
    for i in plan.instructions:
        if isinstance(i, Instruction.Evict):
            assert (i.tier, i.lane) == ("host", "device_to_host")
        elif isinstance(i, Instruction.Fetch):
            assert (i.tier, i.lane) == ("host", "host_to_device")
            assert i.waits
    verify(problem, Plan.from_json(problem, plan.to_json()), 4 << 20)


def test_cells_are_on_the_host_where_they_do_not_fit() -> None:
    size = 1 << 20
    problem = Problem(host=Link(1 << 30, 1e9, 1e9))
    gradient = problem.add_value(64, home="external")
    cells = [problem.add_value(size, home="cell") for _ in range(6)]
    for cell in cells:
        problem.add_node([gradient, cell], [], 1e-3, effect="once", rewrites=[1], writes=[(cell, 0)])
    family = Family(problem)
    plenty = family.choose(1 << 30)
    assert plenty.cells_on_host == [] and plenty.memory_bytes == 6 * size
    plan = family.choose(3 * size)
    assert plan.memory_bytes <= 3 * size
    assert plan.host.home_bytes == size * len(plan.cells_on_host) > 0
    moved = [(type(i), i.value, getattr(i, "place", None)) for i in plan.instructions if isinstance(i, (Instruction.Evict, Instruction.Fetch))]
    for cell in plan.cells_on_host:
        assert [kind for kind, value, _ in moved if value == cell] == [Instruction.Fetch, Instruction.Evict]
    assert all(place is None for _, _, place in moved)
    verify(problem, Plan.from_json(problem, plan.to_json()), 3 * size)
    with pytest.raises(ValueError, match="value 0: cells are for problems with host memory"):
        Problem().add_value(size, home="cell")
    with pytest.raises(ValueError, match='node 6: rewrites name inputs that are cells, of a node with effect "once"'):
        problem.add_node([gradient, cells[0]], [], 1e-3, effect="once", rewrites=[0])
    with pytest.raises(ValueError, match="outputs name value 1, a cell, which is there from the start"):
        problem.add_node([gradient], [cells[0]], 1e-3)


def test_nobody_reads_an_old_version_after_the_write() -> None:
    problem = six_nodes()
    reader = Problem()
    x = reader.add_value(100, home="external")
    a, b, c = (reader.add_value(100) for _ in range(3))
    reader.add_node([x], [a], 1.0, reads=[(7, 0)])
    reader.add_node([a], [b], 1.0)
    reader.add_node([b], [c], 1.0)
    reader.add_node([c], [], 1.0, effect="once", writes=[(7, 0)])
    reader.add_node([b], [], 1.0, effect="once")
    reader.add_node([a], [], 1.0, effect="once")
    plan = Family(reader).choose(Family(problem).floor.bytes)
    order = runs(plan)
    assert order.count(0) == 2
    assert order.index(3) > len(order) - 1 - order[::-1].index(0)


def test_preferences_are_followed_while_they_fit() -> None:
    def problem(pin: Any) -> Problem:
        problem = Problem()
        x = problem.add_value(100, home="external")
        a, b, c = problem.add_value(100, pin=pin), problem.add_value(100), problem.add_value(100)
        for inputs, outputs in [([x], [a]), ([a], [b]), ([b], [c])]:
            problem.add_node(inputs, outputs, 1.0)
        for value in [c, b, a]:
            problem.add_node([value], [], 1.0, effect="once")
        return problem

    assert Family(problem("recompute")).choose(1000).recomputed_nodes == 1
    assert Family(problem("prefer_recompute")).choose(1000).recomputed_nodes == 1
    assert Family(problem("keep")).floor.bytes == 384
    assert Family(problem("prefer_keep")).floor.bytes == 256
    assert Family(six_nodes(), "keep").floor.bytes == 384
    assert Family(six_nodes(), "recompute").choose(1000).arena_bytes <= 384


def test_decisions_are_carried_to_another_length() -> None:
    def problem(scale: int, pin: Any = "free") -> Problem:
        dice = random.Random(3)
        problem = Problem()
        last = problem.add_value(100 * scale, home="external")
        made = []
        for _ in range(20):
            made.append(problem.add_value(dice.randrange(1, 100) * 64 * scale, pin=pin))
            problem.add_node([last], [made[-1]], dice.random() * scale)
            last = made[-1]
        for value in reversed(made):
            problem.add_node([value], [], 1.0 * scale, effect="once")
        return problem

    family = Family(problem(1))
    assert family.adapt(problem(2)) is None, "nothing has been searched"
    floor = family.floor.bytes
    longer = family.adapt(problem(2))
    assert longer is not None
    assert longer.floor.bytes == 2 * floor
    plan = longer.choose(2 * floor)
    verify(problem(2), plan, 2 * floor)
    assert plan.seconds == pytest.approx(2 * family.choose(floor).seconds)
    assert family.adapt(six_nodes()) is None
    assert family.adapt(problem(2, "keep")) is None


def test_a_family_keeps_the_problem_as_it_was() -> None:
    problem = six_nodes()
    family = Family(problem)
    value = problem.add_value(1 << 20)
    problem.add_node([], [value], 1.0)
    assert family.floor.bytes == 256
    verify(six_nodes(), family.choose(384), 384)
    with pytest.raises(InvalidPlan, match="node 6 never runs"):
        verify(problem, family.choose(384), 384)


def with_values(**node: Any) -> Problem:
    """Values 0 (external), 1 (filled by node 0), 2; and a node 1."""
    problem = Problem()
    problem.add_value(64, home="external")
    problem.add_value(64)
    problem.add_value(64)
    problem.add_node([0], [1], 1.0)
    said: dict[str, Any] = {"inputs": [1], "outputs": [2], "seconds": 1.0, **node}
    problem.add_node(said.pop("inputs"), said.pop("outputs"), said.pop("seconds"), **said)
    return problem


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"inputs": [9]}, "node 1: inputs name value 9, but there are 3"),
        ({"inputs": [-1]}, "node 1: inputs must be from 0 to 4294967295, not -1"),
        ({"inputs": [2**70]}, "node 1: inputs must be from 0"),
        ({"inputs": [2], "outputs": []}, "node 1: inputs name value 2, which no node fills yet"),
        ({"outputs": [1], "inputs": []}, "node 1: outputs name value 1, which node 0 fills"),
        ({"outputs": [0]}, "node 1: outputs name value 0, which node 0 reads"),
        ({"outputs": [2, 2]}, "node 1: outputs name value 2 twice"),
        ({"seconds": -1.0}, "node 1: seconds must be a number that is not negative, not -1"),
        ({"seconds": float("nan")}, "node 1: seconds must be"),
        ({"seconds": float("inf")}, "node 1: seconds must be"),
        ({"scratch_bytes": -5}, "node 1: scratch_bytes must be from 0"),
        ({"scratch_bytes": 2**62}, "node 1: scratch_bytes must be from 0"),
        ({"scratch_bytes": 2**62 - 1}, "node 1: with .* bytes more the problem has over"),
        ({"in_place": [(0, 1)]}, "node 1: in_place names output 1, but the node has 1"),
        ({"in_place": [(1, 0)]}, "node 1: in_place names input 1, but the node has 1"),
        ({"optional": [(1, 0.5)]}, "node 1: optional names output 1, but the node has 1"),
        ({"optional": [(0, -0.5)]}, "node 1: optional: seconds saved must be"),
        ({"optional": [(0, 2.0)]}, "node 1: leaving out all optional outputs saves more"),
        ({"optional": [(0, 0.1), (0, 0.1)]}, "node 1: optional names an output twice"),
        ({"optional": [(0, 0.1)], "effect": "once"}, "node 1: only a repeatable node"),
        ({"effect": "guard"}, "node 1: a guard has no outputs"),
        ({"effect": "twice"}, 'node 1: effect must be one of "repeatable", "once", "guard", not'),
        ({"lane": "write"}, 'node 1: lane must be one of "compute", "communicate", not "write"'),
        ({"writes": [(0, 0)]}, "node 1: a node that writes a cell may not run again"),
        ({"writes": [(0, 2**31)], "effect": "once"}, "node 1: writes: versions must be from 0"),
        ({"reads": [(2**40, 0)]}, "node 1: reads: cells must be from 0"),
    ],
)
def test_bad_nodes_are_refused_with_words(node: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        with_values(**node)


def test_bad_arguments_are_refused_with_words() -> None:
    problem = six_nodes()
    refused: list[tuple[Any, str]] = [
        (lambda: problem.add_value(-1), "value 4: bytes must be from 0 to .*, not -1"),
        (lambda: problem.add_value(2**62), "value 4: bytes must be from 0"),
        (lambda: problem.add_value(2**62 - 1), "value 4: with .* bytes more"),
        (lambda: problem.add_value(1, home="disk"), 'value 4: home must be one of "arena", "ext'),  # type: ignore[arg-type]
        (lambda: problem.add_value(1, pin="maybe"), 'value 4: pin must be one of "free", "keep"'),  # type: ignore[arg-type]
        (lambda: Problem(align=0), "align must be a power of two below 2\\*\\*30, not 0"),
        (lambda: Problem(align=96), "align must be a power of two"),
        (lambda: Problem(align=1 << 30), "align must be a power of two"),
        (lambda: Link(1, 0.0, 1.0), "read must be bytes per second, more than none, not 0"),
        (lambda: Link(1, 1.0, 1.0, lost=-1.0), "lost must be"),
        (lambda: Family(problem, "fast"), 'policy must be one of "auto", "keep", "recompute"'),  # type: ignore[arg-type]
        (lambda: Family(problem).choose(-1), "budget must be from 0 to"),
        (lambda: Family(problem).curve(-1), "count must be from 0 to"),
    ]
    for call, words in refused:
        with pytest.raises(ValueError, match=words):
            call()
    assert (problem.node_count, problem.value_count) == (6, 4)
    assert Family(problem).curve() == [(384, 6.0), (256, 7.0)]


def test_other_kinds_are_refused() -> None:
    calls: list[tuple[Any, str]] = [
        (lambda: six_nodes().add_value("1"), "value 4: bytes must be an int, not str"),  # type: ignore[arg-type]
        (lambda: six_nodes().add_value(1.0), "value 4: bytes must be an int, not float"),  # type: ignore[arg-type]
        (lambda: with_values(inputs=3), "node 1: inputs must be a list or a tuple"),
        (lambda: with_values(in_place=[3]), "node 1: in_place must be pairs, not 3"),
        (lambda: with_values(in_place=[(1, 2, 3)]), "node 1: in_place must be pairs"),
        (lambda: Family(six_nodes()).choose(1e9), "budget must be an int, not float"),  # type: ignore[arg-type]
    ]
    for call, words in calls:
        with pytest.raises(TypeError, match=words):
            call()
    for at in [9, 2**32 - 1]:
        with pytest.raises(IndexError, match=f"no instruction {at}: the plan has 9"):
            Family(six_nodes()).choose(384).holders(at)
    with pytest.raises(IndexError, match="no value 4: there are 4"):
        six_nodes().value_bytes(4)
    with pytest.raises(IndexError, match="no node 6: there are 6"):
        six_nodes().node_seconds(6)


def test_problems_that_make_no_sense_are_refused() -> None:
    unfilled = six_nodes()
    unfilled.add_value(1)
    with pytest.raises(ValueError, match="value 4 lives in the arena, but no node fills it: add"):
        Family(unfilled)
    with pytest.raises(ValueError, match="value 4 lives in the arena"):
        Family(six_nodes()).adapt(unfilled)
    circle = Problem()
    gradient = circle.add_value(1)
    circle.add_node([], [gradient], 1.0, effect="once", writes=[(0, 0)])
    circle.add_node([gradient], [], 1.0, effect="guard")
    with pytest.raises(ValueError, match="form a circle: let no guard depend"):
        Family(circle)
    twice = Problem()
    for _ in range(2):
        twice.add_node([], [], 1.0, effect="once", writes=[(0, 0)])
    with pytest.raises(ValueError, match="version 0 of cell 0 is overwritten by node 0 and"):
        Family(twice)


def test_values_may_be_added_while_a_list_is_read() -> None:
    problem = Problem()
    node = problem.add_node((), (problem.add_value(1) for _ in range(3)), 1.0)
    assert (node, problem.value_count, problem.node_count) == (0, 3, 1)


def test_nothing_to_do_is_a_plan() -> None:
    plan = Family(Problem()).choose(0)
    assert (plan.instructions, plan.arena_bytes, plan.seconds) == ([], 0, 0.0)
    assert (plan.residents, plan.explain()) == ([], [])
    with pytest.raises(IndexError):
        plan.holders()
    Plan.from_json(Problem(), plan.to_json())


def test_other_threads_run_while_plans_are_looked_for() -> None:
    family = Family(chain(random.Random(0), 300))
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    while ticks[0] == 0:
        time.sleep(0.001)
    before = ticks[0]
    floor = family.floor
    during = ticks[0] - before
    done.set()
    thread.join()
    assert floor.bytes > 0
    # With the lock held the other thread would get no turn but at the call's ends.
    assert during > 5


def test_a_family_may_be_asked_by_many_threads() -> None:
    family = Family(chain(random.Random(1), 40))
    found: list[tuple[int, float]] = []

    def ask() -> None:
        floor = family.floor.bytes
        found.append((floor, family.choose(floor).seconds))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_example_of_the_readme_runs() -> None:
    text = (HERE / "README.md").read_text()
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[-1]
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["family"].curve() == [(384, 6.0), (256, 7.0)]
    assert names["plan"].arena_bytes == 256
    with pytest.raises(OverBudget, match="256"):
        names["family"].choose(200)


def test_the_version_is_that_of_the_crates() -> None:
    manifest = (HERE / "../../Cargo.toml").read_text()
    (version,) = re.findall(r'^version = "(.*)"', manifest, re.MULTILINE)
    assert highwater.__version__ == version


def test_texts_are_short() -> None:
    problem = six_nodes()
    family = Family(problem)
    texts = [problem, family, family.floor, family.choose(256), family.choose(256).holders()]
    assert [repr(text) for text in texts] == [
        "<highwater.Problem of 6 nodes and 4 values>",
        "<highwater.Family of 6 nodes and 4 values, policy 'auto'>",
        repr(family.floor),
        "<highwater.Plan of 11 instructions: 256 bytes, 7.0 seconds, 1.0 of them recomputing>",
        repr(family.choose(256).holders()),
    ]
    assert repr(family.floor).startswith("Floor(bytes=256, node=")


@pytest.mark.parametrize(
    "command",
    [
        ["mypy.stubtest", "highwater._native"],
        ["mypy", "--strict", str(HERE / "python/highwater"), __file__],
    ],
)
def test_types_agree(command: list[str], tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    # Elsewhere, so that what is installed is looked at.
    without_torch = ["--exclude", "/torch/"] if find_spec("torch") is None else []
    run = [sys.executable, "-m", *command, *(without_torch if command[0] == "mypy" else [])]
    found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
